"""The store of kernel times: one file per machine, onnxruntime and number of threads, in the user's cache folder.

    {"kernel_times": 7, "cpu": "AMD EPYC", "instructions": "avx2 fma", "caches": "32K 512K 32M", ...}
    ["layoutopt 0.1.0: Relu (float32[1,64,56,56]) 5e1f...", 0.000129, 0.011]

A line has a kernel, its seconds, or null if onnxruntime does not run it alone, and the seconds that timing it took.

A line is appended for every kernel, and the first line of a kernel counts, so that later runs and other processes have its
time. A damaged line is ignored, and its kernel is timed again. If the folder cannot be written, the times stay in memory, and
the next process times the kernels again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import onnxruntime
import platformdirs
from pydantic import Field, TypeAdapter, ValidationError

from layoutopt.runtime.processor import processor_fields, processor_name, reported_instruction_sets

_VERSION = 7
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_INSTRUCTIONS = """amx_int8 amx_tile avx avx2 avx512_bf16 avx512_vnni avx512f avx512vl avx_vnni f16c fma
asimd asimddp bf16 i8mm sve"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that kernel times depend on, besides the kernel.

    Attributes:
        cpu: the name of the processor, with its family and model.
        instructions: its instruction sets for vectors and matrices.
        caches: the sizes of its caches.
        onnxruntime: the version.
        threads: of a session.
    """

    cpu: str
    instructions: str
    caches: str
    onnxruntime: str
    threads: int

    @classmethod
    def current(cls, threads: int = 1) -> "Machine":
        """This machine; a property that the system does not report is an empty text."""
        fields = processor_fields()
        names = (processor_name(), fields.get("cpu family"), fields.get("model"))
        return cls(
            " ".join(each for each in names if each),
            " ".join(sorted(reported_instruction_sets().intersection(_INSTRUCTIONS.split()))),
            " ".join(_text(path / "size").strip() for path in sorted(_CACHES.glob("index*"))),
            str(onnxruntime.__version__),
            threads,
        )


class StoredTime(NamedTuple):
    """The time of a kernel.

    Attributes:
        seconds: of a run; None if onnxruntime does not run the kernel alone.
        cost: seconds of the processor that timing it took.
    """

    seconds: float | None
    cost: float


_Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_LINE = TypeAdapter(tuple[str, _Seconds | None, _Seconds])


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
        self._times: dict[str, StoredTime] = {}
        if self.path is not None and _text(self.path).partition("\n")[0] in ("", text):
            self._times = _read(self.path)
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
        store._times, store.is_complete = _read(path), True
        return store

    def get(self, key: str) -> StoredTime | None:
        """The time of a kernel; None if it was not timed."""
        return self._times.get(key)

    def add(self, times: Mapping[str, float | None], cost: float = 0.0) -> None:
        """Store the times of kernels that have none.

        Args:
            times: seconds by the keys of kernels; None for a kernel that onnxruntime does not run alone.
            cost: seconds of the processor that timing each of them took.
        """
        new = {key: StoredTime(seconds, cost) for key, seconds in times.items() if key not in self._times}
        self._times |= new
        if self.path is None or not new:
            return
        header = [] if self.path.exists() else [{"kernel_times": _VERSION, **asdict(self.machine)}]
        text = "".join(f"{json.dumps(each)}\n" for each in [*header, *((key, *time) for key, time in new.items())])
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            self.path = None  # the folder cannot be written: the times stay in memory
        else:
            self._times |= _read(self.path)  # another process may have written the first line of a kernel


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read(path: Path) -> dict[str, StoredTime]:
    """The first time of every kernel in a file, without damaged lines."""
    found: dict[str, StoredTime] = {}
    for line in _text(path).splitlines():
        with suppress(ValidationError):
            key, seconds, cost = _LINE.validate_json(line)
            found.setdefault(key, StoredTime(seconds, cost))
    return found
