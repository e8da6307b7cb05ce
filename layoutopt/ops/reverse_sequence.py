"""Reversal of sequences of different lengths in one tensor."""

from typing_extensions import override

from layoutopt.ir.types import Op, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y


@register
class ReverseSequence(AxiswiseRule):
    """Batch and time are the first two axes in either order, and outermost; the others may have any format."""

    family = "rearrangement"
    ops = ("ReverseSequence",)
    formats = "batch and time outermost, the others in any format"
    padding = PADDING_KEPT
    is_always_agnostic = True

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        x = op.inputs[0]
        if x is None or x.rank is None or x.rank < 2:
            return Inapplicable("the input is not known to have batch and time")
        return dict.fromkeys((X, Y), tuple(range(x.rank)))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why batch and time cannot be blocked; empty for other axes."""
        return "batch and time cannot be blocked" if axis < 2 else ""

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if batch and time are outermost."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        x = signature.inputs[0]
        if x is None or {part.axis for part in x.format.parts[:2]} != {0, 1}:
            return Inapplicable("batch and time have to be the outermost axes")
        return signature

    @override
    def lower(self, op: Op, build: Builder) -> None:
        positions = {part.axis: position for position, part in enumerate(build.format(X).parts[:2])}
        batch, time = op.integer("batch_axis", 1), op.integer("time_axis", 0)
        lower_directly(op, build, {"batch_axis": positions[batch], "time_axis": positions[time]})


__all__ = ["ReverseSequence"]
