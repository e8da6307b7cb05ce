"""Pooling: a window per channel. Any order of axes is legal, and channels may be blocked."""

from collections.abc import Mapping
from types import MappingProxyType

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import register
from layoutopt.ops.interfaces.axis_letters import AxisLetters, feature_map_letters
from layoutopt.ops.interfaces.channel_permutation import without_permutation
from layoutopt.ops.interfaces.kernel_formats import KernelFormats
from layoutopt.ops.interfaces.resampling import AveragingOp
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, estimated_volume


class SpatialRule(AxiswiseRule, AxisLetters):
    """An op on (N, C, *spatial) that computes every channel in the same way and keeps batch and channels."""

    formats = "any order; batch and channels may be blocked"
    ranks = MappingProxyType({X: 3})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y by position; Inapplicable if a second output is used, which depends on the order of elements."""
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why a spatial axis cannot be blocked: windows cross the boundaries of blocks."""
        return "a spatial axis cannot be blocked" if axis > 1 else ""

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y)


class WindowRule(SpatialRule, KernelFormats, AveragingOp):
    """One number per window and channel."""

    @override
    def shape_edits(self, op: Op, axis: int, extent: int) -> dict[int, dict[int, int]] | None:
        return {} if axis < 2 else None  # no operand contains extents of batch or channels

    @override
    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        return without_permutation(op, formats, [(X, 1), (Y, 1)])

    @override
    def padding_of(self, kind: str) -> PaddingTransfer:
        return PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY) if kind.endswith("LpPool") else PADDING_KEPT


@register
class Pooling(WindowRule):
    """Pooling with a moving window."""

    family = "pooling"
    ops = ("MaxPool", "AveragePool", "LpPool")

    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        """The spatial axes of an average over elements of the image."""
        x = op.inputs[0]
        if op.op_type != "AveragePool" or x is None or x.rank is None or op.integer("ceil_mode"):
            return None
        pads = any(op.integers("pads")) or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        return None if pads and op.integer("count_include_pad") else frozenset(range(2, x.rank))

    def flops(self, op: Op) -> float:
        """One per element of the window, up to the extent of the image: some exporters write larger windows."""
        x, y = op.inputs[0], op.outputs[0]
        image = x.shape[2:] if x is not None and x.shape is not None else ()
        sides = zip(op.integers("kernel_shape"), image, strict=False)
        window = [min(side, dim) if isinstance(dim, int) else side for side, dim in sides]
        return float(estimated_volume(tuple(window))) * (
            estimated_volume(y.shape) if y is not None and y.shape is not None else 0
        )


@register
class GlobalPooling(WindowRule):
    """Pooling with one window, as large as the image."""

    family = "global_pooling"
    ops = ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")

    @override
    def averaged_axes(self, op: Op) -> frozenset[int] | None:
        x = op.inputs[0]
        return frozenset(range(2, x.rank)) if op.op_type == "GlobalAveragePool" and x is not None and x.rank else None

    @override
    def flops(self, op: Op) -> float:
        x = op.operand(Slot("in", 0))
        return float(estimated_volume(x.shape)) if x is not None and x.shape is not None else 0.0
