"""The run of `optimize`: one model with its summary, or several with a table, where a failure does not stop the others."""

import sys
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

from layoutopt.batch.cache import Cache
from layoutopt.batch.run import output_folders, run_tasks
from layoutopt.batch.task import ModelTask, Outcome
from layoutopt.cli.entry import report_error
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.inspection import Page
from layoutopt.cli.model_files import Placement, is_several, place, with_output
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import STDIO, JsonRecord, Outputs, read_stdin, reporting_written_files
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.optimize import Row, print_summary, print_table
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cli.rendering.warnings import warn, warn_of_repairs
from layoutopt.driver.result import Result
from layoutopt.errors import LayoutoptError
from layoutopt.files import FileKind, is_same_file, path_text
from layoutopt.report.facts import repairs_of, warnings_of
from layoutopt.report.schema import Report
from layoutopt.version import VERSION

FOR_ONE_MODEL = ("pin", "inputs", "external_data", "html", "certificate")
"""The options that name tensors or files of one model, so that they are refused for several."""

FOR_SEVERAL = ("cluster", "cache")


def run_optimize(arguments: Sequence[Path], given: Given) -> int:
    """Optimise the models that the arguments name.

    Args:
        arguments: files, folders, patterns, or `-` for stdin.
        given: the options.

    Returns:
        The exit code: that of the first failure of several models.

    Raises:
        LayoutoptError: the arguments are wrong, or the only model failed.
    """
    arguments, output = with_output(arguments, given.output)
    is_alone = len(arguments) == 1 and not is_several(arguments[0])
    for name in FOR_SEVERAL if is_alone else FOR_ONE_MODEL:
        if getattr(given, name):
            what, hint = "is for one model", "name one model file"
            if is_alone:
                what, hint = "is for several models", "name several models, or a folder"
            raise UsageError(what, where=f"--{name.replace('_', '-')}", hint=hint)
    placements = place(arguments, output)
    if not is_alone:
        return Batch(placements, given).run()
    settings = given.settings(placements[0].model)
    result, outputs = _optimized(placements[0], settings, is_quiet=given.is_quiet)
    if not given.is_quiet and not outputs.prints_report:  # the summary goes to stderr if the model goes to stdout
        to_stderr = redirect_stdout(sys.stderr) if outputs.prints_model else nullcontext()
        with to_stderr, reporting_written_files(outputs.files):
            print_summary(result.report, outputs, is_verbose=bool(given.verbose))
    return 0


def _optimized(placement: Placement, settings: Settings, *, is_quiet: bool) -> tuple[Result, Outputs]:
    """Optimise one model and write its files; warnings go to stderr.

    Args:
        placement: the model and its output.
        settings: the options of the model.
        is_quiet: whether no progress is shown.

    Returns:
        The result, and the files that were written.
    """
    is_written = not settings.dry_run
    with output_folders([placement.output.parent] if placement.is_in_folder and is_written else []) as faults:
        for fault in faults.values():
            raise fault
        is_stdin = placement.model == STDIO
        page = Page(settings) if settings.html is not None else None
        outputs = Outputs(
            None if is_stdin else placement.model,
            placement.output if is_written else None,
            settings.external_data,
            {
                "--json": (settings.json, FileKind.REPORT),
                "--html": (settings.html, FileKind.PAGE),
                "--certificate": (settings.certificate, FileKind.CERTIFICATE),
            },
            reads=settings.reads,
            force=settings.force,
        )
        outputs.check()
        model = read_stdin() if is_stdin else placement.model
        outputs.source_size = len(model) if isinstance(model, bytes) else outputs.source_size
        with ProgressLine(is_silent=is_quiet) as progress:
            callbacks = {} if page is None else {"watch": page.original, "sizes_found": page.original.set_sizes}
            result = settings.run(model, progress=progress, **callbacks)
            if is_stdin:
                result = replace(result, report=result.report.model_copy(update={"model": "stdin"}))
            progress("writing")

            def text(option: str) -> str:
                if option == "--html" and page is not None:
                    return page.text(result.graph, result.report)
                if option == "--certificate":
                    return result.certificate(model, allow_tested=settings.allow_tested)
                return json_text(result.report)

            outputs.write(result, text)
    _warn_about(result.report)
    return result, outputs


def _warn_about(report: Report, model: Path | None = None) -> None:
    """Print warnings about a result; those about repairs name the model if there are several."""
    warn_of_repairs(repairs_of(report.notes), path_text(model) if model is not None else "")
    for text in warnings_of(report):
        warn(text)


