"""The run of `optimize` for several models: a failure of one model does not stop the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt.cli.error_line import report_error
from layoutopt.cli.exit_codes import StdoutError
from layoutopt.cli.files.json_lines import JsonLines
from layoutopt.cli.files.reporting_written_files import reporting_written_files
from layoutopt.cli.optimization.one_model import Request, optimize_model
from layoutopt.cli.optimization.placements import Placement
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.cli.rendering.optimize import print_summary
from layoutopt.cli.rendering.several_models import Row, print_table
from layoutopt.errors import LayoutoptError
from layoutopt.files import path_text
from layoutopt.report.schema import Report
from layoutopt.version import VERSION


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one of several models.

    Attributes:
        report: the report; None if the model failed.
        files: the written files.
        exit_code: the exit code of the error; 0 without an error.
        error: the error in one line; empty without an error.
    """

    report: Report | None
    files: Sequence[Path] = ()
    exit_code: int = 0
    error: str = ""


def optimize_models(
    placements: Sequence[Placement],
    settings: Callable[[Path], ModelSettings],
    request: Request,
    *,
    has_traceback: bool,
) -> int:
    """Optimise several models, one after the other; each failure is one line on stderr.

    Args:
        placements: the models and their outputs.
        settings: the options of a model.
        request: the other options; with `json`, every model is one line of JSON.
        has_traceback: whether the traceback of an error is printed.

    Returns:
        The exit code of the first failure; 0 without one.

    Raises:
        UsageError: the JSON file is one of the models.
        OutputError: the JSON file cannot be written.
        StdoutError: stdout cannot be written.
    """
    lines = JsonLines(
        request.json, *(path for each in placements for path in (each.model, each.output)), force=request.force
    )
    request = replace(request, json=None, is_verbose=request.is_verbose and not lines.are_printed)
    outcomes = []
    for number, placement in enumerate(placements, 1):
        position = f"{number}/{len(placements)} {path_text(placement.model)}: "
        outcome = _outcome(placement, settings, request, position, has_traceback=has_traceback)
        outcomes.append(outcome)
        lines.add(outcome.report or _failure(placement, outcome))
    lines.write()
    if not request.is_quiet and not lines.are_printed:
        with reporting_written_files([*(path for each in outcomes for path in each.files), *lines.files]):
            rows = zip(placements, outcomes, strict=True)
            print_table(
                [
                    Row(path_text(place.model), "" if request.dry_run else path_text(place.output), each.report)
                    for place, each in rows
                ]
            )
    return next((each.exit_code for each in outcomes if each.exit_code), 0)


def _outcome(
    placement: Placement,
    settings: Callable[[Path], ModelSettings],
    request: Request,
    position: str,
    *,
    has_traceback: bool,
) -> Outcome:
    """Optimise one model, and print its error."""
    try:
        result, outputs = optimize_model(placement, settings(placement.model), request, position)
        if request.is_verbose:
            print_summary(result, outputs, is_verbose=True)
    except StdoutError:
        raise
    except Exception as error:
        code = report_error(error, has_traceback=has_traceback, where=path_text(placement.model))
        return Outcome(None, exit_code=code, error=str(LayoutoptError(str(error) or type(error).__name__)))
    return Outcome(result.report, outputs.files)


def _failure(placement: Placement, outcome: Outcome) -> dict[str, object]:
    """The JSON record of a model that failed."""
    return {
        "layoutopt_version": VERSION,
        "model": path_text(placement.model),
        "error": outcome.error,
        "exit_code": outcome.exit_code,
    }
