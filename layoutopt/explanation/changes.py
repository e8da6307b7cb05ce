"""Changes outside of the plan that remove conversions: another kernel, a layout rule, a pin, the interface, channels.

An obstacle is an op at a conversion, or the interface of the model, that does not have the format of the other side. The
remedies of a conversion are the prices of its obstacles, each without its requirement. The changes to the model join the
obstacles of all conversions that have one reason, and plan again with other formats of the interface.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import ChangeKind, ChangeMethod, ModelChange
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot, Value
from layoutopt.ops import OPS_WITHOUT_RULE, Inapplicable, rule_of
from layoutopt.ops.ops_without_rule import reason_without_signature
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit
from layoutopt.report.units import seconds

MAX_CHANGES = 5
_MAX_READERS = 4  # that are priced one by one
_NAMED = 3  # ops of a change that are named
AT_BOUNDARY = OPS_WITHOUT_RULE["If"]
_LEAST_SHARE = 1e-6  # of the time of the plan that a change saves


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An op or the interface of the model at a cast, which does not have the format of the other side at no cost.

    Attributes:
        op: the number of the op; None for the interface, and for an op whose other layout rule would not suffice.
        kind: the kind of the change that removes the reason.
        what: the change.
        reason: the reason why it does not have the format.
        edit: the problem without the requirement.
        pin: the input or output of the model, and the format of the other side.
    """

    op: int | None
    kind: ChangeKind
    what: str
    reason: str
    edit: ProblemEdit
    pin: tuple[Value, Format] | None = None


def _of_readers(view: PlanView, cast: CastInPlan) -> Iterator[Obstacle]:
    """The readers of a cast that do not have the format in which the tensor is produced."""
    tensor, source = cast.tensor, view.storage(cast.tensor, cast.source).format
    value = view.values[tensor]
    given = value.format_text(source)
    for op, required in cast.readers:
        needed, edit = view.text(tensor, required), ProblemEdit(free_reads=frozenset({(op, tensor)}))
        if op == GRAPH_OUTPUT and view.body_of(tensor):
            yield Obstacle(None, "rule", f"a result {value.name} of a body in {given}", AT_BOUNDARY, edit)
        elif op == GRAPH_OUTPUT:
            what = f"an output {value.name} in {given}: --pin {value.name}={given}"
            yield Obstacle(None, "interface", what, f"the model returns it in {needed}", edit, (value, source))
        elif refusal := refusal_of(view, op, tensor, source, is_read=True):
            yield Obstacle(
                op, refusal[0], f"{view.label(op, tensor)} that reads {given} as fast as {needed}", refusal[1], edit
            )


def _of_producer(view: PlanView, cast: CastInPlan) -> Iterator[Obstacle]:
    """The producer of a cast, if it does not have the format that the readers require."""
    base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.state).format)
    tensor, value = base.tensor, view.values[base.tensor]
    edit = ProblemEdit(free_results=frozenset({cast.tensor}))
    given = view.text(tensor, view.produced(tensor))
    needed = "a format with these bytes" if base.format is None else value.format_text(base.format)
    if tensor not in view.writers and view.body_of(tensor):
        yield Obstacle(None, "rule", f"an input {value.name} of a body in {needed}", AT_BOUNDARY, edit)
        return
    if tensor not in view.writers:
        pin = None if base.format is None else (value, base.format)
        what = f"an input {value.name} in {needed}{f': --pin {value.name}={needed}' if pin else ''}"
        yield Obstacle(None, "interface", what, f"callers pass it in {given}", edit, pin)
        return
    op = view.writers[tensor]
    what = f"{view.label(op, tensor)} that produces {needed} as fast as {given}"
    if base.format is None:
        names = ", ".join(view.name(each) for each in base.views)
        yield Obstacle(None, "rule", what, f"no format of {value.name} has these bytes in front of {names}", edit)
    elif refusal := refusal_of(view, op, tensor, base.format, is_read=False):
        yield Obstacle(op, refusal[0], what, refusal[1], edit)


