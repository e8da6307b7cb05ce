"""Convolutions of integers: QLinearConv, ConvInteger.

    y = saturate(round(sum (x - x_zero) * (w - w_zero) * x_scale * w_scale / y_scale) + y_zero)

Scales and zero points of filters may be per output channel; they are padded as the bias is. Padding of x is multiplied by
padding of the filter, which is zero: with w_zero = 0 it may be any integer, otherwise x must not be padded.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.types import Attribute, Op, Padding, Signature, Slot
from layoutopt.ops.base import register
from layoutopt.ops.float_conv import PadFoldingConvolution
from layoutopt.ops.interfaces.axis_letters import feature_map_letters
from layoutopt.ops.interfaces.numerics import QuantizedOp
from layoutopt.ops.interfaces.pads import Pads
from layoutopt.ops.operands import shape_of
from layoutopt.ops.padding_state import padded_axes_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.quantization.qdq_ops import is_absent_or_zero
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, estimated_extent, estimated_volume


class IntegerConvolution(PadFoldingConvolution, QuantizedOp):
    """The layout of convolutions of integers.

    Attributes:
        zero_points: the inputs that are the zero points of image and filter.
        result_zero_point: the input that is the zero point of the result, if the result has few bits.
        per_channel: the inputs that may have a number per output channel.
    """

    zero_points: ClassVar[tuple[int, int]]
    result_zero_point: ClassVar[int | None]
    per_channel: ClassVar[tuple[int, ...]]

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature of the convolution; Inapplicable if the image is channels-last already."""
        if op.integer("channels_last"):
            return Inapplicable("it is channels-last already")
        if not set(known) <= set(self.roles(op).values()):
            return Inapplicable("scales, zero points and the bias have no formats")
        return super().complete(op, known)

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """No roles for channels-last ops, so no kernel of a target matches."""
        return {} if op.integer("channels_last") else super().roles(op)

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y, is_channels_last=bool(op.integer("channels_last")))

    def per_channel_inputs(self, op: Op) -> tuple[int, ...]:
        """The bias, and scales and zero points that are vectors."""
        given = (index for index in self.per_channel if index < len(op.inputs))
        return tuple(
            index for index in given if (value := op.inputs[index]) is not None and value.shape not in ((), (1,))
        )

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The zero point of the result, for any padding of the image; zero for sums without a zero point of the filter."""
        if any(state for index, state in enumerate(inputs) if index):
            return None
        has_no_weight_zero = is_absent_or_zero(op, self.zero_points[1])
        filter = padded_axes_of(op.inputs[self.weight], signature[Slot("in", self.weight)])
        if not has_no_weight_zero and 1 in padded_axes_of(op.inputs[0], signature[X]) and self.weight_axes[0] in filter:
            return None
        if self.result_zero_point is not None:
            return (
                Padding.ZERO
                if has_no_weight_zero and is_absent_or_zero(op, self.result_zero_point)
                else Padding.FINITE,
            )
        return (Padding.ZERO if has_no_weight_zero else Padding.ANY,)

    def flops(self, op: Op) -> float:
        """Two per weight and position of the output."""
        w, y = shape_of(op.inputs[self.weight]), shape_of(op.outputs[0])
        channels = y[-1 if op.integer("channels_last") else 1]
        return 2.0 * estimated_volume(w) * estimated_volume(y) / max(estimated_extent(channels), 1)

    def fold_pads(self, op: Op, pads: Pads) -> dict[str, Attribute] | None:
        """The pads, if the zero point of the image is zero, since the op pads with the zero point; else None."""
        return super().fold_pads(op, pads) if is_absent_or_zero(op, self.zero_points[0]) else None


@register
class QLinearConvolution(IntegerConvolution):
    """Integers in and out."""

    ops: ClassVar[tuple[str, ...]] = ("QLinearConv", "com.microsoft::QLinearConv")
    weight = 3
    zero_points = (2, 5)
    result_zero_point = 7
    per_channel = (4, 5, 8)
    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "the zero point; padding of filters must be zero"
    )


@register
class ConvInteger(IntegerConvolution):
    """Sums as integers of 32 bits."""

    ops: ClassVar[tuple[str, ...]] = ("ConvInteger",)
    zero_points = (2, 3)
    result_zero_point = None
    per_channel = (3,)
    padding = PaddingTransfer(
        Padding.ZERO, Padding.ZERO, Padding.ZERO, "any where filters have a zero point; and their padding must be zero"
    )
