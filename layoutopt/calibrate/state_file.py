"""StateFile file of a calibration: its measurements as lines of JSON, so that an interrupted calibration can be resumed.

    {"calibration": 1, "cpu": "...", "onnxruntime": "...", "threads": 1, "run": 1.9e-06, "node": 1.8e-07}
    {"kernel": "Conv 1x64x56x56:NCHW16c, ...", "seconds": 0.000129}

A line is appended and flushed with every measurement; an incomplete last line is ignored.
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from layoutopt.calibrate.timing import RunOverhead
from layoutopt.errors import LayoutoptError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions that all measurements of a file share.

    Attributes:
        cpu: the name of the processor.
        onnxruntime: the version of onnxruntime.
        threads: the threads of onnxruntime.
        target: the built-in target that is calibrated.
    """

    cpu: str
    onnxruntime: str
    threads: int
    target: str


class StateFile(AbstractContextManager["StateFile"]):
    """A state file, which is created if it does not exist.

    Args:
        path: the file.
        conditions: the current conditions.

    Attributes:
        seconds: the smallest measured time of each kernel, by its key.
        counts: the number of measurements of each kernel, by its key.
        threads: the threads of onnxruntime.
        overhead: the overhead of runs and nodes, once it is measured.

    Raises:
        LayoutoptError: the file has other contents or conditions, or cannot be read or written.
    """

    def __init__(self, path: Path, conditions: Conditions) -> None:
        """Read the existing measurements."""
        self.path = path
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._second: dict[str, float] = {}
        self.threads = conditions.threads
        self.overhead: RunOverhead | None = None
        self._conditions = conditions
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            complete = text[: text.rfind("\n") + 1]
            self._read(complete.splitlines())
            self._file = path.open("r+" if text else "w", encoding="utf-8")
            self._file.truncate(len(complete.encode()))
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise LayoutoptError(
                (error.strerror or str(error)).lower(), where=str(path), hint="choose another file"
            ) from error

    def begin(self, overhead: RunOverhead) -> None:
        """Write the header."""
        self.overhead = overhead
        self._append({"calibration": _VERSION, **asdict(self._conditions), **asdict(overhead)})

    def add(self, key: str, seconds: float) -> None:
        """Append a measurement."""
        self._count(key, seconds)
        self._append({"kernel": key, "seconds": seconds})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()

    def is_scattered(self, key: str, ratio: float) -> bool:
        """Whether the two smallest times of a kernel differ by more than a ratio, so that the smallest may be a fault."""
        return key in self._second and self._second[key] > ratio * self.seconds[key]

    def _count(self, key: str, seconds: float) -> None:
        least = self.seconds.get(key)
        self.seconds[key] = seconds if least is None else min(seconds, least)
        if least is not None:
            self._second[key] = min(max(seconds, least), self._second.get(key, float("inf")))
        self.counts[key] = self.counts.get(key, 0) + 1

    def _append(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(f"{json.dumps(record)}\n")
            self._file.flush()
        except OSError as error:
            raise LayoutoptError((error.strerror or str(error)).lower(), where=str(self.path)) from error

    def _read(self, lines: list[str]) -> None:
        if not lines:
            return
        records = [self._record(line) for line in lines]
        header = records[0]
        if header.get("calibration") != _VERSION:
            raise self._wrong_file()
        for name, now in asdict(self._conditions).items():
            if header.get(name) != now:
                raise LayoutoptError(
                    f"was measured with {name} {header.get(name)}, here it is {now}",
                    where=str(self.path),
                    hint="start with a new file",
                )
        try:
            self.overhead = RunOverhead(float(header["run"]), float(header["node"]))
            for record in records[1:]:
                self._count(str(record["kernel"]), float(record["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise self._wrong_file() from error

    def _record(self, line: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise self._wrong_file() from error
        if not isinstance(record, dict):
            raise self._wrong_file()
        return record

    def _wrong_file(self) -> LayoutoptError:
        return LayoutoptError(
            "holds no measurements of layoutopt calibrate", where=str(self.path), hint="name another file"
        )