class Batch:
    """One run for several models.

    Args:
        placements: the models and their outputs.
        given: the options; with `json`, every model is one line of JSON.

    Raises:
        UsageError: the JSON file is one of the models, or the cache is a folder of results.
        ArgumentError: the cache is a folder with other files.
        OutputError: the JSON file cannot be written.
    """

    def __init__(self, placements: Sequence[Placement], given: Given) -> None:
        models, results = ([getattr(each, name) for each in placements] for name in ("model", "output"))
        self._settings = {model: given.settings(model) for model in models}
        reads = [each for settings in self._settings.values() for each in settings.reads]
        self._record = JsonRecord("optimize", given, *models, others=results, reads=reads)
        if given.cache is not None:
            Cache(given.cache)
            if any(is_same_file(given.cache, each.output.parent) for each in placements):
                where = f"--cache {path_text(given.cache)}"
                raise UsageError("that is the folder of the results", where=where, hint="name a folder of its own")
        self._placements, self._given = placements, given
        self._shows_all = given.verbose and not self._record.is_printed
        self._outputs: dict[int, Outputs] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._exit_codes: dict[int, int] = {}

    def run(self) -> int:
        """Optimise the models; each failure is one line on stderr.

        Returns:
            The exit code of the first model that failed, in the order of the arguments; 0 without one.

        Raises:
            OutputError: the JSON file cannot be written.
            StdoutError: stdout cannot be written.
        """
        with closing(self._run()) as outcomes:
            for index, outcome in outcomes:
                self._report(index, outcome)
        self._record.check_lines()
        if not self._given.is_quiet and not self._record.is_printed:
            written = [each.written for each in self._outcomes.values() if each.written is not None]
            files = [path for each in written for path in each.files]
            with reporting_written_files([*files, *self._record.files]):
                print_table([self._row(index) for index in range(len(self._placements))])
        return next((self._exit_codes[index] for index in sorted(self._exit_codes)), 0)

    def _run(self) -> Generator[tuple[int, Outcome], None, None]:
        """The outcome of each model as it ends, with its index; meanwhile the progress is shown."""
        tasks: dict[int, ModelTask] = {}
        for index, placement in enumerate(self._placements):
            try:
                tasks[index] = self._task(index, placement)
            except Exception as error:
                yield index, Outcome(placement.model, error=error)
        indices = list(tasks)
        progress = ProgressLine(is_silent=True)

        def show_stage(number: int, stage: str) -> None:
            index = indices[number]
            name = path_text(self._placements[index].model)
            progress(f"{index + 1}/{len(self._placements)} {name}: {stage}")

        jobs, cluster = self._given.settings().jobs, self._given.cluster
        with closing(run_tasks(list(tasks.values()), jobs=jobs, cluster=cluster, progress=show_stage)) as outcomes:
            while True:
                with ProgressLine(is_silent=self._given.is_quiet) as progress:
                    progress(f"{len(self._outcomes)} of {len(self._placements)} models are done")
                    found = next(outcomes, None)
                if found is None:
                    return
                yield indices[found[0]], found[1]

    def _task(self, index: int, placement: Placement) -> ModelTask:
        """The task of a model.

        Raises:
            LayoutoptError: an option is wrong.
        """
        settings, given = self._settings[placement.model], self._given
        output = None if given.dry_run else placement.output
        external_data = settings.external_data if output is not None else None
        self._outputs[index] = Outputs(
            placement.model, output, external_data, {}, reads=settings.reads, force=given.force
        )
        arguments = settings.arguments() | {"target": settings.target}
        return ModelTask(
            placement.model,
            output,
            arguments,
            tuple(settings.inputs),
            external_data,
            given.force,
            settings.reads,
            given.cache,
        )

    def _report(self, index: int, outcome: Outcome) -> None:
        """Print the warnings, the summary and the JSON line of a model, or its error."""
        placement = self._placements[index]
        self._outcomes[index] = outcome
        for note in outcome.notes:
            warn(note)
        if outcome.report is None:
            self._record.add_line(self._report_error(index, placement, outcome), placement.model)
            return
        _warn_about(outcome.report, placement.model)
        if self._shows_all:
            self._outputs[index].written = outcome.written
            print_summary(outcome.report, self._outputs[index], is_verbose=True)
        self._record.add_line(outcome.report, placement.model)

    def _report_error(self, index: int, placement: Placement, outcome: Outcome) -> dict[str, object]:
        """Print the error of a model, and return its JSON record."""
        error = outcome.error or LayoutoptError("failed")
        name, has_traceback = path_text(placement.model), self._given.has_traceback
        if has_traceback and outcome.traceback:
            print(outcome.traceback, end="", file=sys.stderr)
        code = report_error(error, has_traceback=has_traceback and not outcome.traceback, where=name)
        self._exit_codes[index] = code
        text = str(LayoutoptError(str(error) or type(error).__name__))
        return {"layoutopt_version": VERSION, "model": name, "error": text, "exit_code": code}

    def _row(self, index: int) -> Row:
        placement, outcome = self._placements[index], self._outcomes[index]
        return Row(path_text(placement.model), outcome.report, outcome.is_cached)


__all__ = ["run_optimize"]
