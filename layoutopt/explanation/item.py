"""The formats of one tensor or op: before and after planning, its candidates, and the best plan with each of them."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, TypeAlias

from layoutopt.errors import ArgumentError
from layoutopt.explanation.changes import AT_BOUNDARY, reason_without_choice
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.schema import FormatChoice, ItemExplanation
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import canonical_signature
from layoutopt.planner import ProblemEdit
from layoutopt.planner.propagation import Key
from layoutopt.report.builder import first_output

Candidate: TypeAlias = tuple[str, Collection[int]]
"""The formats as text, and the options of the op that have them."""

_NEAREST = 3


def find_item(view: PlanView, name: str) -> Value | Op:
    """The tensor of a name, or else the op of a name, in the graph or in a body.

    Raises:
        ArgumentError: there is none.
    """
    tree = view.formulation.tree
    values = {value.name: value for value in reversed(tree.values)}
    ops = {op.name: op for op in reversed(list(view.plan.signatures)) if op.name}
    if name in values:
        return values[name]
    if name in ops:
        return ops[name]
    known = [*values, *ops]
    nearest = get_close_matches(name, known, _NEAREST, cutoff=0.5)
    hint = f"near it are {', '.join(nearest)}" if nearest else "`layoutopt inspect --all` lists the ops"
    is_original = name in view.original_names
    what = "folded or fused into another op before planning" if is_original else "there is no such tensor or node"
    raise ArgumentError(what, where=name, hint=hint)


def explain_item(view: PlanView, item: Value | Op, limit: int) -> ItemExplanation:
    """The explanation of a tensor or of an op.

    Args:
        view: the plan.
        item: the tensor or op.
        limit: the largest number of candidates that are priced.
    """
    op, candidates, fields = _tensor(view, item) if isinstance(item, Value) else _op(view, item)
    if op is None or len(candidates) < 2:
        return ItemExplanation(**fields)
    chosen = view.choice[op]
    ranked = sorted(candidates, key=lambda each: (chosen not in each[1], _kernel_seconds(view, op, each[1])))
    found = []
    for text, options in ranked[:limit]:
        price = view.price(view.repricer.reprice(ProblemEdit(allowed_options={op: frozenset(options)})))
        seconds = _kernel_seconds(view, op, options)
        found.append(FormatChoice(format=text, is_chosen=chosen in options, kernel_seconds=seconds, **price))
    found.sort(key=lambda each: (not each.is_chosen, each.extra_seconds is None, each.extra_seconds or 0.0))
    return ItemExplanation(**fields | {"note": ""}, choices=tuple(found), more_choices=len(ranked) - len(found))


def _kernel_seconds(view: PlanView, op: int, options: Collection[int]) -> float:
    return min(view.problem.ops[op][option].price for option in options)


def _tensor(view: PlanView, value: Value) -> tuple[int | None, list[Candidate], dict[str, Any]]:
    """The op that produces a tensor, its candidates, and the fields of the explanation; the note is for no choice."""
    canonical = "" if value.rank is None else value.format_text(Format.canonical(value.rank))
    fields = {"kind": "tensor", "name": value.name, "type": str(value.type), "before": canonical, "after": canonical}
    tensor = view.formulation.index.get(value)
    if tensor is None:
        reason = "a constant: it is packed ahead of time in the format of each reader"
        return None, [], fields | {"note": reason if value.is_constant else "its rank is unknown"}
    writer, source = view.writers.get(tensor), view.produced(tensor)
    candidates: list[Candidate] = []
    note = "an input: --pin gives it another format, whose price is among the changes to the model"
    if view.body_of(tensor):
        note = AT_BOUNDARY
    if writer is not None:
        formats = view.formats_of(writer, tensor, is_read=False).values()
        candidates = [(value.format_text(format), options) for format, options in formats]
        reason = reason_without_choice(view, view.units[writer])
        note = f"{view.label(writer, tensor)} produces one format only: {reason}"
    return (
        writer,
        candidates,
        fields
        | {
            "body": view.body_of(tensor),
            "after": view.text(tensor, source),
            "note": note,
            "producer": view.participant(writer, tensor, source, is_read=False),
            "consumers": tuple(
                view.participant(op, tensor, state, is_read=True) for op, state in view.required(tensor)
            ),
        },
    )


def _op(view: PlanView, op: Op) -> tuple[int, list[Candidate], dict[str, Any]]:
    """The number of an op, its candidates, and the fields of the explanation; the note is for no choice."""
    number = view.number[op]
    groups: dict[tuple[Key, ...], tuple[str, set[int]]] = {}
    signatures = view.formulation.signatures[op]
    for position, option in enumerate(view.problem.ops[number]):
        text = _signature_text(op, signatures[position])
        groups.setdefault(view.keys_of(option), (text, set()))[1].add(position)
    fields = {
        "kind": "op",
        "name": op.name or first_output(op),
        "op_type": op.kind,
        "body": view.body_of_op(number),
        "before": _signature_text(op, canonical_signature(op)),
        "after": _signature_text(op, view.plan.signatures[op]),
        "note": f"it has one signature only: {reason_without_choice(view, op)}",
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
