"""What `inspect` prints."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from layoutopt.cli.inspection import Change, Planned, Recorded
from layoutopt.cli.rendering.optimize import plan_lines, sized, title
from layoutopt.cli.rendering.terminal import facts, line, remark, seconds, section, show, show_json, size, table, text
from layoutopt.report.schema import CastReport, NoteReport, OpReport

_SHORT = 12  # rows of a table without --all
_VECTORS = ("C", "scalar")  # of their formats there is nothing to say


def print_survey(found: Planned | Recorded, everything: bool, as_json: bool) -> None:
    """Print what `inspect` found, op by op if `everything`."""
    if as_json:
        show_json(asdict(found) if isinstance(found, Recorded) else _record(found))
    elif isinstance(found, Recorded):
        _print_recorded(found, everything)
    else:
        _print_planned(found, everything)


def _record(found: Planned) -> dict[str, Any]:
    report = found.report
    return {
        "model": report.model,
        "target": report.target,
        "dialect": report.dialect,
        "improves": report.changed,
        "reason": report.reason,
        "dims": [_fields(each) for each in report.dims],
        "plan": _fields(report.plan),
        "counts": {"before": _fields(report.before), "after": _fields(report.after)},
        "ops": [{"before": _fields(each.before), "after": _fields(each.after)} for each in found.changes],
        "casts": [_fields(cast) for cast in report.casts],
        "notes": [_fields(note) for note in report.notes],
    }


def _fields(record: BaseModel | None) -> Any:
    return json.loads(record.model_dump_json()) if record is not None else None


def _print_planned(found: Planned, everything: bool) -> None:
    report = found.report
    verdict = text("worth rewriting", "green") if report.changed else text(f"to be left alone: {report.reason}")
    show(title(report), facts(("result", verdict), *plan_lines(report)))
    if everything:
        section("ops", "formats and time, before and after", _each_op(found.changes))
    else:
        section("ops", "formats and time, before and after; --all for each", _kinds_of_ops(found.changes))
    if report.casts:
        section("casts", "that remain, and why", _casts(report.casts, None if everything else _SHORT))
    if movers := [each for each in found.changes if each.before is not None and each.before.moves_data]:
        section("transposes", "and reshapes that moved data, and whether they do", _movers(movers, everything))
    if fixed := [each for each in found.changes if each.op.reason and not each.op.moves_data]:
        section("canonical", "ops with no other formats to choose, and why", _without_signature(fixed, everything))
    if report.notes:
        section("notes", "what did not apply, and why", _notes(report.notes, everything))


def _each_op(changes: Sequence[Change]) -> Table:
    rows = table("=op", "name", "formats before", "after", ">time", ">after")
    for each in changes:
        times = (_time(each.before), _time(each.after))
        rows.add_row(text(each.op.kind), text(each.op.name, "dim"), *_formats(each), *times)
    return rows


def _kinds_of_ops(changes: Sequence[Change]) -> Table:
    """Ops of one kind with the same formats in one row, the most expensive first."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.op.kind, *(cell.plain for cell in _formats(each))), []).append(each)
    order = sorted(groups.values(), key=lambda group: -max(_totals(group)))
    rows = table("=op", ">", "formats before", "after", ">time", ">after")
    for group in order[:_SHORT]:
        times = map(seconds, _totals(group))
        rows.add_row(text(group[0].op.kind), text(len(group)), *_formats(group[0]), *times)
    if rest := [each for group in order[_SHORT:] for each in group]:
        rows.add_row("others", text(len(rest)), "", "", *map(seconds, _totals(rest)), style="dim")
    return rows


def _totals(changes: Sequence[Change]) -> tuple[float, float]:
    before = sum(each.before.seconds for each in changes if each.before is not None)
    return before, sum(each.after.seconds for each in changes if each.after is not None)


def _time(op: OpReport | None) -> str:
    return seconds(op.seconds) if op is not None else ""


def _formats(each: Change) -> tuple[Text, Text]:
    before = _sides(each.before) if each.before is not None else ""
    if each.after is None:
        return text(before, "dim"), text("folded", "green")
    after = _sides(each.after)
    return text(before, "dim"), text(after, "dim" if after == before else "cyan")


