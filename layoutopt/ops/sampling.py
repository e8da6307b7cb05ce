"""Values sampled from feature maps at coordinates of another tensor: grids, regions of interest.

    x (N, C, *image)   grid (N, *points, coordinates)   ->   y (N, C, *points)         GridSample
    x (N, C, H, W)     regions (R, 4 or 5)              ->   y (R, C, *window)         RoiAlign, MaxRoiPool

Any order of axes is legal, and channels may be blocked; padding channels are sampled like others. The coordinates are small and
stay canonical.
"""

from types import MappingProxyType

import numpy as np

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import register
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y, estimated_volume


@register
class Sampling(AxiswiseRule):
    """One sample per channel and coordinate."""

    family = "sampling"
    ops = ("GridSample", "RoiAlign", "MaxRoiPool", "com.microsoft::GridSample", "com.microsoft::CropAndResize")
    formats = "any order; channels may be blocked"
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "cubic interpolation overshoots")
    ranks = MappingProxyType({X: 3, Y: 3})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position, whatever their extents."""
        if rank_of(op.inputs[0]) != rank_of(op.outputs[0]):
            return Inapplicable("the input and the result differ in rank")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why an axis other than that of the channels cannot be blocked: coordinates index it."""
        return "only channels can be blocked" if axis != 1 else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The larger state of x and of the extrapolation value; any after cubic interpolation, which overshoots."""
        if inputs[0] and op.attributes.get("mode") in ("bicubic", "cubic"):
            return (Padding.ANY,)
        outside = state_of(np.asarray(op.attributes.get("extrapolation_value", 0.0)))
        return super().transfer_padding(op, signature, inputs) if outside <= inputs[0] else (outside,)

    def flops(self, op: Op) -> float:
        """Four multiply-adds per element of the result."""
        y = op.outputs[0]
        return 8.0 * estimated_volume(y.shape) if y is not None and y.shape is not None else 0.0


__all__ = ["Sampling"]
