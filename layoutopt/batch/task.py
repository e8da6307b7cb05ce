"""The task of one model of a batch: look into the cache, optimise, keep the outcome, write the result."""

import os
import pickle
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec import field
from msgspec.structs import replace

from layoutopt import api, onnx_io
from layoutopt.batch.cache import Cache, outcome_key
from layoutopt.driver.result import Result
from layoutopt.errors import LayoutoptError
from layoutopt.files import Overwrite, create_folder, external_files, path_text
from layoutopt.onnx_io.writer import WrittenFiles, check_output
from layoutopt.record import Record
from layoutopt.report.schema import Report
from layoutopt.sample_inputs import read_inputs


class ModelTask(Record):
    """A model that is to be optimised, with its options.

    Attributes:
        model: the file.
        output: the file of the result; None to write none.
        options: arguments of `layoutopt.optimize`, without the model, inputs and functions.
        inputs: files with inputs for the verification.
        external_data: the name of the file for weights, next to the result.
        force: whether files are replaced that are no result of the model.
        reads: other files that the command reads.
        cache: the folder of the cache; None for none.
        folder: the working folder, to which paths are relative.
    """

    model: Path
    output: Path | None
    options: Mapping[str, Any] = field(default_factory=lambda: {"target": "cpu"})
    inputs: tuple[Path, ...] = ()
    external_data: str | None = None
    force: bool = False
    reads: tuple[Path, ...] = ()
    cache: Path | None = None
    folder: Path = field(default_factory=Path.cwd)


class Outcome(Record):
    """The outcome of one model of a batch.

    Attributes:
        model: the file.
        report: the report; None if the model failed.
        written: the files of the result; None if none was written.
        error: the error; None without one.
        traceback: the traceback of the error as text.
        is_cached: whether the outcome was in the cache.
        notes: lines about an outcome that could not be kept in the cache.
        seconds: wall time of the task.
    """

    model: Path
    report: Report | None = None
    written: WrittenFiles | None = None
    error: Exception | None = None
    traceback: str = ""
    is_cached: bool = False
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __repr__(self) -> str:
        if self.report is None:
            return f"Outcome({path_text(self.model)!r}, failed: {self.error})"
        result = "rewritten" if self.report.changed else "unchanged"
        return f"Outcome({path_text(self.model)!r}, {result}{', from the cache' if self.is_cached else ''})"


def run_task(task: ModelTask, progress: Callable[[str], None] | None = None) -> Outcome:
    """The outcome of a task; an error is an outcome, too.

    Args:
        task: the task.
        progress: called with the name of every stage as it begins.
    """
    start = perf_counter()
    try:
        if Path.cwd() != task.folder:  # a worker of a cluster
            os.chdir(task.folder)
        found = _outcome(task, progress)
    except Exception as error:
        found = Outcome(task.model, error=_picklable(error), traceback=traceback.format_exc())
    return replace(found, seconds=perf_counter() - start)


def _outcome(task: ModelTask, progress: Callable[[str], None] | None) -> Outcome:
    if task.output is not None:
        create_folder(task.output.parent)
        check_output(task.output, task.external_data, Overwrite((task.model,), task.output, task.force, task.reads))
    cache = Cache(task.cache) if task.cache is not None else None
    key = _key(task) if cache is not None else ""
    if cache is not None and key and (found := cache.find(key, task.model)):
        report = found[0].model_copy(update={"model": path_text(task.model), "cached": True})
        return Outcome(task.model, report, _restore(found[1], task), is_cached=True)
    inputs = [read_inputs(each) for each in task.inputs]
    result = api.optimize(task.model, **task.options, inputs=inputs, progress=progress)
    if progress is not None:
        progress("writing")
    notes = _keep(cache, key, task, result) if cache is not None and key else ()
    written = None
    if task.output is not None:
        written = result.save(task.output, external_data=task.external_data, force=task.force)
    return Outcome(task.model, result.report, written, notes=notes)


def _key(task: ModelTask) -> str:
    """The key of the outcome; empty if a file cannot be read, which `optimize` reports."""
    with suppress(OSError):
        return outcome_key(task.model, task.options, task.inputs, task.external_data)
    return ""


def _keep(cache: Cache, key: str, task: ModelTask, result: Result) -> tuple[str, ...]:
    """Keep an outcome in the cache; a failure is a note."""

    def save(path: Path) -> None:  # without a mark: the entry is for all files of this content
        onnx_io.write(result.model, path, task.external_data)

    has_file = result.report.changed or task.external_data is not None or external_files(task.model)
    try:
        cache.keep(key, task.model, result.report, save if has_file else None)
    except (OSError, LayoutoptError) as error:
        what = f"the outcome of {path_text(task.model)} is not kept: {error}"
        return (f"{path_text(cache.folder)}: {what}",)
    return ()


def _restore(kept: Path | None, task: ModelTask) -> WrittenFiles | None:
    """Write a result that was kept; the model itself if it stays unchanged."""
    if task.output is None:
        return None
    if kept is None or not external_files(kept):
        return onnx_io.copy(kept or task.model, task.output, source=task.model, force=task.force)
    model = onnx_io.read(kept)
    return onnx_io.write(model, task.output, task.external_data, source=task.model, force=task.force)


def _picklable(error: Exception) -> Exception:
    """An error, or its text if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
