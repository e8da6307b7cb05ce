"""Progress and warnings on stderr."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from layoutopt.cli.entry import print_error
from layoutopt.cli.rendering.terminal import console
from layoutopt.errors import LayoutoptError
from layoutopt.files import path_text
from layoutopt.report.facts import repairs_of, warnings_of
from layoutopt.report.schema import Report

_MAX_WARNINGS = 5  # repairs


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Shows the name of the current stage and the elapsed time, if stderr is a terminal; call it with each stage's name."""

    def __init__(self, is_silent: bool = False) -> None:
        """Create the line; it shows nothing if `is_silent`."""
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        is_disabled = is_silent or not sys.stderr.isatty()
        self._display = Progress(*columns, console=console(sys.stderr), transient=True, disable=is_disabled)
        self._task = self._display.add_task("starting", total=None)

    def __call__(self, stage: str) -> None:
        """Show the name of the stage that begins."""
        self._display.update(self._task, description=stage)

    def __enter__(self) -> "ProgressLine":
        """Show the line."""
        self._display.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the line."""
        self._display.stop()


def warn_of_repairs(repairs: Sequence[tuple[str, str]], model: str = "") -> None:
    """Print one line on stderr for each of the first 5 repairs, and one with the number of further repairs.

    Args:
        repairs: pairs (name, repair).
        model: the file, for a command that reads several files.
    """
    for where, reason in repairs[:_MAX_WARNINGS]:
        warn(reason, ": ".join(filter(None, (model, where))))
    if len(repairs) > _MAX_WARNINGS:
        warn(f"{len(repairs) - _MAX_WARNINGS} more faults were repaired", model)


def warn_of_report(report: Report, model: Path | None = None) -> None:
    """Print warnings about a result; those about repairs name the model if there are several."""
    warn_of_repairs(repairs_of(report.notes), path_text(model) if model is not None else "")
    for text in warnings_of(report):
        warn(text)


def warn(text: str, where: str = "") -> None:
    """Print a warning on stderr as one line; line breaks in the text are replaced."""
    print_error(str(LayoutoptError(text, where=where)), "warning")
