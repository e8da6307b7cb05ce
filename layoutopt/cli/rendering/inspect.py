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
from layoutopt.report.schema import CastReport, OpReport, Report

_MAX_ROWS = 12  # rows of a table without --all
_OMITTED_FORMATS = ("C", "scalar")  # formats that are not printed


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
    report = found.report
    return {
        "model": report.model,
        "target": report.target,
        "runtime": report.runtime,
        "dialect": report.dialect,
        "improves": report.changed,
        "reason": report.reason,
        "dims": [_fields(each) for each in report.dims],
        "plan": _fields(report.plan),
        "gain": _fields(report.gain),
        "unlimited_plan": _fields(found.report_with_all_kernels.plan)
        if found.report_with_all_kernels is not None
        else None,
        "counts": {"before": _fields(report.before), "after": _fields(report.after)},
        "ops": [{"before": _fields(each.before), "after": _fields(each.after)} for each in found.changes],
        "casts": [_fields(cast) for cast in report.casts],
        "notes": [_fields(note) for note in report.notes],
    }


def _fields(record: BaseModel | None) -> Any:
    return json.loads(record.model_dump_json()) if record is not None else None


def _print_planned(found: PlannedModel, show_all: bool) -> None:
    report = found.report
    planned = [each for each in report.facts if each.label not in ("result", "speed", "verification", "measured time")]
    verdict = (
        text("would be rewritten", "green") if report.changed else text(f"would be left unchanged: {report.reason}")
    )
    show(
        title(report),
        key_values(("result", verdict), *fact_rows(planned), *_plan_with_all_kernels(found.report_with_all_kernels)),
    )
    if show_all:
        section("ops", "formats and estimated time, before and after planning", _each_op(found.changes))
    else:
        section(
            "ops",
            "formats and estimated time, before and after planning; --all lists each op",
            _op_types(found.changes),
        )
    if report.casts:
        section(
            "layout conversions",
            "those of the plan, with reasons",
            _conversions(report.casts, None if show_all else _MAX_ROWS),
        )
    if movements := [each for each in found.changes if each.before is not None and each.before.moves_data]:
        section(
            "data movement", "ops that moved data before planning, and their outcome", _movements(movements, show_all)
        )
    if fixed := [each for each in found.changes if each.op.reason and not each.op.moves_data]:
        section("canonical formats", "ops without a choice of formats, with reasons", _without_choice(fixed, show_all))
    if report.notes:
        section("notes", "passes that did not apply, with reasons", notes_table(report.notes, show_all=show_all))


def _plan_with_all_kernels(report: Report | None) -> list[tuple[str, Text]]:
    """The estimated time of the plan with all kernels of the target; empty if the runtime has them all."""
    if report is None or report.plan is None or report.plan.targets:
        return []
    change = change_text(report.plan.seconds_before, report.plan.seconds_after)
    aside = ("  if the runtime had all kernels of the target; see --runtime", "dim")
    return [("hardware's optimum", styled_line(change, aside))]


def _each_op(changes: Sequence[OpChange]) -> Table:
    rows = table("=op", "name", "formats before", "formats after", "preferred", ">time before", ">time after")
    for each in changes:
        times = (_time(each.before), _time(each.after))
        rows.add_row(text(each.op.kind), text(each.op.name, "dim"), *_formats(each), *times)
    return rows


def _op_types(changes: Sequence[OpChange]) -> Table:
    """One row for all ops of one type with the same formats, the most expensive first."""
    groups: dict[tuple[str, ...], list[OpChange]] = {}
    for each in changes:
        groups.setdefault((each.op.kind, *(cell.plain for cell in _formats(each))), []).append(each)
    order = sorted(groups.values(), key=lambda group: -max(_totals(group)))
    rows = table("=op type", ">ops", "formats before", "formats after", "preferred", ">time before", ">time after")
    for group in order[:_MAX_ROWS]:
        times = map(seconds, _totals(group))
        rows.add_row(text(group[0].op.kind), text(len(group)), *_formats(group[0]), *times)
    if rest := [each for group in order[_MAX_ROWS:] for each in group]:
        rows.add_row("other", text(len(rest)), "", "", "", *map(seconds, _totals(rest)), style="dim")
    return rows


def _totals(changes: Sequence[OpChange]) -> tuple[float, float]:
    before = sum(each.before.seconds for each in changes if each.before is not None)
    return before, sum(each.after.seconds for each in changes if each.after is not None)


def _time(op: OpReport | None) -> str:
    return seconds(op.seconds) if op is not None else ""


