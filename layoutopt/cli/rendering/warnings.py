"""Warnings of a command: lines on stderr, which `--quiet` does not suppress."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from layoutopt.errors import LayoutoptError

if TYPE_CHECKING:  # --help imports this module, and no large library
    from layoutopt.report.schema import Report

_SHOWN = 5  # repairs


def warnings_of(report: "Report") -> list[str]:
    """What a user of `optimize` has to know about a result besides the summary."""
    verification = report.verification
    if verification.status == "not verified":
        return [f"{report.model}: not verified: {verification.reason}"]
    if verification.outputs_depend_on_inputs is False:
        return [f"{report.model}: the outputs do not depend on the inputs, so the verification says little"]
    return []


def repairs_of(report: "Report") -> list[tuple[str, str]]:
    """The repairs that a report lists, as (name, reason)."""
    return [(note.where, note.reason) for note in report.notes if note.source == "read"]


def warn_of_repairs(repairs: Sequence[tuple[str, str]], model: str = "") -> None:
    """Print one line on stderr for each of the first repairs, and one with the number of the others.

    Args:
        repairs: as (name, reason).
        model: the file, where a command reads several.
    """
    for where, reason in repairs[:_SHOWN]:
        warn(reason, ": ".join(filter(None, (model, where))))
    if len(repairs) > _SHOWN:
        warn(f"{len(repairs) - _SHOWN} more faults were repaired", model)


def warn(text: str, where: str = "") -> None:
    """Print a warning as one line, whatever is in the text."""
    line = str(LayoutoptError(text, where=where))
    is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(f"\033[1;33mwarning:\033[0m {line}" if is_coloured else f"warning: {line}", file=sys.stderr)
