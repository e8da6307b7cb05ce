"""Numeric behaviour that verification depends on: saturating activations, quantisation, discontinuity.

    saturation      Sigmoid, Softmax        large differences of the input become small ones of the result
    quantisation    QuantizeLinear          the result is rounded to integers of few bits
    discontinuity   TopK, Floor, Greater    an arbitrarily small difference of the input may change the result

Two versions of a model that differ in rounding are compared with equal results of discontinuous ops (`verification`).
"""

from layoutopt.ir.types import Op, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.interfaces.shape_query import ShapeQuery

_DISCONTINUOUS = frozenset(
    {"Ceil", "Floor", "Hardmax", "MaxRoiPool", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"}
)
"""Op types with discontinuous floating-point results; ops with integer or boolean results are discontinuous too."""


class QuantizedOp:
    """The op converts to or from integers of few bits, or computes on such integers with their scales."""


class SaturatingActivation:
    """An activation function that may be bounded, such as Sigmoid, and so map large differences of its input to small ones.

    Verification compares its input. Clamping in quantisation is not meant.
    """

    def is_saturating_activation(self, op: Op) -> bool:
        """Whether this op saturates; true for all ops of the rule by default."""
        del op
        return True


def is_quantized(op: Op) -> bool:
    """Whether an op converts to or from integers of few bits, or computes on them."""
    return isinstance(rule_of(op), QuantizedOp)


def is_saturating_activation(op: Op) -> bool:
    """Whether an op maps large differences of its input to small ones."""
    rule = rule_of(op)
    return isinstance(rule, SaturatingActivation) and rule.is_saturating_activation(op)


def discontinuous_inputs(op: Op) -> list[Value]:
    """The floating-point inputs of a discontinuous op; none for other ops and for quantisation."""
    if isinstance(rule_of(op), ShapeQuery | QuantizedOp):
        return []
    has_integers = any(
        value.dtype is not None and not value.dtype.is_float for value in op.outputs if value is not None
    )
    if op.op_type not in _DISCONTINUOUS and not has_integers:
        return []
    return [value for value in op.inputs if value is not None and value.dtype is not None and value.dtype.is_float]


__all__ = ["QuantizedOp", "SaturatingActivation", "discontinuous_inputs", "is_quantized", "is_saturating_activation"]
