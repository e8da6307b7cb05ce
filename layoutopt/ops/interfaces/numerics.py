"""Ops that decide: where their operands hardly differ, their results may differ by more than that.

    TopK of scores that are nearly equal, a comparison with a threshold, NonMaxSuppression, Floor, Cast to integers ...

In a detector they stand in the middle, and one of them decided otherwise gives other boxes. So two spellings of it are compared
with the same decisions (`piecewise`).
"""

from layoutopt.ir.types import Op, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.shape_of import ShapeOf

_JUMPS = frozenset({"Ceil", "Floor", "Hardmax", "MaxRoiPool", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"})
"""Op types that give fractions which jump; those that make integers or booleans of fractions jump too."""


def discontinuous_inputs(op: Op) -> list[Value]:
    """The fractions by which an op decides; none if it does not, or if it is a step of quantisation."""
    rule = rule_of(op)
    if isinstance(rule, ShapeOf) or (rule is not None and rule.is_quantised):
        return []
    counts = (value.dtype is not None and not value.dtype.is_float for value in op.outputs if value is not None)
    if op.op_type not in _JUMPS and not any(counts):
        return []
    return [value for value in op.inputs if value is not None and value.dtype is not None and value.dtype.is_float]


__all__ = ["discontinuous_inputs"]
