"""Tile: a tensor repeated along its axes. Repeated axes must not be blocked, unless they have one element."""

from types import MappingProxyType

import numpy as np

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, aligned
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import met
from layoutopt.ops.interfaces.broadcasting import PureBroadcast
from layoutopt.ops.operands import shape_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Tile(AxiswiseRule, PureBroadcast):
    """The repeats are an input, and have to be constant."""

    family = "rearrangement"
    ops = ("Tile",)
    formats = "any; repeated axes must not be blocked"
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "elements broadcast over a block count as finite"
    )
    ranks = MappingProxyType({X: 0, Y: 0})
    is_always_agnostic = True

    def repeats(self, op: Op) -> tuple[int, ...] | None:
        """The number of repetitions along each axis; None if computed."""
        array = op.constant(1)
        return None if array is None else tuple(int(number) for number in array)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; the repeats do not take part."""
        if self.repeats(op) is None:
            return Inapplicable("the repeats are computed")
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        if any(before == 1 and not isinstance(after, int) for before, after in zip(x, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return dict.fromkeys((X, Y), tuple(range(len(x))))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that are not repeated, or have one element."""
        repeats = self.repeats(op)
        is_kept = (repeats is not None and repeats[axis] == 1) or shape_of(op.inputs[0])[axis] == 1
        return "" if is_kept else "a repeated axis cannot be blocked"

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of x, and its elements where they are broadcast over a block."""
        return super().transfer_padding(op, signature, (met(op, signature, 0, inputs[0]),))

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the arrays; a single element is repeated as often as a physical axis has elements."""
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
        lower_directly(op, build, inputs=[aligned(build, op, 0, axes), numbers])


__all__ = ["Tile"]
