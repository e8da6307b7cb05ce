"""Warnings of a command: one line each on stderr, also with `--quiet`."""

import os
import sys
from collections.abc import Sequence

from layoutopt.errors import LayoutoptError

_MAX_WARNINGS = 5  # repairs


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
