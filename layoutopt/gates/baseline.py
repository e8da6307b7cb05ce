"""The baseline file: the numbers of models at an earlier time, which is committed next to them.

    {"layoutopt_baseline": 1, "written_by": "0.1.0", "entries": [{"model": "models/a.onnx", "target": "cpu-avx2", ...}]}

Models are named by their paths from the folder of the baseline file, with slashes, so that the file is the same on every
machine. An entry is for one model, target and runtime.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, ValidationError

from layoutopt.errors import ArgumentError
from layoutopt.files import path_text
from layoutopt.gates.report import Numbers, PlannedModel
from layoutopt.report.schema import ReportModel
from layoutopt.version import VERSION

_Key: TypeAlias = tuple[str, str, str]


class BaselineEntry(PlannedModel, extra="ignore"):
    """The numbers of one model for one target and runtime."""

    numbers: Numbers

    @property
    def key(self) -> _Key:
        """The model, target and runtime, which identify an entry."""
        return self.model, self.target, self.runtime


class Baseline(ReportModel):
    """The content of a baseline file.

    Attributes:
        written_by: the version of layoutopt.
    """

    layoutopt_baseline: Literal[1] = 1
    written_by: str = VERSION
    entries: list[BaselineEntry] = Field(default_factory=list)

    def entry(self, model: str, target: str, runtime: str) -> BaselineEntry | None:
        """The entry of a model; None if there is none."""
        return next((each for each in self.entries if each.key == (model, target, runtime)), None)

    def updated(self, entries: Iterable[BaselineEntry], folder: Path) -> "Baseline":
        """The baseline with new entries; old ones stay unless they are replaced or their model file no longer exists."""
        old = {each.key: each for each in self.entries if _may_exist(folder / each.model)}
        new = old | {each.key: each for each in entries}
        return Baseline(entries=[new[key] for key in sorted(new)])

    def check_target(self, target: str, runtime: str, path: Path) -> None:
        """Check that the baseline has an entry for a target and runtime, if it has any.

        Raises:
            ArgumentError: all entries are for other targets or runtimes.
        """
        if self.entries and not any(each.key[1:] == (target, runtime) for each in self.entries):
            what = f"has no entry for the target {target} (runtime {runtime})"
            hint = f"name another --target, or add {target} with --update-baseline"
            raise ArgumentError(what, where=path_text(path), hint=hint)


def _may_exist(model: Path) -> bool:
    """Whether a model file exists; assumed of a name with escapes, which is not the name of the file."""
    return "\\x" in model.as_posix() or model.exists()


def read_baseline(path: Path) -> Baseline:
    """The content of a baseline file.

    Raises:
        ArgumentError: there is no such file, or it is not a baseline.
    """
    try:
        return Baseline.model_validate_json(path.read_bytes())
    except OSError as error:
        reason, hint = (error.strerror or str(error)).lower(), "write it with --update-baseline"
        raise ArgumentError(f"cannot be read: {reason}", where=path_text(path), hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what = f"not a baseline: {f'{place}: ' if place else ''}{first['msg']}"
        hint = "correct it, or delete it and write it again with --update-baseline"
        raise ArgumentError(what, where=path_text(path), hint=hint) from error


def model_key(model: Path, baseline: Path) -> str:
    """The path of a model from the folder of the baseline file, with slashes."""
    relative = os.path.relpath(os.path.abspath(model), os.path.abspath(baseline.parent))
    return path_text(Path(relative).as_posix())
