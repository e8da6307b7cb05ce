"""The run of `optimize` for several models: a failure of one model does not stop the others."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from layoutopt.batch.cache import Cache
from layoutopt.batch.run import run_tasks
from layoutopt.batch.task import ModelTask, Outcome
from layoutopt.cli.error_line import report_error
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.json_lines import JsonLines
from layoutopt.cli.files.outputs import Outputs
from layoutopt.cli.files.read_files import read_files
from layoutopt.cli.files.reporting_written_files import reporting_written_files
from layoutopt.cli.optimization.batch_settings import BatchSettings
from layoutopt.cli.optimization.one_model import Request, warn_about
from layoutopt.cli.optimization.placements import Placement
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.cli.rendering.optimize import print_summary
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cli.rendering.several_models import Row, print_table
from layoutopt.cli.rendering.warnings import warn
from layoutopt.errors import LayoutoptError
from layoutopt.files import is_same_file, path_text
from layoutopt.version import VERSION


class Batch:
    """One run for several models.

    Args:
        placements: the models and their outputs.
        settings: the options of a model.
        request: the other options; with `json`, every model is one line of JSON.
        batch: the options that only several models have.
        has_traceback: whether the traceback of an error is printed.

    Raises:
        UsageError: the JSON file is one of the models, or the cache is a folder of results.
        ArgumentError: the cache is a folder with other files.
        OutputError: the JSON file cannot be written.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        settings: Callable[[Path], ModelSettings],
        request: Request,
        batch: BatchSettings,
        *,
        has_traceback: bool,
    ) -> None:
        models, results = ([getattr(each, name) for each in placements] for name in ("model", "output"))
        reads = [*request.reads, *(each for model in models for each in read_files(settings(model).values()))]
        self._lines = JsonLines(request.json, models, results, reads, force=request.force)
        if batch.cache is not None:
            Cache(batch.cache)
            _check_distinct(batch.cache, placements)
        self._placements, self._settings, self._batch = placements, settings, batch
        self._request = replace(request, json=None, is_verbose=request.is_verbose and not self._lines.are_printed)
        self._has_traceback = has_traceback
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
        self._lines.check()
        if not self._request.is_quiet and not self._lines.are_printed:
            with reporting_written_files([*self._written_files(), *self._lines.files]):
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
            progress(f"{self._position(indices[number])}{stage}")

        jobs, cluster = self._batch.jobs, self._batch.cluster
        with closing(run_tasks(list(tasks.values()), jobs=jobs, cluster=cluster, progress=show_stage)) as outcomes:
            while True:
                with ProgressLine(is_silent=self._request.is_quiet) as progress:
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
        settings, force = self._settings(placement.model), self._request.force
        output = None if self._request.dry_run else placement.output
        reads = (*self._request.reads, *read_files(settings.values()))
        self._outputs[index] = Outputs(placement.model, output, None, settings.external_data, reads=reads, force=force)
        return ModelTask(
            placement.model,
            output,
            settings.arguments(),
            tuple(settings.inputs),
            settings.external_data if output is not None else None,
            force,
            reads,
            self._batch.cache,
        )

    def _report(self, index: int, outcome: Outcome) -> None:
        """Print the warnings, the summary and the JSON line of a model, or its error."""
        placement = self._placements[index]
        self._outcomes[index] = outcome
        for note in outcome.notes:
            warn(note)
        if outcome.report is None:
            line = self._report_error(index, placement, outcome)
            self._lines.add(line, placement.model)
            return
        warn_about(outcome.report, placement.model)
        if self._request.is_verbose:
            self._outputs[index].written = outcome.written
            print_summary(outcome.report, self._outputs[index], is_verbose=True)
        self._lines.add(outcome.report, placement.model)

    def _report_error(self, index: int, placement: Placement, outcome: Outcome) -> dict[str, object]:
        """Print the error of a model, and return its JSON record."""
        error = outcome.error or LayoutoptError("failed")
        name = path_text(placement.model)
        if self._has_traceback and outcome.traceback:
            print(outcome.traceback, end="", file=sys.stderr)
        code = report_error(error, has_traceback=self._has_traceback and not outcome.traceback, where=name)
        self._exit_codes[index] = code
        text = str(LayoutoptError(str(error) or type(error).__name__))
        return {"layoutopt_version": VERSION, "model": name, "error": text, "exit_code": code}

    def _row(self, index: int) -> Row:
        placement, outcome = self._placements[index], self._outcomes[index]
        output = "" if self._request.dry_run else path_text(placement.output)
        return Row(path_text(placement.model), output, outcome.report, outcome.is_cached)

    def _written_files(self) -> list[Path]:
        written = [each.written for each in self._outcomes.values() if each.written is not None]
        return [path for each in written for path in each.files]

    def _position(self, index: int) -> str:
        return f"{index + 1}/{len(self._placements)} {path_text(self._placements[index].model)}: "


def _check_distinct(cache: Path, placements: Sequence[Placement]) -> None:
    """Refuse a cache that is a folder of results.

    Raises:
        UsageError: it is.
    """
    if any(is_same_file(cache, each.output.parent) for each in placements):
        hint = "name a folder of its own"
        raise UsageError("that is the folder of the results", where=f"--cache {path_text(cache)}", hint=hint)


__all__ = ["Batch"]
