"""Warnings of a command: one line each on stderr, also with `--quiet`."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from layoutopt.errors import LayoutoptError

if TYPE_CHECKING:  # --help imports this module, and no large library
    from layoutopt.explanation import Explanation
    from layoutopt.report.schema import Report

_MAX_WARNINGS = 5  # repairs


def warnings_of(report: "Report") -> list[str]:
    """Warnings about the result of `optimize`, besides those about repairs."""
    verification = report.verification
    variants = report.tuning.variants if report.tuning is not None else []
    failed = [
        f"{report.model}: the variant '{each.name}' failed: {each.reason}; please report it with the model"
        for each in variants
        if each.outcome == "failed"
    ]
    if verification.status == "not verified":
        return [f"{report.model}: not verified: {verification.reason}", *failed]
    if verification.outputs_depend_on_inputs is False:
        what = "the outputs do not depend on the inputs, so the verification is weak evidence"
        return [f"{report.model}: {what}", *failed]
    return failed


def repairs_of(report: "Report | Explanation") -> list[tuple[str, str]]:
    """Repairs that the reader made, as (name, repair), from the notes of a report or explanation."""
    return [(note.where, note.reason) for note in report.notes if note.source == "read"]


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


def warn(text: str, where: str = "") -> None:
    """Print a warning on stderr as one line; line breaks in the text are replaced."""
    line = str(LayoutoptError(text, where=where))
    is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(f"\033[1;33mwarning:\033[0m {line}" if is_coloured else f"warning: {line}", file=sys.stderr)
