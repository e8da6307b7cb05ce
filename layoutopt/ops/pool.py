"""Pooling: a window per channel, so any order of the axes will do, and channels may be blocked."""

from layoutopt.ir.types import Lanes, Op, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import register
from layoutopt.ops.signatures import Inapplicable, X, Y, elements


class Spatial(AxiswiseRule):
    """An op on (N, C, *spatial) that treats every channel alike and keeps batch and channels."""

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; a second output depends on the order of the elements."""
        value = op.inputs[0]
        if value is None or value.rank is None or value.rank < 3:
            return Inapplicable("the input is not known to have spatial axes")
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        return dict.fromkeys((X, Y), tuple(range(value.rank)))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Batch and channels only: windows cross the blocks of a spatial axis."""
        return "a spatial axis cannot be blocked" if axis > 1 else ""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Lanes are channels of their own: their maximum or mean is as large as they are."""
        return (inputs[0],)


@register
class Pooling(Spatial):
    """A window that moves."""

    family = "pooling"
    ops = ("MaxPool", "AveragePool", "LpPool")

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """A p-norm adds up."""
        return (Lanes.ANY if op.op_type == "LpPool" and inputs[0] else inputs[0],)

    def flops(self, op: Op) -> float:
        """One per element of the window."""
        window = op.integers("kernel_shape")
        y = op.outputs[0]
        return float(elements(window)) * (elements(y.shape) if y is not None and y.shape is not None else 0)


@register
class GlobalPooling(Spatial):
    """A window as large as the image."""

    family = "global_pooling"
    ops = ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """A p-norm adds up."""
        return (Lanes.ANY if op.op_type == "GlobalLpPool" and inputs[0] else inputs[0],)

    def flops(self, op: Op) -> float:
        """One per element of the input."""
        x = op.operand(Slot("in", 0))
        return float(elements(x.shape)) if x is not None and x.shape is not None else 0.0
