"""Progress and warnings on stderr."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from layoutopt.cli.entry import print_error
from layoutopt.cli.rendering.terminal import console
from layoutopt.errors import LayoutoptError
from layoutopt.files import path_text
from layoutopt.report.facts import repairs_of, warnings_of
from layoutopt.report.schema import Report

_MAX_WARNINGS = 5  # repairs


@contextmanager
def progress_line(is_silent: bool = False) -> Iterator[Callable[[str], None]]:
    """Shows the current stage and the elapsed time, if stderr is a terminal; yields a function of the name of each stage."""
    if is_silent or not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as display:
        task = display.add_task("starting", total=None)
        yield lambda stage: display.update(task, description=stage)


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
