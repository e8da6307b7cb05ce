"""Some axes cut or padded to given extents around their centres."""

from layoutopt.ir.types import Lanes, Op, Signature
from layoutopt.ops.axis import positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.passage import KEPT
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class CenterCrop(AxiswiseRule):
    """CenterCropPad: the extents are an input, in the order of the attribute `axes`."""

    family = "rearrangement"
    ops = ("CenterCropPad",)
    formats = "any; axes that are cut or padded must not be blocked"
    becomes = KEPT

    def chosen(self, op: Op) -> tuple[int, ...]:
        """The axes whose extents are given; all by default."""
        x = op.inputs[0]
        assert x is not None and x.rank is not None
        return tuple(axis % x.rank for axis in op.integers("axes", tuple(range(x.rank))))

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return Inapplicable("the rank is unknown")
        return dict.fromkeys((X, Y), tuple(range(x.rank)))

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Axes that are left as they are."""
        return "an axis that is cut or padded cannot be blocked" if axis in self.chosen(op) else ""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """They stay as they are, among zeros."""
        return (inputs[0],)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Always: only the numbers of the axes change."""
        return True

    def lower(self, op: Op, build: Builder) -> None:
        """The same extents of the physical axes."""
        places = tuple(positions(build.format(X), (axis,))[0] for axis in self.chosen(op))
        inputs = [build.input(0), build.input(1)]
        (result,) = build.op(op.op_type, inputs, [build.output_type(0)], {**op.attributes, "axes": places})
        build.set_output(0, result)


__all__ = ["CenterCrop"]
