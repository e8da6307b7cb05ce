"""The output of `inspect`."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from layoutopt.cli.inspection import OpChange, PlannedModel, StampedModel
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.notes import notes_table
from layoutopt.cli.rendering.optimize import fact_rows, title
from layoutopt.cli.rendering.terminal import (
    Cell,
    footnote,
    key_values,
    seconds,
    section,
    show,
    size,
    styled_line,
    table,
    text,
)
from layoutopt.report.facts import change_text, range_text
from layoutopt.report.schema import CastReport, Report

_MAX_ROWS = 20  # rows of a table without --all
_OMITTED_FORMATS = ("C", "scalar")  # formats that are not printed
_NOT_OF_PLANS = ("result", "speed", "verification", "measured time")  # facts of results
_FIELDS = ("model", "target", "runtime", "dialect", "reason", "dims", "plan", "gain", "facts", "casts", "notes")


def print_inspected(found: PlannedModel | StampedModel, show_all: bool, record: JsonRecord) -> None:
    """Print a planned or stamped model, with one row per op if `show_all`."""
    record.write(asdict(found) if isinstance(found, StampedModel) else _record(found))
    if record.is_printed:
        return
    if isinstance(found, StampedModel):
        _print_stamped(found, show_all)
    else:
        _print_planned(found, show_all)


def _record(found: PlannedModel) -> dict[str, Any]:
    report, with_all_kernels = found.report, found.report_with_all_kernels
    fields = _fields(report)
    return {key: fields[key] for key in _FIELDS} | {
        "improves": report.changed,
        "unlimited_plan": _fields(with_all_kernels.plan) if with_all_kernels is not None else None,
        "counts": {"before": fields["before"], "after": fields["after"]},
        "ops": [{"before": _fields(each.before), "after": _fields(each.after)} for each in found.changes],
    }


def _fields(record: BaseModel | None) -> Any:
    return json.loads(record.model_dump_json()) if record is not None else None


def _print_planned(found: PlannedModel, show_all: bool) -> None:
    report, changes = found.report, found.changes
    verdict = f"would be left unchanged: {report.reason}"
    rows: list[tuple[str, Cell]] = [("result", ("would be rewritten", "green") if report.changed else verdict)]
    rows += fact_rows(each for each in report.facts if each.label not in _NOT_OF_PLANS)
    show(title(report), key_values(*rows, *_plan_with_all_kernels(found.report_with_all_kernels)))
    aside = "formats, estimated time, and why an op has no choice or moves data"
    section("ops", aside if show_all else f"{aside}; --all lists each op", _ops(changes, show_all))
    if report.casts:
        limit = len(report.casts) if show_all else _MAX_ROWS
        section("layout conversions", "those of the plan, with reasons", _conversions(report.casts, limit))
    if report.notes:
        section("notes", "passes that did not apply, with reasons", notes_table(report.notes, show_all=show_all))


def _plan_with_all_kernels(report: Report | None) -> list[tuple[str, Text]]:
    """The estimated time of the plan with all kernels of the target; empty if the runtime has them all."""
    if report is None or report.plan is None or report.plan.targets:
        return []
    change = change_text(report.plan.seconds_before, report.plan.seconds_after)
    aside = ("  if the runtime had all kernels of the target; see --runtime", "dim")
    return [("hardware's optimum", styled_line(change, aside))]


def _ops(changes: Sequence[OpChange], show_all: bool) -> Table:
    """One row per op, or one row for all ops of one type with the same formats and note, the most expensive first."""
    columns = ["formats before", "formats after", "preferred", ">time before", ">time after", "note"]
    groups: dict[tuple[object, ...], list[OpChange]] = {}
    for each in changes:
        key = each.op.name if show_all else ""
        groups.setdefault((each.op.kind, key, *map(str, (*_formats(each), _note(each)))), []).append(each)
    order = list(groups.values()) if show_all else sorted(groups.values(), key=lambda group: -max(_totals(group)))
    limit = len(order) if show_all else _MAX_ROWS
    rows: list[list[Cell]] = [
        [
            group[0].op.kind,
            (group[0].op.name, "dim") if show_all else len(group),
            *_formats(group[0]),
            *map(seconds, _totals(group)),
            _note(group[0]),
        ]
        for group in order[:limit]
    ]
    rest = [each for group in order[limit:] for each in group]
    rows += [["other", len(rest), "", "", "", *map(seconds, _totals(rest))]] if rest else []
    return table(["=op", "name" if show_all else ">ops", *columns], rows)


def _note(each: OpChange) -> Text:
    """The outcome of an op that moved data, or the reason why an op has no choice of formats or moves data."""
    if each.after is not None and each.after.reason:
        return text(each.after.reason, "yellow" if each.after.moves_data else "dim")
    return text("metadata only" if each.before is not None and each.before.moves_data and each.after else "", "green")


def _totals(changes: Sequence[OpChange]) -> tuple[float, float]:
    before = sum(each.before.seconds for each in changes if each.before is not None)
    return before, sum(each.after.seconds for each in changes if each.after is not None)


def _formats(each: OpChange) -> tuple[Text, Text, Text]:
    """The formats before and after planning, and those that the hardware prefers."""
    before, after = (_sides(op.inputs, op.outputs) if op is not None else "" for op in (each.before, each.after))
    preferred = text(_sides(each.op.preferred_inputs, each.op.preferred_outputs), "dim")
    if each.after is None:
        return text(before, "dim"), text("folded", "green"), preferred
    return text(before, "dim"), text(after, "dim" if after == before else "cyan"), preferred


def _sides(operands: Sequence[str | None], results: Sequence[str | None]) -> str:
    """The formats of inputs and outputs."""
    inputs = list(dict.fromkeys(each for each in operands if each is not None and each not in _OMITTED_FORMATS))
    outputs = list(dict.fromkeys(each for each in results if each is not None))
    return ", ".join(outputs) if inputs in (outputs, []) else f"{', '.join(inputs)} → {', '.join(outputs)}"


def _conversions(casts: Sequence[CastReport], limit: int) -> Table:
    """The `limit` most expensive conversions."""
    rows: list[list[Cell]] = []
    for each in sorted(casts, key=lambda cast: -cast.seconds)[:limit]:
        why = styled_line((each.reason, "dim"), "" if each.moves_data else "; moves no data, changes only the shape")
        rows.append([each.tensor, size(each.bytes), seconds(each.seconds), why])
    if (rest := len(casts) - limit) > 0:
        rows.append([(f"and {rest} more", "dim")])
    return table(["tensor", ">bytes", ">time", "reason"], rows)


def _print_stamped(found: StampedModel, show_all: bool) -> None:
    stamp, ops = found.stamp, found.ops
    casts = sum(op.is_cast for op in ops)
    declared = sum(bool(op.formats) for op in ops) - casts
    counts = f"{declared} with formats, {casts} CastData, {len(ops) - declared - casts} standard ONNX"
    intact: Cell = ("unchanged since it was written", "green")
    rows: list[tuple[str, Cell]] = [
        ("written by", f"layoutopt {stamp['version']}"),
        ("target", f"{stamp['target']}, {stamp['mode']}, dialect {stamp['dialect']}"),
        ("state", intact if found.is_intact else ("edited since it was written", "yellow")),
        ("ops", f"{len(ops)}: {counts}"),
    ]
    if stamp.get("dims"):
        rows.append(("sizes", ", ".join(f"{name} {range_text(*range)}" for name, range in stamp["dims"].items())))
    if stamp["pins"]:
        rows.append(("pinned", ", ".join(f"{name} {format}" for name, format in stamp["pins"].items())))
    show(styled_line((found.model, "bold")), key_values(*rows))
    counted = Counter((op.kind, op.formats) for op in ops).most_common()
    shown: list[list[Cell]] = [[kind, count, (formats, "cyan")] for (kind, formats), count in counted]
    if show_all:
        shown = [[op.kind, (op.name, "dim"), (op.formats, "cyan")] for op in ops]
    section("ops", "", table(["=op", "name" if show_all else ">ops", "formats"], shown))
    footnote("Give --target to plan the model again.")