# --- one conversion ----------------------------------------------------------------------------------------


def remedies(view: PlanView, cast: CastInPlan) -> Iterator[ModelChange]:
    """The changes that remove a cast, each with a bound on the seconds that it saves."""
    value, pins = view.values[cast.tensor], view.request.pins
    if value in pins:
        what = f"no --pin {value.name}={value.format_text(pins[value])}"
        yield _change(view, "pin", what, "the tensor is pinned to it", None)
    obstacles = [*_of_readers(view, cast)][:_MAX_READERS]
    if view.key(cast.tensor, cast.source) == view.key(cast.tensor, cast.state):
        obstacles = [*_of_padding(view, cast), *obstacles]
    for each in (*obstacles, *_of_producer(view, cast)):
        saved = max(0.0, -view.repricer.reprice(each.edit).least_extra)
        if saved:
            yield _change(view, each.kind, each.what, each.reason, saved)


def _of_padding(view: PlanView, cast: CastInPlan) -> Iterator[Obstacle]:
    """The obstacle of a mask: channel counts that do not fill the blocks."""
    value, format = view.values[cast.tensor], view.storage(cast.tensor, cast.state).format
    for axis, extent in enumerate(value.static_shape or ()):
        block = format.block(axis) if axis in format.blocked_axes else 1
        if extent % block:
            what = f"{-(-extent // block) * block} in place of {extent} channels in axis {axis} of {value.name}"
            reason = f"{extent} do not fill blocks of {block}, and a reader does not accept the elements in the padding"
            edit = ProblemEdit(free_reads=frozenset((op, cast.tensor) for op, _ in cast.readers))
            yield Obstacle(None, "channels", what, reason, edit)


# --- the model ---------------------------------------------------------------------------------------------


def model_changes(view: PlanView, casts: Sequence[CastInPlan], limit: int) -> list[ModelChange]:
    """The changes to the model that save most, the best first.

    Args:
        view: the plan.
        casts: its casts with a cost, the most expensive first.
        limit: the largest number of plans for changes of one kind.
    """
    obstacles = [each for cast in casts for each in (*_of_producer(view, cast), *_of_readers(view, cast))]
    found = [*(_rules(view, obstacles, casts) if limit else ()), *_pins(view, obstacles, limit)]
    saving = [each for each in found if (each.saved_seconds or 0.0) > _LEAST_SHARE * view.seconds]
    return sorted(saving, key=lambda each: -(each.saved_seconds or 0.0))[:MAX_CHANGES]


def _rules(view: PlanView, obstacles: Sequence[Obstacle], casts: Sequence[CastInPlan]) -> Iterator[ModelChange]:
    """Ops at casts whose formats are not those of a neighbour for want of a rule, priced as if they were: a bound."""
    alike: dict[tuple[str, str], dict[int, ProblemEdit]] = {}
    refusing = [
        (each.op, each.reason, each.edit) for each in obstacles if each.op is not None and each.kind != "kernel"
    ]
    for op, reason, edit in (*refusing, *_without_choice(view, casts)):
        edits = alike.setdefault((view.kind(op), reason), {})
        edits[op] = edits[op].joined(edit) if op in edits else edit
    for (kind, reason), edits in alike.items():
        edit = reduce(ProblemEdit.joined, edits.values())
        names = [view.name(op) for op in edits]
        rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        what = f"{kind} in the formats of its neighbours, or replaced: {', '.join(names[:_NAMED])}{rest}"
        yield _change(view, kind_of(reason), what, reason, -view.repricer.reprice(edit).least_extra)


def _without_choice(view: PlanView, casts: Sequence[CastInPlan]) -> Iterator[tuple[int, str, ProblemEdit]]:
    """The ops with one signature next to casts, or separated from them by ops that take the formats of their neighbours."""
    tensors: set[int] = set()
    for cast in casts:
        if cast.tensor not in tensors:
            tensors |= view.neighbourhood(cast.tensor)
    for op, options in enumerate(view.problem.ops):
        unit, option = view.units[op], options[0]
        is_alone = not view.is_anchor(op) and len(set(map(view.keys_of, options))) == 1
        if is_alone and tensors & view.tensors_of(op):
            reads = frozenset((op, tensor) for tensor, _ in option.operand_states)
            results = frozenset(tensor for tensor, _ in option.result_states)
            yield op, reason_without_choice(view, unit), ProblemEdit(free_reads=reads, free_results=results)


