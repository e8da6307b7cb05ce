"""What has been measured so far, in a file of one line of JSON each, so that an interrupted calibration can go on.

    {"calibration": 1, "cpu": "...", "onnxruntime": "...", "threads": 1, "run": 1.9e-06, "node": 1.8e-07}
    {"kernel": "Conv 1x64x56x56:NCHW16c, ...", "seconds": 0.000129}

A line is appended and flushed with every measurement; one that was cut off is not counted.
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from layoutopt.calibrate.timing import Idle
from layoutopt.errors import LayoutoptError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """What measurements have to have in common to be fitted together.

    Attributes:
        cpu: the name of the processor.
        onnxruntime: its version.
        threads: of onnxruntime.
        target: the built-in target that is calibrated.
    """

    cpu: str
    onnxruntime: str
    threads: int
    target: str


class State(AbstractContextManager["State"]):
    """The measurements of a file, which is created where there is none.

    Args:
        path: the file.
        conditions: those that hold now.

    Attributes:
        seconds: by the key of the kernel; of several measurements the least.
        counts: how many measurements there are, by key.
        threads: of onnxruntime.
        idle: what is not the kernels' time, once it is known.

    Raises:
        LayoutoptError: it holds something else, was made under other conditions, or cannot be read or written.
    """

    def __init__(self, path: Path, conditions: Conditions) -> None:
        """Read what is there."""
        self.path = path
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.threads = conditions.threads
        self.idle: Idle | None = None
        self._conditions = conditions
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            self._read(whole.splitlines())
            self._file = path.open("r+" if text else "w", encoding="utf-8")
            self._file.truncate(len(whole.encode()))
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise LayoutoptError(
                (error.strerror or str(error)).lower(), where=str(path), hint="choose another file"
            ) from error

    def begin(self, idle: Idle) -> None:
        """Write the first line, once."""
        self.idle = idle
        self._append({"calibration": _VERSION, **asdict(self._conditions), **asdict(idle)})

    def add(self, key: str, seconds: float) -> None:
        """Keep a measurement."""
        self._count(key, seconds)
        self._append({"kernel": key, "seconds": seconds})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()

    def _count(self, key: str, seconds: float) -> None:
        self.seconds[key] = min(seconds, self.seconds.get(key, seconds))
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
            raise self._foreign()
        for name, now in asdict(self._conditions).items():
            if header.get(name) != now:
                raise LayoutoptError(
                    f"was measured with {name} {header.get(name)}, here it is {now}",
                    where=str(self.path),
                    hint="start with a new file",
                )
        try:
            self.idle = Idle(float(header["run"]), float(header["node"]))
            for record in records[1:]:
                self._count(str(record["kernel"]), float(record["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise self._foreign() from error

    def _record(self, line: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise self._foreign() from error
        if not isinstance(record, dict):
            raise self._foreign()
        return record

    def _foreign(self) -> LayoutoptError:
        return LayoutoptError(
            "holds no measurements of layoutopt calibrate", where=str(self.path), hint="name another file"
        )
