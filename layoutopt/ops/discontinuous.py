"""Discontinuous ops: a rounding error in an operand can change their result by any amount.

    TopK of nearly equal scores, a comparison with a threshold, NonMaxSuppression, Floor, Cast to integers ...

In the middle of a detector, a rounding error in front of one of them gives other boxes. Verification therefore gives both
models the same operands of these ops (`verification.segments`).
"""

from layoutopt.ir.types import Op, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.shape_of import ShapeOf

_JUMPS = frozenset({"Ceil", "Floor", "Hardmax", "MaxRoiPool", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"})
"""Discontinuous op types with floating-point results; ops from floating point to integers or booleans are discontinuous too."""


def discontinuous_inputs(op: Op) -> list[Value]:
    """The floating-point operands of a discontinuous op; none for other ops and for quantised ops."""
    rule = rule_of(op)
    if isinstance(rule, ShapeOf) or (rule is not None and rule.is_quantised):
        return []
    counts = (value.dtype is not None and not value.dtype.is_float for value in op.outputs if value is not None)
    if op.op_type not in _JUMPS and not any(counts):
        return []
    return [value for value in op.inputs if value is not None and value.dtype is not None and value.dtype.is_float]


__all__ = ["discontinuous_inputs"]