def _pins(view: PlanView, obstacles: Sequence[Obstacle], limit: int) -> Iterator[ModelChange]:
    """Pins that are dropped; then inputs and outputs of the model in the formats of their first or last op."""
    request = view.request
    for value, format in list(request.pins.items())[:limit]:
        others = {each: own for each, own in request.pins.items() if each is not value}
        what = f"no --pin {value.name}={value.format_text(format)}"
        yield from _planned_again(view, "pin", what, "the plan has to meet it", others)
    pins: dict[Value, tuple[Format, str]] = {}
    for each in obstacles:
        if each.pin is not None:
            pins.setdefault(each.pin[0], (each.pin[1], each.reason))
    for value, (format, reason) in list(pins.items())[: min(limit, MAX_CHANGES)]:
        what = f"--pin {value.name}={value.format_text(format)}"
        yield from _planned_again(view, "interface", what, reason, {**request.pins, value: format})


def _planned_again(
    view: PlanView, kind: ChangeKind, what: str, reason: str, pins: Mapping[Value, Format]
) -> Iterator[ModelChange]:
    seconds = view.seconds_with_pins(pins)
    if seconds is not None:
        yield _change(view, kind, what, reason, view.seconds - seconds, "planned again")


def _change(
    view: PlanView, kind: ChangeKind, what: str, reason: str, saved: float | None, method: ChangeMethod = "bound"
) -> ModelChange:
    percent = None if saved is None else view.percent(saved)
    return ModelChange(kind=kind, what=what, reason=reason, method=method, saved_seconds=saved, saved_percent=percent)


# --- reasons -----------------------------------------------------------------------------------------------


def refusal_of(
    view: PlanView, op: int, tensor: int, format: Format, *, is_read: bool
) -> tuple[Literal["kernel", "rule", "opset"], str] | None:
    """The reason why an op does not read or produce a tensor in a format, and the kind of change that would let it.

    None if it has the format at no cost, so that other operands or ops are the reason for a conversion.
    """
    unit, value = view.units[op], view.values[tensor]
    text = value.format_text(format)
    has = view.formats_of(op, tensor, is_read=is_read)
    key = format.key(value.shape or ())
    if key in has:
        least = min(view.problem.ops[op][option].price for option in has[key][1])
        extra = least - view.option(op).price
        return ("kernel", f"with {text} it is estimated {seconds(extra)} slower") if extra > 0 else None
    reason = reason_without_signature(unit)
    if reason:
        return kind_of(reason), reason
    notes = view.plan.notes.get(unit)
    if notes and len(view.problem.ops[op]) == 1:
        return "rule", notes[0]
    rule = rule_of(unit)
    values = unit.inputs if is_read else unit.outputs
    slot = next(Slot("in" if is_read else "out", index) for index, each in enumerate(values) if each is value)
    answer = rule.signature(unit, {slot: format}) if rule is not None else None
    if isinstance(answer, Inapplicable):
        return "rule", answer.reason
    if view.is_anchor(op):
        return "kernel", f"the target lists no kernel of {unit.kind} with {text}"
    return "kernel", f"no candidate of {unit.kind} has {text}"


def kind_of(reason: str) -> Literal["rule", "opset"]:
    """The kind of the change that removes a reason of `reason_without_signature` or of a layout rule."""
    return "opset" if reason.startswith("opset ") else "rule"


def reason_without_choice(view: PlanView, op: Op) -> str:
    """The reason why an op has one signature only."""
    notes = view.plan.notes.get(op, [])
    default = "its layout rule has no signature with another format of its neighbours"
    return reason_without_signature(op) or next(iter(notes), default)
