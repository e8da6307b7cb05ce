"""Changes outside of the plan that remove a conversion: another kernel, a layout rule, a pin, the interface.

An obstacle is an op at a conversion, or the interface of the model, that does not have the format of the other side at no cost.
A remedy is the price of the plan without the requirement of an obstacle: no plan of the changed model can save more.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from layoutopt.explanation.plan_view import CastInPlan, PlanView
from layoutopt.explanation.schema import Remedy
from layoutopt.formats import Format
from layoutopt.ir.types import Slot
from layoutopt.ops import OPS_WITHOUT_RULE, Inapplicable, rule_of
from layoutopt.ops.ops_without_rule import reason_without_signature
from layoutopt.planner import GRAPH_OUTPUT, ProblemEdit
from layoutopt.report.units import seconds

AT_BOUNDARY = OPS_WITHOUT_RULE["If"]
NO_SIGNATURE = "its layout rule has no signature with another format of its neighbours"
_MAX_READERS = 4  # that are priced one by one

Obstacle: TypeAlias = tuple[str, str, ProblemEdit]
"""The change that removes an obstacle, the reason for the obstacle, and the problem without its requirement."""


def remedies(view: PlanView, cast: CastInPlan) -> Iterator[Remedy]:
    """The changes that remove a cast, each with a bound on the seconds that it saves."""
    value, pins = view.values[cast.tensor], view.request.pins
    if value in pins:
        what = f"no --pin {value.name}={value.format_text(pins[value])}"
        yield Remedy(what=what, reason="the tensor is pinned to it", saved_seconds=None, saved_percent=None)
    for what, reason, edit in (*islice(_of_readers(view, cast), _MAX_READERS), *_of_producer(view, cast)):
        saved = -view.repricer.reprice(edit).least_extra
        if saved > 0:
            yield Remedy(what=what, reason=reason, saved_seconds=saved, saved_percent=view.percent(saved))


def _of_readers(view: PlanView, cast: CastInPlan) -> Iterator[Obstacle]:
    """The readers of a cast that do not have the format in which the tensor is produced."""
    tensor, source = cast.tensor, view.storage(cast.tensor, cast.source).format
    value = view.values[tensor]
    given = value.format_text(source)
    for op, required in cast.readers:
        needed, edit = view.text(tensor, required), ProblemEdit(free_reads=frozenset({(op, tensor)}))
        if op == GRAPH_OUTPUT and view.body_of(value):
            yield f"a result {value.name} of a body in {given}", AT_BOUNDARY, edit
        elif op == GRAPH_OUTPUT:
            what = f"an output {value.name} in {given}: --pin {value.name}={given}"
            yield what, f"the model returns it in {needed}", edit
        elif reason := refusal_of(view, op, tensor, source, is_read=True):
            yield f"{view.label(op)} that reads {given} as fast as {needed}", reason, edit


def _of_producer(view: PlanView, cast: CastInPlan) -> Iterator[Obstacle]:
    """The producer of a cast, if it does not have the format that the readers require."""
    base = view.view_base(cast.tensor, view.storage(cast.tensor, cast.state).format)
    tensor, value = base.tensor, view.values[base.tensor]
    edit = ProblemEdit(free_results=frozenset({cast.tensor}))
    given = view.text(tensor, view.produced(tensor))
    needed = "a format with these bytes" if base.format is None else value.format_text(base.format)
    if tensor not in view.writers:
        is_inner = bool(view.body_of(value))
        pin = "" if is_inner or base.format is None else f": --pin {value.name}={needed}"
        what = f"an input {value.name}{' of a body' if is_inner else ''} in {needed}{pin}"
        yield what, AT_BOUNDARY if is_inner else f"callers pass it in {given}", edit
        return
    op = view.writers[tensor]
    if base.format is None:
        names = ", ".join(view.name(each) for each in base.views)
        reason = f"no format of {value.name} has these bytes in front of {names}"
    else:
        reason = refusal_of(view, op, tensor, base.format, is_read=False)
    if reason:
        yield f"{view.label(op)} that produces {needed} as fast as {given}", reason, edit


# --- reasons -----------------------------------------------------------------------------------------------


def refusal_of(view: PlanView, op: int, tensor: int, format: Format, *, is_read: bool) -> str:
    """The reason why an op does not read or produce a tensor in a format.

    Empty if it has the format at no cost, so that other operands or ops are the reason for a conversion.
    """
    unit, value = view.units[op], view.values[tensor]
    text = value.format_text(format)
    has = view.formats_of(op, tensor, is_read=is_read)
    key = format.key(value.shape or ())
    if key in has:
        least = min(view.problem.ops[op][option].price for option in has[key][1])
        extra = least - view.option(op).price
        return f"with {text} it is estimated {seconds(extra)} slower" if extra > 0 else ""
    if reason := reason_without_choice(view, op):
        return reason
    rule = rule_of(unit)
    values = unit.inputs if is_read else unit.outputs
    slot = next(Slot("in" if is_read else "out", index) for index, each in enumerate(values) if each is value)
    answer = rule.signature(unit, {slot: format}) if rule is not None else None
    if isinstance(answer, Inapplicable):
        return answer.reason
    is_anchor = rule is not None and rule.is_anchor
    return f"{'the target lists no kernel' if is_anchor else 'no candidate'} of {unit.kind} with {text}"


def reason_without_choice(view: PlanView, op: int) -> str:
    """The reason why an op has one signature only; empty if it has several, or none is known."""
    notes = view.plan.notes.get(view.units[op], []) if len(view.problem.ops[op]) == 1 else []
    return reason_without_signature(view.units[op]) or next(iter(notes), "")
