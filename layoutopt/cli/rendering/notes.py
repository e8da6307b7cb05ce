"""The table of notes: passes and rewrites that did not apply, with reasons."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from layoutopt.cli.rendering.terminal import table
from layoutopt.report.schema import NoteReport


def notes_table(notes: Sequence[NoteReport], *, show_all: bool) -> Table:
    """One row per note, or one row per pass and reason."""
    if show_all:
        return table(["=pass", "where", "reason"], [[note.source, (note.where, "dim"), note.reason] for note in notes])
    counted = Counter((note.source, note.reason) for note in notes).most_common()
    return table(["=pass", ">notes", "reason"], [[source, count, reason] for (source, reason), count in counted])
