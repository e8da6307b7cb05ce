"""The run of a batch: its workers, its output folders, and the outcome of every model as it ends."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from layoutopt.batch.cluster import Failure, open_cluster
from layoutopt.batch.keys import is_timed
from layoutopt.batch.memory import available_bytes, estimated_bytes, permitted_workers, usable_cores
from layoutopt.batch.task import ModelTask, Outcome, run_task
from layoutopt.errors import ArgumentError, LayoutoptError
from layoutopt.files import output_error, path_text
from layoutopt.files.staging import remove_stale_files

_SAFE_PATH = "PYTHONSAFEPATH"
Progress = Callable[[int, str], None]


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
        jobs = default_jobs(tasks)
    created, refused = _create_folders(tasks)
    try:
        for index, error in refused.items():
            yield index, Outcome(tasks[index].model, error=error)
        permitted = [index for index in range(len(tasks)) if index not in refused]
        if jobs == 0:
            for index in permitted:
                yield index, run_task(tasks[index], _stages(progress, index))
        elif permitted:
            yield from _in_workers(tasks, permitted, jobs, cluster)
    finally:
        for folder in {task.output.parent for task in tasks if task.output is not None}:
            remove_stale_files(folder)  # of workers that were ended
        for each in reversed(created):
            with suppress(OSError):  # a folder with results stays
                each.rmdir()


def default_jobs(tasks: Sequence[ModelTask]) -> int:
    """The number of worker processes if none is given, as `run_tasks` takes it.

    0 for one model; 1 if times are measured on this machine, which other models
    would disturb; else as many as its CPU cores and the estimated memory for the models permit.
    """
    if len(tasks) < 2:
        return 0
    if any(_is_timed(each) for each in tasks):
        return 1
    return permitted_workers([estimated_bytes(each.model) for each in tasks], available_bytes(), usable_cores())


def _is_timed(task: ModelTask) -> bool:
    try:
        return is_timed(task.options)
    except LayoutoptError:  # which is the outcome of the model
        return False


def _in_workers(
    tasks: Sequence[ModelTask], indices: Sequence[int], jobs: int | None, url: str | None
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of some of the tasks, which run in a cluster."""
    with (
        _without_working_folder(),
        open_cluster(url, jobs) as cluster,
        closing(cluster.map_unordered(run_task, [tasks[index] for index in indices])) as outcomes,
    ):
        for number, outcome in outcomes:
            index = indices[number]
            yield index, _failed(tasks[index], outcome) if isinstance(outcome, Failure) else outcome


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


def _stages(progress: Progress | None, index: int) -> Callable[[str], None] | None:
    """A function that is called with the stages of one task; None without progress."""
    return (lambda stage: progress(index, stage)) if progress is not None else None


def _create_folders(tasks: Sequence[ModelTask]) -> tuple[list[Path], dict[int, LayoutoptError]]:
    """Create the missing folders of results.

    Returns:
        The folders that were created, each behind the folder that contains it, and the errors by the index of the task.
    """
    created: list[Path] = []
    errors: dict[int, LayoutoptError] = {}
    for index, task in enumerate(tasks):
        if task.output is None:
            continue
        folder = task.output.parent
        missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
        try:
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
                created.append(each)
        except OSError as error:
            errors[index] = output_error(error, folder)
    return created, errors


__all__ = ["default_jobs", "run_tasks"]
