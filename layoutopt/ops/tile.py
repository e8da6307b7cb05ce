"""Layout rule of Tile, which repeats a tensor along its axes. A repeated axis is not blocked unless it has one element."""

from types import MappingProxyType

import numpy as np

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, aligned_input
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import broadcast_padding
from layoutopt.ops.interfaces.broadcasting import PureBroadcast
from layoutopt.ops.operands import shape_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Tile(AxiswiseRule, PureBroadcast):
    """Repeats a tensor along its axes. The input `repeats` has to be constant."""

    family = "rearrangement"
    ops = ("Tile",)
    formats = "any; repeated axes must not be blocked"
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "elements broadcast over a block count as finite"
    )
    ranks = MappingProxyType({X: 0, Y: 0})
    is_always_agnostic = True

    def repeats(self, op: Op) -> tuple[int, ...] | None:
        """The number of repetitions along each axis; None if it is computed."""
        array = op.constant(1)
        return None if array is None else tuple(int(number) for number in array)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the input `repeats` has no format."""
        if self.repeats(op) is None:
            return Inapplicable("the repeats are computed")
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        if any(before == 1 and not isinstance(after, int) for before, after in zip(x, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return dict.fromkeys((X, Y), tuple(range(len(x))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Repeated axes of more than one element cannot be blocked."""
        repeats = self.repeats(op)
        is_kept = (repeats is not None and repeats[axis] == 1) or shape_of(op.inputs[0])[axis] == 1
        return "" if is_kept else "a repeated axis cannot be blocked"

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The padding state of x; the elements of x count too if they are broadcast over a block."""
        return super().transfer_padding(op, signature, (broadcast_padding(op, signature, 0, inputs[0]),))

    def lower(self, op: Op, build: Builder) -> None:
        """Tile on the physical arrays; an axis of one element is repeated to the extent of each physical axis of y."""
        x, target, axes, repeats = shape_of(op.inputs[0]), build.output_type(0), self.axes(op), self.repeats(op)
        assert repeats is not None and not isinstance(axes, Inapplicable)
        counts: list[int] = []
        for part, extent in zip(build.format(Y).parts, shape_of(target), strict=True):
            if x[part.axis] == 1:
                assert isinstance(extent, int)
                counts.append(extent)
            else:
                counts.append(1 if part.block else repeats[part.axis])
        numbers = build.constant(np.asarray(counts, dtype=np.int64), "repeats")
        lower_directly(op, build, inputs=[aligned_input(build, op, 0, axes), numbers])


__all__ = ["Tile"]
