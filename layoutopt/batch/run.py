"""The run of a batch: its workers, its output folders, and the outcome of every model as it ends."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

import joblib

from layoutopt.batch.cache import Cache, needs_this_machine
from layoutopt.batch.clusters import Failure, open_cluster
from layoutopt.batch.task import ModelTask, Outcome, run_task
from layoutopt.driver.options import BatchOptions, ModelOptions, check, takes, values_of
from layoutopt.driver.prices import VARIABLE
from layoutopt.errors import ArgumentError, LayoutoptError
from layoutopt.files import conflict, external_files, output_folders, path_text
from layoutopt.runtime.available_memory import available_bytes

_SAFE_PATH = "PYTHONSAFEPATH"
_PROCESS_BYTES = 1_000_000_000  # libraries, and activations of usual networks
_BYTES_PER_WEIGHT_BYTE = 5
Progress = Callable[[int, str], None]


@takes(BatchOptions)
def optimize_many(options: BatchOptions) -> Generator[Outcome, None, None]:
    """Optimise many models, and return the outcome of each as it ends.

        for outcome in layoutopt.optimize_many(paths, "gpu-hopper", output="out", cache="cache"):
            print(outcome)

    An error is the outcome of its model, and does not stop the others. Closing the iterator stops the workers.

    Args:
        options: the arguments are the fields of `layoutopt.driver.options.BatchOptions`.

    Raises:
        ArgumentError: an argument is wrong.
        LayoutoptError: the library of the cluster is not installed, or the cluster cannot be reached; from the iterator.
    """
    if not isinstance(options.target, str):
        raise ArgumentError("is no text", where=f"target={options.target!r:.80}", hint="name a target or a file")
    check(options)
    folder = None if options.cache is None else Path(options.cache)
    if folder is not None:
        Cache(folder)
    values = values_of(options, ModelOptions) | {"target": options.target}
    tasks = [
        ModelTask(model, result, values, external_data=options.external_data, force=options.force, cache=folder)
        for model, result in _placed(options.models, options.output)
    ]

    def outcomes() -> Generator[Outcome, None, None]:
        with closing(run_tasks(tasks, jobs=options.jobs, cluster=options.cluster)) as found:
            for _, outcome in found:
                yield outcome

    return outcomes()


def _placed(
    models: Iterable[str | PathLike[str]] | Mapping[str | PathLike[str], str | PathLike[str]],
    output: str | PathLike[str] | None,
) -> list[tuple[Path, Path | None]]:
    """Pairs of a model and the file of its result.

    Raises:
        ArgumentError: `models` is one path, `output` is no folder, two results have one file, or one that is read.
    """
    if isinstance(models, str | PathLike):
        raise ArgumentError("is one model", where=f"models={os.fspath(models)!r:.80}", hint="give a list")
    placed: list[tuple[Path, Path | None]]
    if isinstance(models, Mapping):
        if output is not None:
            raise ArgumentError("models have their results", where=f"output={output!r:.80}", hint="leave it out")
        placed = [(Path(model), Path(result)) for model, result in models.items()]
    else:
        if output is not None and Path(output).suffix == ".onnx" and not Path(output).is_dir():
            raise ArgumentError("is no folder", where=f"output={os.fspath(output)!r:.80}", hint="name a folder")
        paths = [Path(each) for each in models]
        placed = [(each, None if output is None else Path(output) / each.name) for each in paths]
    written = [(model, result) for model, result in placed if result is not None]
    if wrong := conflict(written, may_replace_source=isinstance(models, Mapping)):
        hint = "give a mapping from the models to different files"
        raise ArgumentError(wrong[1], where=path_text(wrong[0]), hint=hint)
    return placed


def run_tasks(
    tasks: Sequence[ModelTask],
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """The outcome of each task as it ends, with its index. Folders of results are created; empty ones are removed at the end.

    Args:
        tasks: the tasks.
        jobs: the number of worker processes on this machine; 0 for none: the models are optimised in this process, one after
            the other. None for `default_jobs`.
        cluster: the URL of a cluster (`open_cluster`).
        progress: in this process, called with the index and the name of every stage as it begins.

    Raises:
        ArgumentError, LayoutoptError: as for `open_cluster`.
    """
    if cluster is not None and jobs == 0:
        raise ArgumentError("needs worker processes", where=f"cluster={cluster}", hint="give no jobs, or 1 or more")
    if jobs is None and cluster is None:
        jobs = default_jobs([each.model for each in tasks], is_timed=any(is_timed(each.options) for each in tasks))
    with output_folders(task.output.parent for task in tasks if task.output is not None):
        if jobs == 0:
            for index, task in enumerate(tasks):
                yield index, run_task(task, None if progress is None else partial(progress, index))
        elif tasks:
            with (
                _without_working_folder(),
                open_cluster(cluster, jobs) as workers,
                closing(workers.map_unordered(run_task, tasks)) as outcomes,
            ):
                for index, outcome in outcomes:
                    yield index, _failed(tasks[index], outcome) if isinstance(outcome, Failure) else outcome


def default_jobs(models: Sequence[Path], *, is_timed: bool) -> int:
    """The number of worker processes if none is given, as `run_tasks` takes it.

    0 for one model; 1 if times are measured on this machine, which other models
    would disturb; else as many as its CPU cores and the estimated memory for the models permit.
    """
    if len(models) < 2 or is_timed:
        return int(len(models) > 1)
    totals = accumulate(sorted(map(estimated_bytes, models), reverse=True))
    available = available_bytes()
    fitting = sum(total <= available for total in totals)
    cores: int = joblib.cpu_count(only_physical_cores=True)
    return max(1, min(fitting, cores))


def estimated_bytes(model: Path) -> int:
    """The estimated memory of a worker process for a model, in bytes, from the size of the model and its external data."""
    files = {os.path.realpath(each) for each in (model, *external_files(model))}
    sizes = [os.path.getsize(each) for each in files if os.path.isfile(each)]
    return _PROCESS_BYTES + _BYTES_PER_WEIGHT_BYTE * sum(sizes)


def is_timed(options: Mapping[str, Any]) -> bool:
    """Whether kernels or models are timed on this machine, so that other work at the same time would disturb the result."""
    is_requested = options.get("measure") or options.get("calibrate")
    with suppress(LayoutoptError):  # which is the outcome of the model
        return bool(is_requested and not os.environ.get(VARIABLE) and needs_this_machine(options))
    return False


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """Context in which new Python processes do not import modules from the working folder, which may be a stranger's."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]
        if before is not None:
            os.environ[_SAFE_PATH] = before


def _failed(task: ModelTask, failure: Failure) -> Outcome:
    """The outcome of a task whose worker process ended, or could not run it."""
    hint = "it may need more memory than there is: use fewer --jobs" if failure.is_worker_lost else ""
    error = LayoutoptError(failure.reason, where=path_text(task.model), hint=hint)
    return Outcome(task.model, error=error, traceback=failure.traceback)
