"""The store of kernel times: one file per machine, onnxruntime and number of threads, in the user's cache folder.

    {"kernel_times": 4, "cpu": "AMD EPYC", "instructions": "avx2 fma", "caches": "32K 512K 32M", ...}
    {"kernel": "com.microsoft.nchwc::Conv-1 (...) 0f3a...", "seconds": 0.000129}

A line is appended for every measurement. A damaged line is ignored, and its kernel is timed again. If the folder cannot be
written, the times stay in memory, and the next process times the kernels again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import platformdirs

from layoutopt.kernel_times.machine import Machine

_VERSION = 4


def default_folder() -> Path:
    """The user's cache folder for kernel times."""
    return Path(platformdirs.user_cache_dir("layoutopt")) / "kernel_times"


class KernelStore:
    """The times of kernels on one machine, in seconds.

    Args:
        machine: the machine.
        folder: the folder of the file; None keeps the times in memory only.

    Attributes:
        is_complete: whether no kernel may be timed: all other kernels have estimates.
    """

    def __init__(self, machine: Machine, folder: Path | None = None) -> None:
        self.machine = machine
        self.is_complete = False
        text = json.dumps({"kernel_times": _VERSION, **asdict(machine)})
        self.path = folder / f"{sha256(text.encode()).hexdigest()[:16]}.jsonl" if folder is not None else None
        self._seconds: dict[str, float] = {}
        if self.path is not None and _header(self.path) in ("", text):
            self._seconds = _read(self.path)
        elif self.path is not None:  # the times of another machine
            with suppress(OSError):
                self.path.unlink()

    @classmethod
    def of_file(cls, path: Path) -> "KernelStore":
        """The times of a file, of this machine or another one, which is not changed.

        Raises:
            ValueError: it cannot be read, or is no file of kernel times.
        """
        try:
            header = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
            version = header.pop("kernel_times")
            machine = Machine(**header)
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError("is no file of kernel times") from None
        if version != _VERSION:
            raise ValueError(f"has kernel times of version {version}, and this layoutopt reads version {_VERSION}")
        store = cls(machine)
        store._seconds, store.is_complete = _read(path), True
        return store

    def get(self, key: str) -> float | None:
        """The time of a kernel; None if it was not measured."""
        return self._seconds.get(key)

    def add(self, times: Mapping[str, float], *, is_kept: bool = True) -> None:
        """Store the times of kernels.

        Args:
            times: seconds by the keys of kernels.
            is_kept: whether they are written to the file.
        """
        self._seconds.update(times)
        if self.path is None or not times or not is_kept:
            return
        lines = [{"kernel": key, "seconds": seconds} for key, seconds in times.items()]
        header = [] if self.path.exists() else [{"kernel_times": _VERSION, **asdict(self.machine)}]
        text = "".join(f"{json.dumps(each)}\n" for each in [*header, *lines])
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            self.path = None  # the folder cannot be written: the times stay in memory


def _header(path: Path) -> str:
    """The first line of a file; empty if there is none, or the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""


def _read(path: Path) -> dict[str, float]:
    """The times of a file, in seconds by the keys of kernels, without damaged lines; empty if the file cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found: dict[str, float] = {}
    for line in lines:
        try:
            record = json.loads(line)
            key, seconds = record["kernel"], float(record["seconds"])
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(key, str) and 0 <= seconds < float("inf"):
            found[key] = seconds
    return found


__all__ = ["KernelStore", "default_folder"]
