"""The formats of one tensor or op: before and after planning, its candidates, and the best plan with each of them."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from layoutopt.errors import ArgumentError
from layoutopt.explanation.alternatives import extra_of
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.planned_graph import PlannedGraph
from layoutopt.explanation.reasons import reason_without_choice
from layoutopt.explanation.schema import FormatChoice, ItemExplanation, Participant
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import canonical_signature
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit
from layoutopt.planner.propagation import Key

_NEAREST = 3


def find_item(planned: PlannedGraph, name: str) -> Value | Op:
    """The tensor of a name, or else the op of a name, in the graph or in a body.

    Raises:
        ArgumentError: there is none.
    """
    tree = planned.found.formulation.tree
    values = {value.name: value for value in reversed(tree.values)}
    ops = {op.name: op for op in reversed(list(planned.found.plan.signatures)) if op.name}
    if name in values:
        return values[name]
    if name in ops:
        return ops[name]
    known = [*values, *ops]
    nearest = get_close_matches(name, known, _NEAREST, cutoff=0.5)
    hint = f"near it are {', '.join(nearest)}" if nearest else "`layoutopt inspect --all` lists the ops"
    is_original = name in planned.original_names
    what = "folded or fused into another op before planning" if is_original else "there is no such tensor or node"
    raise ArgumentError(what, where=name, hint=hint)


def explain_item(view: PlanView, item: Value | Op, limit: int) -> ItemExplanation:
    """The explanation of a tensor or of an op.

    Args:
        view: the plan.
        item: the tensor or op.
        limit: the largest number of candidates that are priced.
    """
    return _tensor(view, item, limit) if isinstance(item, Value) else _op(view, item, limit)


def _tensor(view: PlanView, value: Value, limit: int) -> ItemExplanation:
    tensor = view.tensor_of(value)
    canonical = "" if value.rank is None else value.format_text(Format.canonical(value.rank))
    if tensor is None:
        readers = tuple(_constant_readers(view, value))
        reason = "a constant: it is packed ahead of time in the format of each reader"
        return ItemExplanation(
            kind="tensor",
            name=value.name,
            type=str(value.type),
            before=canonical,
            after=", ".join(dict.fromkeys(each.format for each in readers)) or canonical,
            note=reason if value.is_constant else "its rank is unknown",
            consumers=readers,
        )
    writer, source = view.writers.get(tensor), view.produced(tensor)
    choices, count = _interface_choices(view, tensor, limit) if writer is None else _result_choices(view, tensor, limit)
    return ItemExplanation(
        kind="tensor",
        name=value.name,
        body=view.body_of(tensor),
        type=str(value.type),
        before=canonical,
        after=view.text(tensor, source),
        note="" if count > 1 else _why_fixed(view, tensor),
        producer=view.participant(writer, tensor, source, is_read=False),
        consumers=tuple(view.participant(op, tensor, state, is_read=True) for op, state in view.required(tensor)),
        choices=tuple(sorted(choices, key=_by_extra)),
        more_choices=count - len(choices) if count > 1 else 0,
    )


def _constant_readers(view: PlanView, value: Value) -> Iterator[Participant]:
    """The ops that read a constant, with the format of each."""
    tree, signatures = view.formulation.tree, view.formulation.signatures
    for unit, index in tree.readers.get(value, ()) if value.is_constant else ():
        number = view.number[unit]
        storages = [signature.inputs[index] for signature in signatures[unit]]
        texts = ["" if each is None else value.format_text(each.format) for each in storages]
        yield Participant(
            name=view.name(number),
            kind=view.kind(number),
            body=view.body_of_op(number),
            format=texts[view.choice[number]],
            candidates=tuple(dict.fromkeys(texts)),
        )


def _result_choices(view: PlanView, tensor: int, limit: int) -> tuple[list[FormatChoice], int]:
    """The formats in which an op may produce a tensor, at most `limit` of them, and the number of all."""
    writer, value = view.writers[tensor], view.values[tensor]
    chosen, formats = view.key(tensor, view.produced(tensor)), view.formats_of(writer, tensor, is_read=False)
    ranked = sorted(formats.items(), key=lambda each: each[0] != chosen)
    choices = [
        _choice(view, writer, options, value.format_text(format), is_chosen=key == chosen)
        for key, (format, options) in ranked[: limit if len(formats) > 1 else 0]
    ]
    return choices, len(formats)


def _interface_choices(view: PlanView, tensor: int, limit: int) -> tuple[list[FormatChoice], int]:
    """The formats in which ops may read an input of the model, and which a pin may give it; as for `_result_choices`."""
    value = view.values[tensor]
    chosen = view.storage(tensor, view.produced(tensor)).format
    formats = {chosen.key(value.shape or ()): chosen}
    readers = [op for op, _ in view.required(tensor) if op != GRAPH_OUTPUT and not view.body_of(tensor)]
    for op in dict.fromkeys(readers):
        formats |= {
            key: format for key, (format, _) in view.formats_of(op, tensor, is_read=True).items() if key not in formats
        }
    choices = []
    for format in list(formats.values())[: limit if len(formats) > 1 else 0]:
        seconds = view.planned.seconds if format is chosen else view.planned.seconds_with_pin(value, format)
        extra = None if seconds is None else seconds - view.planned.seconds
        choices.append(
            FormatChoice(
                format=value.format_text(format),
                is_chosen=format is chosen,
                kernel_seconds=None,
                extra_seconds=extra,
                extra_percent=None if extra is None else view.percent(extra),
                is_proven=seconds is not None,
            )
        )
    return choices, len(formats)


def _why_fixed(view: PlanView, tensor: int) -> str:
    """The reason why a tensor is produced in one format only."""
    writer = view.writers.get(tensor)
    if writer is None:
        return "an input that no op reads in another format"
    unit = view.units[writer]
    reason = f": {reason_without_choice(view, unit)}" if isinstance(unit, Op) else ""
    return f"{view.label(writer, tensor)} produces one format only{reason}"


def _op(view: PlanView, op: Op, limit: int) -> ItemExplanation:
    number = view.number.get(op)
    signature = view.planned.found.plan.signatures[op]
    before, after = _signature_text(op, canonical_signature(op)), _signature_text(op, signature)
    if number is None:
        note = "the formats of its operands are chosen one by one: explain one of " + ", ".join(_operand_names(op))
        return ItemExplanation(kind="op", name=op.name, op_type=op.kind, before=before, after=after, note=note)
    groups: dict[tuple[Key, ...], tuple[str, set[int]]] = {}
    for position, option in enumerate(view.problem.ops[number]):
        text = _signature_text(op, view.formulation.signatures[op][position])
        groups.setdefault(view.keys_of(option), (text, set()))[1].add(position)
    is_chosen = {key: view.choice[number] in options for key, (_, options) in groups.items()}
    ranked = sorted(groups, key=lambda key: (not is_chosen[key], _kernel_seconds(view, number, groups[key][1])))
    choices = [
        _choice(view, number, frozenset(groups[key][1]), groups[key][0], is_chosen=is_chosen[key])
        for key in ranked[: limit if len(groups) > 1 else 0]
    ]
    return ItemExplanation(
        kind="op",
        name=view.name(number),
        op_type=op.kind,
        body=view.body_of_op(number),
        before=before,
        after=after,
        note="" if len(groups) > 1 else f"it has one signature only: {reason_without_choice(view, op)}",
        choices=tuple(sorted(choices, key=_by_extra)),
        more_choices=0 if len(groups) < 2 else len(groups) - len(choices),
    )


def _choice(view: PlanView, op: int, options: frozenset[int], text: str, *, is_chosen: bool) -> FormatChoice:
    found = view.planned.repricer.reprice(ProblemEdit(allowed_options={op: options}))
    extra, percent = extra_of(view, found)
    return FormatChoice(
        format=text,
        is_chosen=is_chosen,
        kernel_seconds=_kernel_seconds(view, op, options),
        extra_seconds=extra,
        extra_percent=percent,
        is_proven=found.is_proven,
    )


def _kernel_seconds(view: PlanView, op: int, options: Iterable[int]) -> float:
    return min(view.problem.ops[op][option].price for option in options)


def _by_extra(choice: FormatChoice) -> tuple[bool, bool, float]:
    return not choice.is_chosen, choice.extra_seconds is None, choice.extra_seconds or 0.0


def _signature_text(op: Op, signature: Signature) -> str:
    """The formats of the inputs and outputs of an op with the letters of their axes, without padding states."""
    inputs = _texts(op.inputs, signature.inputs)
    return f"({', '.join(inputs)}) -> ({', '.join(_texts(op.outputs, signature.outputs))})"


def _texts(values: Iterable[Value | None], storages: Iterable[Storage | None]) -> Iterator[str]:
    for value, storage in zip(values, storages, strict=True):
        yield "-" if value is None or storage is None else value.format_text(storage.format)


def _operand_names(op: Op) -> list[str]:
    return [value.name for value in (*op.inputs, *op.outputs) if value is not None]


__all__ = ["explain_item", "find_item"]
