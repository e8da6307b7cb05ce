"""Batches of models: `optimize` of several, and the run of the models of `ci`; a failure does not stop the others."""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from layoutopt.batch.cache import Cache
from layoutopt.batch.run import run_tasks
from layoutopt.batch.task import ModelTask, Outcome
from layoutopt.cli.entry import described, report_error
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.model_files import Placement
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import OutputFiles
from layoutopt.cli.rendering.results import batch_text, summary
from layoutopt.cli.rendering.stderr import progress_line, warn, warn_of_report
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.errors import LayoutoptError
from layoutopt.files import is_same_file, path_text
from layoutopt.version import VERSION


def optimize_several(placements: Sequence[Placement], given: Given) -> int:
    """Optimise models; with `json`, every model is one line of JSON.

    Returns:
        The exit code of the first model that failed, in the order of the arguments; 0 without one.

    Raises:
        UsageError: the JSON file is one of the models, or the cache is a folder of results.
        ArgumentError: the cache is a folder with other files.
        OutputError: the JSON file cannot be written.
        StdoutError: stdout cannot be written.
    """
    settings = [given.settings(each.model) for each in placements]
    reads = [path for each in settings for path in each.reads]
    models, results = [each.model for each in placements], [each.output for each in placements]
    record = OutputFiles("optimize", given, *models, results=results, reads=reads)
    if given.cache is not None:
        Cache(given.cache)
        if any(is_same_file(given.cache, each.parent) for each in results):
            where = f"--cache {path_text(given.cache)}"
            raise UsageError("that is the folder of the results", where=where, hint="name a folder of its own")
    tasks = [
        each.task(placed.model, None if given.dry_run else placed.output)
        for each, placed in zip(settings, placements, strict=True)
    ]

    def show(task: ModelTask, outcome: Outcome) -> None:
        report = outcome.report
        if report is None:
            code, _, line = described(outcome.error or LayoutoptError("failed"))
            failure = {"model": path_text(task.model), "error": line, "exit_code": code}
            record.add_line({"layoutopt_version": VERSION} | failure, task.model)
            return
        if given.verbose and not record.is_printed:
            show_text(summary(report, outcome.written, path_text(task.output or ""), is_verbose=True))
        record.add_line(report, task.model)

    outcomes, code = run_batch(tasks, given, show)
    record.print(batch_text(outcomes))
    return code


def run_batch(
    tasks: Sequence[ModelTask], given: Given, ended: Callable[[ModelTask, Outcome], None] | None = None
) -> tuple[list[Outcome], int]:
    """The outcomes of tasks, in their order, and the exit code of the first that failed, or 0.

    Warnings and errors are printed as the tasks end, one line each; meanwhile the progress is shown.

    Args:
        tasks: the tasks.
        given: the options.
        ended: called with each outcome as its task ends.
    """
    outcomes: dict[int, Outcome] = {}
    codes: dict[int, int] = {}
    progress: Callable[[str], None] = lambda stage: None  # noqa: E731

    def show_stage(index: int, stage: str) -> None:
        progress(f"{index + 1}/{len(tasks)} {path_text(tasks[index].model)}: {stage}")

    jobs = given.settings().jobs
    with closing(run_tasks(tasks, jobs=jobs, cluster=given.cluster, progress=show_stage)) as found:
        while True:
            with progress_line(is_silent=given.is_quiet) as progress:
                progress(f"{len(outcomes)} of {len(tasks)} models are done")
                index, outcome = next(found, (-1, None))
            if outcome is None:
                break
            outcomes[index] = outcome
            for note in outcome.notes:
                warn(note)
            if outcome.report is not None:
                warn_of_report(outcome.report, outcome.model)
            else:
                codes[index] = _report_error(outcome, has_traceback=given.has_traceback)
            if ended is not None:
                ended(tasks[index], outcome)
    return [outcomes[index] for index in range(len(tasks))], codes[min(codes)] if codes else 0


def _report_error(outcome: Outcome, *, has_traceback: bool) -> int:
    """Print the error of a model, and return its exit code."""
    if has_traceback and outcome.traceback:
        print(outcome.traceback, end="", file=sys.stderr)
    error = outcome.error or LayoutoptError("failed")
    return report_error(error, has_traceback=has_traceback and not outcome.traceback, where=path_text(outcome.model))
