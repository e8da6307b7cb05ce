"""CumulativeOp sums and products along one axis."""

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X


@register
class CumulativeOp(OneAxis):
    """CumSum and CumProd; the axis is an input."""

    family = "running"
    ops = ("CumSum", "CumProd")
    padding = PaddingTransfer(
        Padding.ZERO, Padding.ANY, Padding.ANY, "finite for an exclusive product, which begins with one"
    )

    def axis(self, op: Op) -> int:
        """The axis, counted from the front; it has to be constant."""
        axis = op.constant(1)
        assert axis is not None
        return int(axis.reshape(())) % rank_of(op.inputs[0])

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable if the axis is computed."""
        axis = op.constant(1)
        return Inapplicable("the axis is computed") if axis is None or axis.size != 1 else super().axes(op)

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Finite for zeros under an exclusive product, which begins with one; else the transfer of the family."""
        starts_with_one = op.op_type == "CumProd" and op.integer("exclusive")
        return (
            (Padding.FINITE,) if starts_with_one and not inputs[0] else super().transfer_padding(op, signature, inputs)
        )

    @override
    def lower(self, op: Op, build: Builder) -> None:
        numbers = op.constant(1)
        assert numbers is not None
        (axis,) = positions(build.format(X), (self.axis(op),))
        lower_directly(op, build, inputs=[build.input(0), build.constant(numbers * 0 + axis, "axis")])


__all__ = ["CumulativeOp"]
