"""The table at the end of `optimize` for several models."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from layoutopt.cli.rendering.movement import executed, in_file
from layoutopt.cli.rendering.terminal import seconds, show, size, styled_line, table, text
from layoutopt.report.schema import Report


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the table.

    Attributes:
        model: the file.
        output: the file of the result.
        report: the report; None if the model failed.
        is_cached: whether the outcome was in the cache.
    """

    model: str
    output: str
    report: Report | None
    is_cached: bool = False


def print_table(rows: Sequence[Row]) -> None:
    """Print one row per model, and the numbers of models that were rewritten, left unchanged and failed."""
    shown = table("model", "=result", "=Transposes", "=layout conversions", "=bytes moved", "=run", ">", "output")
    for row in rows:
        shown.add_row(text(row.model), *_cells(row))
    show(shown, _totals(rows))


def _cells(row: Row) -> list[Text]:
    report = row.report
    if report is None:
        return [text("failed", "bold red"), *(Text() for _ in range(6))]
    outcome = text("rewritten", "green") if report.changed else text("unchanged")
    before, after = executed(report.moved_before), executed(report.moved_after)
    if before is None or after is None:  # nothing was executed, or only the original
        before, after = in_file(report)
    has_bytes = before.nbytes is not None and after.nbytes is not None
    return [
        outcome,
        text(f"{before.transposes} → {after.transposes}"),
        text(f"{before.conversions} → {after.conversions}"),
        text(f"{size(before.nbytes or 0)} → {size(after.nbytes or 0)}" if has_bytes else ""),
        *_time(report),
        text(row.output, "dim"),
    ]


def _time(report: Report) -> list[Text]:
    """The time of a run before and after, and the speed-up: measured, or estimated with `~`."""
    measured = report.measurement.sizes if report.measurement is not None else []
    if measured and report.changed:
        first = measured[0]
        times = f"{seconds(first.seconds_before)} → {seconds(first.seconds_after)}"
        return [text(times), text(f"{first.speed_up:.2f}x", "bold")]
    found = report.gain or report.plan
    if found is None or not report.changed or not found.seconds_after:
        return [Text(), Text()]
    times = f"~{seconds(found.seconds_before)} → {seconds(found.seconds_after)}"
    return [text(times, "dim"), text(f"~{found.seconds_before / found.seconds_after:.2f}x", "dim")]


def _totals(rows: Sequence[Row]) -> Text:
    changed = sum(row.report is not None and row.report.changed for row in rows)
    failed = sum(row.report is None for row in rows)
    parts = [f"{changed} rewritten", f"{len(rows) - changed - failed} unchanged"]
    counts = styled_line(f"{len(rows)} models: ", ", ".join(parts))
    cached = sum(row.is_cached for row in rows)
    ends = [(f", {failed} failed", "bold red")] if failed else []
    return styled_line(counts, *ends, *([f"; {cached} from the cache"] if cached else []))
