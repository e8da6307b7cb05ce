"""The reasons why an op does not have a format, and why it has no choice of formats."""

from typing import Literal

from layoutopt.explanation.plan_view import PlanView
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot
from layoutopt.ops import Inapplicable, rule_of
from layoutopt.ops.ops_without_rule import reason_without_signature
from layoutopt.report.units import seconds


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
    if not isinstance(unit, Op):
        return "rule", f"the boundary of its bodies has no format with the bytes of {text}"
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