def _sides(op: OpReport) -> str:
    """Formats in and out."""
    inputs = list(dict.fromkeys(each for each in op.inputs if each is not None and each not in _VECTORS))
    outputs = list(dict.fromkeys(each for each in op.outputs if each is not None))
    return ", ".join(outputs) if inputs in (outputs, []) else f"{', '.join(inputs)} → {', '.join(outputs)}"


def _casts(casts: Sequence[CastReport], limit: int | None) -> Table:
    """All in the order of the graph, or the most expensive first."""
    rows = table("tensor", ">bytes", ">time", "why")
    for each in casts if limit is None else sorted(casts, key=lambda cast: -cast.seconds)[:limit]:
        cost = (size(each.bytes), seconds(each.seconds))
        why = line((each.reason, "dim"), "" if each.moves_data else "; no data moves, only the shape is new")
        rows.add_row(text(each.tensor), *cost, why)
    if limit is not None and (rest := len(casts) - limit) > 0:
        rows.add_row(text(f"and {rest} more", "dim"))
    return rows


def _movers(changes: Sequence[Change], is_whole: bool) -> Table:
    """Each op, or each kind of op and fate."""
    if is_whole:
        rows = table("=op", "name", ">time", ">after", "")
        for each in changes:
            times = (_time(each.before), _time(each.after))
            rows.add_row(text(each.op.kind), text(each.op.name, "dim"), *times, _fate(each))
        return rows
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.op.kind, _fate(each).plain), []).append(each)
    rows = table("=op", ">", ">time", ">after", "")
    for group in groups.values():
        rows.add_row(text(group[0].op.kind), text(len(group)), *map(seconds, _totals(group)), _fate(group[0]))
    return rows


def _fate(each: Change) -> Text:
    if each.after is None:
        return text("folded", "green")
    return text("still moves data", "yellow") if each.after.moves_data else text("names only", "green")


def _without_signature(changes: Sequence[Change], is_whole: bool) -> Table:
    """Each op, or each kind of op and reason."""
    if is_whole:
        rows = table("=op", "name", "why")
        for each in changes:
            rows.add_row(text(each.op.kind), text(each.op.name, "dim"), text(each.op.reason))
        return rows
    rows = table("=op", ">", "why")
    for (kind, reason), count in Counter((each.op.kind, each.op.reason) for each in changes).most_common():
        rows.add_row(text(kind), text(count), text(reason))
    return rows


def _notes(notes: Sequence[NoteReport], is_whole: bool) -> Table:
    """Each, or each reason."""
    if is_whole:
        rows = table("=pass", "where", "why")
        for note in notes:
            rows.add_row(text(note.source), text(note.where, "dim"), text(note.reason))
        return rows
    rows = table("=pass", ">", "why")
    for (source, reason), count in Counter((note.source, note.reason) for note in notes).most_common():
        rows.add_row(text(source), text(count), text(reason))
    return rows


def _print_recorded(found: Recorded, everything: bool) -> None:
    stamp = found.stamp
    casts = sum(call.is_cast for call in found.calls)
    says = sum(bool(call.formats) for call in found.calls) - casts
    intact = text("as it was written", "green")
    rows = [
        ("written by", text(f"layoutopt {stamp['version']}")),
        ("for", text(f"{stamp['target']}, {stamp['mode']}, dialect {stamp['dialect']}")),
        ("state", intact if found.is_intact else text("edited since", "yellow")),
        ("ops", text(f"{len(found.calls)}: {says} with formats, {casts} CastData, the others plain ONNX")),
    ]
    if stamp.get("dims"):
        rows.append(("sizes", text(", ".join(f"{name} {sized(*range)}" for name, range in stamp["dims"].items()))))
    if stamp["pins"]:
        rows.append(("pinned", text(", ".join(f"{name} {format}" for name, format in stamp["pins"].items()))))
    show(line((found.model, "bold")), facts(*rows))
    if everything:
        ops = table("=op", "name", "formats")
        for call in found.calls:
            ops.add_row(text(call.kind), text(call.name, "dim"), text(call.formats, "cyan"))
    else:
        ops = table("=op", ">", "formats")
        counted = Counter((call.kind, call.formats) for call in found.calls)
        for (kind, formats), count in counted.most_common():
            ops.add_row(text(kind), text(count), text(formats, "cyan"))
    section("ops", "", ops)
    remark("Name another --target to plan it anew.")
