"""Fused convolutions of onnxruntime: a convolution with a residual and an activation.

    y = activation(Conv(x, w, b) + sum)

The sum has the format of y. The activation is not linear, so nothing behind the op can be folded into it.
"""

from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.types import Array, Op, Padding, Signature, Slot, Storage
from layoutopt.ops.base import register
from layoutopt.ops.conv import TransposedConvolution
from layoutopt.ops.float_conv import AffineFoldingConvolution, PadFoldingConvolution
from layoutopt.ops.fused_activation import padding_after_activation
from layoutopt.ops.interfaces.affine import Affine, Side
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, Y

_SUM = Slot("in", 3)


@register
class FusedConvolution(PadFoldingConvolution, AffineFoldingConvolution):
    """FusedConv: a convolution whose sum has the format of y."""

    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::FusedConv",)
    padding = PaddingTransfer(Padding.ZERO, Padding.ZERO, None, "the activation of zero and the sum")

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature of the convolution, with the format of y for the sum; a known format of the sum is that of y."""
        others = {slot: format for slot, format in known.items() if slot != _SUM}
        if _SUM in known:
            others.setdefault(Y, known[_SUM])
        signature = super().complete(op, others)
        added = op.inputs[3] if len(op.inputs) > 3 else None
        if isinstance(signature, Inapplicable) or added is None:
            return signature
        y, storage = op.outputs[0], signature.outputs[0]
        if y is None or storage is None or added.shape is None or added.shape != y.shape:
            return Inapplicable("the shape of the sum may differ from that of the result")
        if _SUM in known and not known[_SUM].fits(added.shape):
            return Inapplicable("the sum has no fixed extent to be blocked")
        if _SUM in known and not known[_SUM].same_bytes(storage.format, added.shape):
            return Inapplicable("the sum must have the format of the result")
        return replace(signature, inputs=(*signature.inputs[:3], Storage(storage.format)))

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The activation of zero, or of the padding of the sum."""
        states = super().transfer_padding(op, signature, inputs[:3])
        added = inputs[3] if len(inputs) > 3 else Padding.ZERO
        return None if states is None else (padding_after_activation(op, max(states[0], added)),)

    @override
    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        return super().fold_affine(op, affine, side) if side == "in" else None


@register
class PaddedTransposedConvolution(TransposedConvolution):
    """ConvTransposeWithDynamicPads: the pads are an input before the bias."""

    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::ConvTransposeWithDynamicPads",)

    @override
    def per_channel_inputs(self, op: Op) -> tuple[int, ...]:
        return (3,) if len(op.inputs) > 3 else ()


__all__ = ["FusedConvolution", "PaddedTransposedConvolution"]
