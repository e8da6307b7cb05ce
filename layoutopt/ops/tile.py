"""Tile: a tensor repeated along its axes. One of a single element is broadcast; the others have to be whole."""

import numpy as np

from layoutopt.ir.types import Lanes, Op, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, aligned
from layoutopt.ops.base import Builder, register
from layoutopt.ops.elementwise import met
from layoutopt.ops.interfaces.broadcasting import PureBroadcast
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Tile(AxiswiseRule, PureBroadcast):
    """Repeats are an input, and have to be known."""

    family = "rearrangement"
    ops = ("Tile",)
    formats = "any; repeated axes must not be blocked"
    padding = PaddingTransfer(
        Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "elements that broadcast over a block count as finite"
    )

    def repeats(self, op: Op) -> tuple[int, ...] | None:
        """How often the tensor comes along each axis; None if that is computed."""
        array = op.constant(1)
        return None if array is None else tuple(int(number) for number in array)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; the repeats do not take part."""
        x, y = op.inputs[0], op.outputs[0]
        if x is None or x.shape is None or y is None or y.shape is None or self.repeats(op) is None:
            return Inapplicable("the rank or the repeats are unknown")
        if any(before == 1 and isinstance(after, str) for before, after in zip(x.shape, y.shape, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return dict.fromkeys((X, Y), tuple(range(len(x.shape))))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that come once, or of which there is one element."""
        x, repeats = op.inputs[0], self.repeats(op)
        assert x is not None and x.shape is not None and repeats is not None
        return "" if repeats[axis] == 1 or x.shape[axis] == 1 else "a repeated axis cannot be blocked"

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The state of x, and its elements where they are broadcast over a block."""
        return super().transfer_padding(op, signature, (met(op, signature, 0, inputs[0]),))

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Always: the physical axes are repeated."""
        return True

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the arrays; a single element comes as often as a physical axis has elements."""
        x, target, axes, repeats = op.inputs[0], build.output_type(0), self.axes(op), self.repeats(op)
        assert x is not None and x.shape is not None and target is not None and target.shape is not None
        assert repeats is not None and not isinstance(axes, Inapplicable)
        counts: list[int] = []
        for part, extent in zip(build.format(Y).parts, target.shape, strict=True):
            if x.shape[part.axis] == 1:
                assert isinstance(extent, int)
                counts.append(extent)
            else:
                counts.append(1 if part.block else repeats[part.axis])
        numbers = build.constant(np.asarray(counts, dtype=np.int64), "repeats")
        (result,) = build.op(op.op_type, [aligned(build, op, 0, axes), numbers], [target])
        build.set_output(0, result)


__all__ = ["Tile"]