def _formats(each: OpChange) -> tuple[Text, Text, Text]:
    """The formats before and after planning, and those that the hardware prefers."""
    before = _sides(each.before.inputs, each.before.outputs) if each.before is not None else ""
    preferred = text(_sides(each.op.preferred_inputs, each.op.preferred_outputs), "dim")
    if each.after is None:
        return text(before, "dim"), text("folded", "green"), preferred
    after = _sides(each.after.inputs, each.after.outputs)
    return text(before, "dim"), text(after, "dim" if after == before else "cyan"), preferred


def _sides(operands: Sequence[str | None], results: Sequence[str | None]) -> str:
    """The formats of inputs and outputs."""
    inputs = list(dict.fromkeys(each for each in operands if each is not None and each not in _OMITTED_FORMATS))
    outputs = list(dict.fromkeys(each for each in results if each is not None))
    return ", ".join(outputs) if inputs in (outputs, []) else f"{', '.join(inputs)} → {', '.join(outputs)}"


def _conversions(casts: Sequence[CastReport], limit: int | None) -> Table:
    """All conversions in graph order, or the `limit` most expensive."""
    rows = table("tensor", ">bytes", ">time", "reason")
    for each in casts if limit is None else sorted(casts, key=lambda cast: -cast.seconds)[:limit]:
        cost = (size(each.bytes), seconds(each.seconds))
        why = styled_line((each.reason, "dim"), "" if each.moves_data else "; moves no data, changes only the shape")
        rows.add_row(text(each.tensor), *cost, why)
    if limit is not None and (rest := len(casts) - limit) > 0:
        rows.add_row(text(f"and {rest} more", "dim"))
    return rows


def _movements(changes: Sequence[OpChange], show_all: bool) -> Table:
    """One row per op, or one row per op type and outcome."""
    if show_all:
        rows = table("=op", "name", ">time before", ">time after", "outcome")
        for each in changes:
            times = (_time(each.before), _time(each.after))
            rows.add_row(text(each.op.kind), text(each.op.name, "dim"), *times, _outcome(each))
        return rows
    groups: dict[tuple[str, str], list[OpChange]] = {}
    for each in changes:
        groups.setdefault((each.op.kind, _outcome(each).plain), []).append(each)
    rows = table("=op type", ">ops", ">time before", ">time after", "outcome")
    for group in groups.values():
        rows.add_row(text(group[0].op.kind), text(len(group)), *map(seconds, _totals(group)), _outcome(group[0]))
    return rows


def _outcome(each: OpChange) -> Text:
    if each.after is None:
        return text("folded", "green")
    return text("still moves data", "yellow") if each.after.moves_data else text("metadata only", "green")


def _without_choice(changes: Sequence[OpChange], show_all: bool) -> Table:
    """One row per op, or one row per op type and reason."""
    if show_all:
        rows = table("=op", "name", "reason")
        for each in changes:
            rows.add_row(text(each.op.kind), text(each.op.name, "dim"), text(each.op.reason))
        return rows
    rows = table("=op type", ">ops", "reason")
    for (kind, reason), count in Counter((each.op.kind, each.op.reason) for each in changes).most_common():
        rows.add_row(text(kind), text(count), text(reason))
    return rows


def _print_stamped(found: StampedModel, show_all: bool) -> None:
    stamp = found.stamp
    casts = sum(op.is_cast for op in found.ops)
    declared = sum(bool(op.formats) for op in found.ops) - casts
    standard = len(found.ops) - declared - casts
    intact = text("unchanged since it was written", "green")
    rows = [
        ("written by", text(f"layoutopt {stamp['version']}")),
        ("target", text(f"{stamp['target']}, {stamp['mode']}, dialect {stamp['dialect']}")),
        ("state", intact if found.is_intact else text("edited since it was written", "yellow")),
        (
            "ops",
            text(f"{len(found.ops)}: {declared} with formats, {casts} CastData, {standard} standard ONNX"),
        ),
    ]
    if stamp.get("dims"):
        rows.append(("sizes", text(", ".join(f"{name} {range_text(*range)}" for name, range in stamp["dims"].items()))))
    if stamp["pins"]:
        rows.append(("pinned", text(", ".join(f"{name} {format}" for name, format in stamp["pins"].items()))))
    show(styled_line((found.model, "bold")), key_values(*rows))
    if show_all:
        ops = table("=op", "name", "formats")
        for op in found.ops:
            ops.add_row(text(op.kind), text(op.name, "dim"), text(op.formats, "cyan"))
    else:
        ops = table("=op type", ">ops", "formats")
        counted = Counter((op.kind, op.formats) for op in found.ops)
        for (kind, formats), count in counted.most_common():
            ops.add_row(text(kind), text(count), text(formats, "cyan"))
    section("ops", "", ops)
    footnote("Give --target to plan the model again.")
