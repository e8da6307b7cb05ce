"""One-hot rows of indices: the result has one axis more, which must not be blocked."""

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axis import positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class OneHot(AxiswiseRule):
    """indices, depth, (off, on)  ->  indices with a new axis of extent depth."""

    family = "one_hot"
    ops = ("OneHot",)
    formats = "any; the new axis must not be blocked"
    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "zero if the values are; floating-point indices must be finite"
    )
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The new axis of the result."""
        return op.integer("axis", -1) % (rank_of(op.inputs[0]) + 1)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """All axes of the result are iteration axes; the indices have all but the new one."""
        all_axes = tuple(range(rank_of(op.inputs[0]) + 1))
        return {X: tuple(axis for axis in all_axes if axis != self.axis(op)), Y: all_axes}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the new axis cannot be blocked: its extent is the operand `depth`."""
        return "the new axis cannot be blocked" if axis == self.axis(op) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of the two values, if they are constants; a floating-point index that may be NaN is refused."""
        x, values = op.inputs[0], op.constant(2)
        if inputs[0] is Padding.ANY and (x is None or x.dtype is None or x.dtype.is_float):
            return None
        return super().transfer_padding(op, signature, inputs) if values is None else (state_of(values),)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(Y), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


__all__ = ["OneHot"]
