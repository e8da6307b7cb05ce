"""The reason why an op runs in canonical formats only: it has no layout rule, or its rule has no signature for it."""

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot
from layoutopt.ops.base import OLDEST_OPSET, rule_of
from layoutopt.ops.ops_without_rule import OPS_WITHOUT_RULE
from layoutopt.ops.region_ops import region_rule
from layoutopt.ops.signatures import Inapplicable

NO_RULE = "there is no layout rule for its op type"
_OLD_OPSET = f"opset {OLDEST_OPSET} is the oldest with layout rules"
_CANONICAL_KERNELS = "its op type has kernels for canonical formats only"


def reason_without_signature(op: Op) -> str:
    """The reason why an op has no signature to choose; empty if it has one."""
    rule = rule_of(op)
    if rule is None:
        is_old = not op.domain and op.version < OLDEST_OPSET
        return _OLD_OPSET if is_old else OPS_WITHOUT_RULE.get(op.kind, NO_RULE)
    if rule.formats == "canonical":
        return _CANONICAL_KERNELS
    if region_rule(op) is not None:  # the planner chooses the storages of its boundary values
        return ""
    reason = ""
    for slot in op.slots():
        answer = rule.signature(op, _canonical(op, slot))
        if not isinstance(answer, Inapplicable):
            return ""
        reason = reason or answer.reason
    return reason


def _canonical(op: Op, slot: Slot) -> dict[Slot, Format]:
    value = op.operand(slot)
    return {} if value is None or value.rank is None else {slot: Format.canonical(value.rank)}


__all__ = ["NO_RULE", "reason_without_signature"]
