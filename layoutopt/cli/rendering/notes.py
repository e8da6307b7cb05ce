"""The table of notes: passes and rewrites that did not apply, with reasons."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from layoutopt.cli.rendering.terminal import table, text
from layoutopt.report.schema import NoteReport


def notes_table(notes: Sequence[NoteReport], *, show_all: bool) -> Table:
    """One row per note, or one row per pass and reason."""
    if show_all:
        rows = table("=pass", "where", "reason")
        for note in notes:
            rows.add_row(text(note.source), text(note.where, "dim"), text(note.reason))
        return rows
    rows = table("=pass", ">notes", "reason")
    for (source, reason), count in Counter((note.source, note.reason) for note in notes).most_common():
        rows.add_row(text(source), text(count), text(reason))
    return rows
