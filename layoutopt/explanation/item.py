"""The formats of one tensor or op: before and after planning, its candidates, and the best plan with each of them."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from layoutopt.errors import ArgumentError
from layoutopt.explanation.alternatives import extra_of
from layoutopt.explanation.plan_view import PlanView
from layoutopt.explanation.reasons import reason_without_choice
from layoutopt.explanation.schema import FormatChoice, ItemExplanation
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import canonical_signature
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit
from layoutopt.planner.propagation import Key
from layoutopt.report.builder import first_output

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
    return _tensor(view, item, limit) if isinstance(item, Value) else _op(view, item, limit)


def _tensor(view: PlanView, value: Value, limit: int) -> ItemExplanation:
    canonical = "" if value.rank is None else value.format_text(Format.canonical(value.rank))
    tensor = view.formulation.index.get(value)
    if tensor is None:
        reason = "a constant: it is packed ahead of time in the format of each reader"
        return ItemExplanation(
            kind="tensor",
            name=value.name,
            type=str(value.type),
            before=canonical,
            after=canonical,
            note=reason if value.is_constant else "its rank is unknown",
        )
    writer, source = view.writers.get(tensor), view.produced(tensor)
    if writer is None:
        choices, more = _input_choices(view, tensor, limit)
        note = "an input that no op reads in another format"
    else:
        formats = view.formats_of(writer, tensor, is_read=False).values()
        found = [(value.format_text(format), options) for format, options in formats]
        choices, more = _choices(view, writer, found, limit)
        unit = view.units[writer]
        reason = f": {reason_without_choice(view, unit)}" if isinstance(unit, Op) else ""
        note = f"{view.label(writer, tensor)} produces one format only{reason}"
    return ItemExplanation(
        kind="tensor",
        name=value.name,
        body=view.body_of(tensor),
        type=str(value.type),
        before=canonical,
        after=view.text(tensor, source),
        note="" if choices or more else note,
        producer=view.participant(writer, tensor, source, is_read=False),
        consumers=tuple(view.participant(op, tensor, state, is_read=True) for op, state in view.required(tensor)),
        choices=choices,
        more_choices=more,
    )


def _op(view: PlanView, op: Op, limit: int) -> ItemExplanation:
    number = view.number.get(op)
    choices: tuple[FormatChoice, ...] = ()
    more = 0
    if number is None:
        names = ", ".join(value.name for value in (*op.inputs, *op.outputs) if value is not None)
        note = f"the formats of its operands are chosen one by one: explain one of {names}"
    else:
        groups: dict[tuple[Key, ...], tuple[str, set[int]]] = {}
        signatures = view.formulation.signatures[op]
        for position, option in enumerate(view.problem.ops[number]):
            text = _signature_text(op, signatures[position])
            groups.setdefault(view.keys_of(option), (text, set()))[1].add(position)
        choices, more = _choices(view, number, list(groups.values()), limit)
        note = "" if len(groups) > 1 else f"it has one signature only: {reason_without_choice(view, op)}"
    return ItemExplanation(
        kind="op",
        name=op.name or first_output(op),
        op_type=op.kind,
        body="" if number is None else view.body_of_op(number),
        before=_signature_text(op, canonical_signature(op)),
        after=_signature_text(op, view.plan.signatures[op]),
        note=note,
        choices=choices,
        more_choices=more,
    )


def _choices(
    view: PlanView, op: int, candidates: Sequence[tuple[str, Collection[int]]], limit: int
) -> tuple[tuple[FormatChoice, ...], int]:
    """The priced candidates of an op, each given by its options, and the number of those beyond the limit; none of one."""
    if len(candidates) < 2:
        return (), 0

    def kernel_seconds(options: Collection[int]) -> float:
        return min(view.problem.ops[op][option].price for option in options)

    chosen, found = view.choice[op], []
    ranked = sorted(candidates, key=lambda each: (chosen not in each[1], kernel_seconds(each[1])))
    for text, options in ranked[:limit]:
        repriced = view.repricer.reprice(ProblemEdit(allowed_options={op: frozenset(options)}))
        extra, percent = extra_of(view, repriced)
        found.append(
            FormatChoice(
                format=text,
                is_chosen=chosen in options,
                kernel_seconds=kernel_seconds(options),
                extra_seconds=extra,
                extra_percent=percent,
                is_proven=repriced.is_proven,
            )
        )
    return _sorted(found), len(ranked) - len(found)


def _input_choices(view: PlanView, tensor: int, limit: int) -> tuple[tuple[FormatChoice, ...], int]:
    """The formats in which ops may read an input of the model, and which a pin may give it; as for `_choices`."""
    value, whole = view.values[tensor], view.seconds
    chosen = view.storage(tensor, view.produced(tensor)).format
    formats = {chosen.key(value.shape or ()): chosen}
    for op, _ in view.required(tensor):
        if op != GRAPH_OUTPUT and not view.body_of(tensor):
            read = view.formats_of(op, tensor, is_read=True)
            formats = {key: format for key, (format, _) in read.items()} | formats
    if len(formats) < 2:
        return (), 0
    found = []
    for format in sorted(formats.values(), key=lambda each: each is not chosen)[:limit]:
        seconds = whole if format is chosen else view.seconds_with_pins({**view.request.pins, value: format})
        found.append(
            FormatChoice(
                format=value.format_text(format),
                is_chosen=format is chosen,
                kernel_seconds=None,
                extra_seconds=None if seconds is None else seconds - whole,
                extra_percent=None if seconds is None else view.percent(seconds - whole),
                is_proven=seconds is not None,
            )
        )
    return _sorted(found), len(formats) - len(found)


def _sorted(choices: Iterable[FormatChoice]) -> tuple[FormatChoice, ...]:
    return tuple(
        sorted(choices, key=lambda each: (not each.is_chosen, each.extra_seconds is None, each.extra_seconds or 0.0))
    )


def _signature_text(op: Op, signature: Signature) -> str:
    """The formats of the inputs and outputs of an op with the letters of their axes, without padding states."""
    sides = []
    for values, storages in ((op.inputs, signature.inputs), (op.outputs, signature.outputs)):
        pairs = zip(values, storages, strict=True)
        texts = ("-" if x is None or storage is None else x.format_text(storage.format) for x, storage in pairs)
        sides.append(f"({', '.join(texts)})")
    return " -> ".join(sides)
