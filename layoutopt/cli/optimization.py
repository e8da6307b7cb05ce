"""The run of `optimize`: one model with its summary, or several with a table, where a failure does not stop the others."""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

from layoutopt.batch.cache import Cache
from layoutopt.batch.run import output_folders, run_tasks
from layoutopt.batch.task import ModelTask, Outcome, check_output
from layoutopt.cli.entry import described, report_error
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.inspection import page_text
from layoutopt.cli.model_files import Placement, is_several, place, with_output
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import STDIO, OutputFiles, print_model, read_stdin
from layoutopt.cli.rendering.results import batch_text, summary
from layoutopt.cli.rendering.stderr import ProgressLine, warn, warn_of_repairs
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.errors import LayoutoptError
from layoutopt.files import FileKind, create_folder, is_same_file, path_text
from layoutopt.page import OriginalGraph
from layoutopt.report.facts import repairs_of, warnings_of
from layoutopt.report.schema import Report
from layoutopt.version import VERSION

FOR_ONE_MODEL = ("pin", "inputs", "external_data", "html", "certificate")
"""The options that name tensors or files of one model, so that they are refused for several."""

FOR_SEVERAL = ("cluster", "cache")


def optimize(given: Given, models: Sequence[Path]) -> int:
    """Optimise the models that the arguments name.

    Args:
        given: the options.
        models: files, folders, patterns, or `-` for stdin.

    Returns:
        The exit code: that of the first failure of several models.

    Raises:
        LayoutoptError: the arguments are wrong, or the only model failed.
    """
    arguments, output = with_output(models, given.output)
    is_alone = len(arguments) == 1 and not is_several(arguments[0])
    for name in FOR_SEVERAL if is_alone else FOR_ONE_MODEL:
        if getattr(given, name):
            what, hint = "is for one model", "name one model file"
            if is_alone:
                what, hint = "is for several models", "name several models, or a folder"
            raise UsageError(what, where=f"--{name.replace('_', '-')}", hint=hint)
    placements = place(arguments, output)
    if not is_alone:
        return _optimize_several(placements, given)
    _optimize_one(placements[0], given)
    return 0


def _optimize_one(placed: Placement, given: Given) -> None:
    """Optimise one model, write its files and print the verdict; warnings go to stderr.

    Raises:
        UsageError: two of the files are the same, or the options contradict each other.
        OutputError: a file cannot be written, or must not be replaced; none is written then.
        StdoutError: stdout cannot be written; the files are written.
    """
    settings = given.settings(placed.model)
    is_stdin, is_printed = placed.model == STDIO, placed.output == STDIO and not settings.dry_run
    if is_printed and settings.json == STDIO:
        raise UsageError("the model goes to stdout", where="--json -", hint="name a file: --json=report.json")
    if is_printed and sys.stdout.isatty():
        raise UsageError("stdout is a terminal", where="-o -", hint="redirect it, or name a file with -o")
    sources = [] if is_stdin else [placed.model]
    results = [] if is_printed or settings.dry_run else [placed.output]
    output = next(iter(results), None)
    external_data = settings.external_data if output is not None else None
    page = OriginalGraph(*settings.hardware()) if settings.html is not None else None
    folders = [each.parent for each in results if placed.is_in_folder]
    written = None
    with output_folders(folders):
        for folder in folders:
            create_folder(folder)
        record = OutputFiles("optimize", given, *sources, output=output, results=results, reads=settings.reads)
        if output is not None:
            check_output(output, external_data, record.overwrite)
        if output is not None and external_data is not None:
            where = f"--external-data {external_data}"
            record.take(where, output.with_name(external_data), "the external data")
        tested = {"allow_tested": settings.allow_tested}
        record.add("--html", settings.html, FileKind.PAGE, lambda: page_text(result, page, model, settings))
        record.add(
            "--certificate", settings.certificate, FileKind.CERTIFICATE, lambda: result.certificate(model, **tested)
        )
        model = read_stdin() if is_stdin else placed.model
        with ProgressLine(is_silent=given.is_quiet) as progress:
            callbacks = {} if page is None else {"watch": page, "sizes_found": page.set_sizes}
            result = settings.run(model, progress=progress, **callbacks)
            if is_stdin:
                result = replace(result, report=result.report.model_copy(update={"model": "stdin"}))
            progress("writing")
            with record.staged(result.report):
                if is_printed:
                    print_model(result)
                if output is not None:
                    written = result.save(output, external_data=external_data, force=settings.force)
    _warn_about(result.report)
    names = "to stdout" if is_printed else ", ".join(map(path_text, written.files if written is not None else []))
    with redirect_stdout(sys.stderr) if is_printed else nullcontext():  # where the model goes to stdout
        record.print(summary(result.report, written, names, is_verbose=bool(given.verbose)))


def _warn_about(report: Report, model: Path | None = None) -> None:
    """Print warnings about a result; those about repairs name the model if there are several."""
    warn_of_repairs(repairs_of(report.notes), path_text(model) if model is not None else "")
    for text in warnings_of(report):
        warn(text)


def _optimize_several(placements: Sequence[Placement], given: Given) -> int:
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
    progress = ProgressLine(is_silent=True)

    def show_stage(index: int, stage: str) -> None:
        progress(f"{index + 1}/{len(tasks)} {path_text(tasks[index].model)}: {stage}")

    jobs = given.settings().jobs
    with closing(run_tasks(tasks, jobs=jobs, cluster=given.cluster, progress=show_stage)) as found:
        while True:
            with ProgressLine(is_silent=given.is_quiet) as progress:
                progress(f"{len(outcomes)} of {len(tasks)} models are done")
                index, outcome = next(found, (-1, None))
            if outcome is None:
                break
            outcomes[index] = outcome
            for note in outcome.notes:
                warn(note)
            if outcome.report is not None:
                _warn_about(outcome.report, outcome.model)
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
