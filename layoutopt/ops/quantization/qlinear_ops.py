"""Quantised (QLinear) ops of com.microsoft: element-wise, along an axis, pooling; and NhwcMaxPool.

In the inputs of a QLinear op, the scale and zero point of each quantised tensor are scalars, which have no format. Padding
elements are integers of 8 bits, so they are always finite.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature, Slot, Value
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import Elementwise
from layoutopt.ops.interfaces.axis_letters import feature_map_letters
from layoutopt.ops.interfaces.numerics import QuantizedOp, SaturatingActivation
from layoutopt.ops.operands import rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.pool import SpatialRule
from layoutopt.ops.quantization.qdq_ops import is_absent_or_zero
from layoutopt.ops.signatures import Inapplicable, X, Y, estimated_volume, is_canonical


@register
class IntegerElementwise(Elementwise, QuantizedOp):
    """Element-wise ops on one or two quantised tensors, with broadcasting; QLinearWhere also on a boolean condition."""

    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "zero if the op maps zero to zero and all zero points are zero"
    )
    _TENSOR_OPERANDS: ClassVar[dict[str, tuple[int, ...]]] = {
        "QLinearAdd": (0, 3),
        "QLinearMul": (0, 3),
        "QLinearWhere": (0, 1, 4),
        "QLinearSigmoid": (0,),
        "QLinearLeakyRelu": (0,),
    }
    _ZERO_PRESERVING: ClassVar[tuple[str, ...]] = ("QLinearAdd", "QLinearMul", "QLinearLeakyRelu")
    ops: ClassVar[tuple[str, ...]] = tuple(f"com.microsoft::{kind}" for kind in _TENSOR_OPERANDS)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        axes = super().axes(op)
        tensors = {Slot("in", index) for index in self._TENSOR_OPERANDS[op.op_type]}
        return (
            axes
            if isinstance(axes, Inapplicable)
            else {slot: axes[slot] for slot in axes if slot in tensors or slot == Y}
        )

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Zero if the five conditions below hold; else finite.

        The op maps zero to zero, all tensors have the shape of the result, none is constant, all padding is zero, and all zero
        points are zero. The rule uses no padding of constants, whose state in `inputs` is zero whatever their format is.
        """
        y = op.outputs[0]
        tensors = [op.inputs[index] for index in self._TENSOR_OPERANDS[op.op_type]]
        have_result_shape = all(value is not None and y is not None and value.shape == y.shape for value in tensors)
        none_constant = all(value is not None and not value.is_constant for value in tensors)
        zero_points_are_zero = all(
            is_absent_or_zero(op, index) for index, value in enumerate(op.inputs) if _is_zero_point(value)
        )
        zero_padding = all(state is Padding.ZERO for state in inputs)
        keeps_zero = (
            op.op_type in self._ZERO_PRESERVING
            and have_result_shape
            and none_constant
            and zero_points_are_zero
            and zero_padding
        )
        return (Padding.ZERO if keeps_zero else Padding.FINITE,)


def _is_zero_point(value: Value | None) -> bool:
    """Whether an operand is a zero point, which is a single integer; scales are floating-point numbers."""
    return value is not None and value.shape in ((), (1,)) and value.dtype is not None and not value.dtype.is_float


@register
class IntegerConcat(OneAxis, QuantizedOp):
    """Concatenation of inputs with a scale and zero point each."""

    family = "rearrangement"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearConcat",)

    @override
    def axis(self, op: Op) -> int:
        return op.integer("axis") % rank_of(op.outputs[0])

    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        """The result and the concatenated inputs, each of which is followed by its scale and zero point."""
        return {Y: 1, **dict.fromkeys((Slot("in", index) for index in range(2, len(op.inputs), 3)), 0)}

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return dict.fromkeys(self.minimum_ranks(op), tuple(range(rank_of(op.outputs[0]))))

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(Y), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


@register
class IntegerSoftmax(OneAxis, QuantizedOp, SaturatingActivation):
    """Quantised Softmax; attribute `opset` is the opset whose definition of Softmax it has."""

    family = "softmax"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearSoftmax",)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable before opset 13 if axes behind the op's axis have several elements."""
        dims_behind = shape_of(op.inputs[0])[self.axis(op) + 1 :]
        is_flattened = op.integer("opset", 13) < 13 and any(dim != 1 for dim in dims_behind)
        return Inapplicable("before opset 13 it normalises over several axes") if is_flattened else super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return op.integer("opset", 13) >= 13 or is_canonical(signature)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if op.integer("opset", 13) >= 13:
            super().lower(op, build)
        else:
            AxiswiseRule.lower(self, op, build)


class ChannelsFirstOrLast(SpatialRule, QuantizedOp):
    """An op on images in the order (N, C, *spatial) or (N, *spatial, C)."""

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """No roles for channels-last ops, so no kernel of a target matches."""
        return {} if self.is_channels_last(op) else {"x": X, "y": Y}

    def spatial_axes(self, op: Op) -> range:
        """The spatial axes."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return range(1, (rank or 2) - 1) if self.is_channels_last(op) else range(2, rank or 2)

    def is_channels_last(self, op: Op) -> bool:
        """Whether channels are the last axis."""
        return bool(op.integer("channels_last"))

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y, is_channels_last=self.is_channels_last(op))

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return "a spatial axis cannot be blocked" if axis in self.spatial_axes(op) else ""


@register
class IntegerPooling(ChannelsFirstOrLast):
    """Average pooling of integers, with a quantised result."""

    family = "pooling"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool")

    def flops(self, op: Op) -> float:
        """One per element of the input; overlapping windows read more, which costs little."""
        x = op.inputs[0]
        return float(estimated_volume(x.shape)) if x is not None and x.shape is not None else 0.0


@register
class MaxPoolingChannelsLast(ChannelsFirstOrLast):
    """The largest integer of a window, on (N, *spatial, C)."""

    family = "pooling"
    padding = PADDING_KEPT
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::NhwcMaxPool",)

    @override
    def is_channels_last(self, op: Op) -> bool:
        return True
