"""Deformable convolution: x (N, C, H, W), filters, computed offsets, bias, mask  ->  y (N, O, H, W).

x and y may have any order of axes; the other operands stay canonical, because offsets and masks group their channels by kernel
element.
"""

from collections.abc import Mapping
from types import MappingProxyType

from typing_extensions import override

from layoutopt.ir.types import Op, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import register
from layoutopt.ops.interfaces.axis_letters import AxisLetters, feature_map_letters
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_transfer import PADDING_REFUSED
from layoutopt.ops.signatures import Inapplicable, X, Y, estimated_extent, estimated_volume


@register
class DeformableConvolution(AxiswiseRule, AxisLetters):
    """DeformConv."""

    family = "deformable_convolution"
    ops = ("DeformConv",)
    formats = "any order; channels may be blocked where they fill their blocks"
    padding = PADDING_REFUSED
    ranks = MappingProxyType({X: 3, Y: 3})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position, whatever their extents."""
        if rank_of(op.inputs[0]) != rank_of(op.outputs[0]):
            return Inapplicable("the input and the result differ in rank")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return "only channels can be blocked" if axis != 1 else ""

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y)

    def flops(self, op: Op) -> float:
        """Ten per weight and position of the output: a multiply-add, and the interpolation of four elements."""
        w, y = op.inputs[1], op.outputs[0]
        if w is None or y is None or w.shape is None or y.shape is None:
            return 0.0
        return 10.0 * estimated_volume(w.shape) * estimated_volume(y.shape) / max(estimated_extent(y.shape[1]), 1)


__all__ = ["DeformableConvolution"]
