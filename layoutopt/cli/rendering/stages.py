"""The output of `optimize --verbose`: the time of every pass, and the notes of passes that did not apply."""

from layoutopt.cli.rendering.notes import notes_table
from layoutopt.cli.rendering.terminal import seconds, section, table, text
from layoutopt.report.schema import Report


def print_stages(report: Report) -> None:
    """Print one row per pass that ran, in order, with its time, and the notes."""
    passes = table("=pass", "=result", ">time")
    for each in report.passes:
        outcome = text("changed", "green") if each.changed else text("nothing to do", "dim")
        passes.add_row(text(each.name), outcome, seconds(each.seconds))
    rest = report.seconds - sum(each.seconds for each in report.passes)
    passes.add_row(text("outside of passes: reading, timing, verifying, measuring", "dim"), "", seconds(max(rest, 0.0)))
    section("passes", "in the order in which they ran", passes)
    if report.notes:
        section("notes", "passes that did not apply, with reasons", notes_table(report.notes, show_all=True))
