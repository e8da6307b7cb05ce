"""The formats of one tensor or op: before and after planning, its candidates, and the best plan with each of them."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, TypeAlias

from layoutopt.errors import ArgumentError
from layoutopt.explanation.conversions import alternative
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.remedies import AT_BOUNDARY, NO_SIGNATURE, reason_without_choice
from layoutopt.explanation.schema import ItemExplanation
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import canonical_signature
from layoutopt.planner import ProblemEdit
from layoutopt.planner.propagation import Key
from layoutopt.report.builder import first_output

Candidates: TypeAlias = list[tuple[str, Collection[int]]]
"""Formats as text, each with the options of the op that have them."""

_NEAREST = 3


def find_item(view: PlanView, name: str) -> Value | Op:
    """The tensor of a name, or else the op of a name, in the graph or in a body.

    Raises:
        ArgumentError: there is none.
    """
    values = {value.name: value for value in reversed(view.formulation.tree.values)}
    ops = {op.name: op for op in reversed(list(view.plan.signatures)) if op.name}
    known: dict[str, Value | Op] = {**ops, **values}
    if name in known:
        return known[name]
    nearest = get_close_matches(name, known, _NEAREST, cutoff=0.5)
    hint = f"near it are {', '.join(nearest)}" if nearest else "`layoutopt inspect --all` lists the ops"
    raise ArgumentError("there is no such tensor or node when formats are planned", where=name, hint=hint)


def explain_item(view: PlanView, item: Value | Op, limit: int) -> ItemExplanation:
    """The explanation of a tensor or of an op.

    Args:
        view: the plan.
        item: the tensor or op.
        limit: the largest number of candidates that are priced: the chosen one, then those with the cheapest kernels.
    """
    op, candidates, fields = _tensor(view, item) if isinstance(item, Value) else _op(view, item)
    if op is None or len(candidates) < 2:
        return ItemExplanation(**fields)
    chosen, options = view.choice[op], view.problem.ops[op]
    ranked = [(chosen not in each, min(options[one].price for one in each), text, each) for text, each in candidates]
    ranked.sort(key=lambda each: each[:2])
    found = [
        alternative(view, text, ProblemEdit(allowed_options={op: frozenset(positions)}), seconds)
        for _, seconds, text, positions in ranked[:limit]
    ]
    found[1:] = sorted(found[1:], key=lambda each: (each.extra_seconds is None, each.extra_seconds or 0.0))
    more = len(candidates) - len(found)
    return ItemExplanation(**fields | {"note": ""}, alternatives=tuple(found), more_candidates=more)


def _tensor(view: PlanView, value: Value) -> tuple[int | None, Candidates, dict[str, Any]]:
    """The op that produces a tensor, its candidates, and the fields of the explanation; the note is for no choice."""
    canonical = "" if value.rank is None else value.format_text(Format.canonical(value.rank))
    fields = {"kind": f"tensor {value.type}", "name": value.name, "before": canonical, "after": canonical}
    tensor = view.formulation.index.get(value)
    if tensor is None:
        reason = "a constant: it is packed ahead of time in the format of each reader"
        return None, [], fields | {"note": reason if value.is_constant else "its rank is unknown"}
    writer = view.writers.get(tensor)
    candidates: Candidates = []
    note = AT_BOUNDARY if view.body_of(value) else "an input: --pin gives it another format"
    if writer is not None:
        formats = view.formats_of(writer, tensor, is_read=False).values()
        candidates = [(value.format_text(format), options) for format, options in formats]
        reason = reason_without_choice(view, writer) or NO_SIGNATURE
        note = f"{view.label(writer)} produces one format only: {reason}"
    fields |= {"body": view.body_of(value), "after": view.text(tensor, view.produced(tensor)), "note": note}
    return writer, candidates, fields | {"ops": view.participants(tensor, tensor, view.required(tensor))}


def _op(view: PlanView, op: Op) -> tuple[int, Candidates, dict[str, Any]]:
    """The number of an op, its candidates, and the fields of the explanation; the note is for no choice."""
    number = view.units.index(op)
    groups: dict[tuple[Key, ...], tuple[str, set[int]]] = {}
    values = [*op.present_outputs, *op.present_inputs]
    for position, option in enumerate(view.problem.ops[number]):
        text = _signature_text(op, view.formulation.signatures[op][position])
        keys = tuple(view.key(*each) for each in (*option.operand_states, *option.result_states))
        groups.setdefault(keys, (text, set()))[1].add(position)
    fields = {
        "kind": op.kind,
        "name": op.name or first_output(op),
        "body": view.body_of(values[0]),
        "before": _signature_text(op, canonical_signature(op)),
        "after": _signature_text(op, view.plan.signatures[op]),
        "note": f"it has one signature only: {reason_without_choice(view, number) or NO_SIGNATURE}",
    }
    return number, list(groups.values()), fields


def _signature_text(op: Op, signature: Signature) -> str:
    """The formats of the inputs and outputs of an op with the letters of their axes, without padding states."""
    sides = []
    for values, storages in ((op.inputs, signature.inputs), (op.outputs, signature.outputs)):
        pairs = zip(values, storages, strict=True)
        texts = ("-" if x is None or storage is None else x.format_text(storage.format) for x, storage in pairs)
        sides.append(f"({', '.join(texts)})")
    return " -> ".join(sides)
