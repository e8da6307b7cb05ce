"""Convolutions as onnxruntime saves them: with the activation behind them and the residual before that in one op.

    y = activation(Conv(x, w, b) + sum)

The sum lies as y does. What the activation is not, linear, the op is not either: nothing behind it can be folded into it.
"""

from dataclasses import replace
from typing import ClassVar

from layoutopt.ir.types import Array, Lanes, Op, Signature, Slot, Storage
from layoutopt.ops.activation import activated
from layoutopt.ops.affine import Affine
from layoutopt.ops.base import Side, register
from layoutopt.ops.conv import Convolution, TransposedConvolution
from layoutopt.ops.passage import Passage
from layoutopt.ops.signatures import Inapplicable, Known, Y

_SUM = Slot("in", 3)


@register
class FusedConvolution(Convolution):
    """FusedConv: as Conv, with a sum in the format of y."""

    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::FusedConv",)
    becomes = Passage(Lanes.ZERO, Lanes.ZERO, None, "as the activation makes of zero and the sum")

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """As for Conv; what is known of the sum is known of y."""
        asked = {slot: format for slot, format in known.items() if slot != _SUM}
        if _SUM in known:
            asked.setdefault(Y, known[_SUM])
        signature = super().complete(op, asked)
        added = op.inputs[3] if len(op.inputs) > 3 else None
        if isinstance(signature, Inapplicable) or added is None:
            return signature
        y, storage = op.outputs[0], signature.outputs[0]
        if y is None or storage is None or added.shape is None or added.shape != y.shape:
            return Inapplicable("the sum is not known to have the shape of the result")
        if _SUM in known and not known[_SUM].fits(added.shape):
            return Inapplicable("the sum has no fixed extent to be blocked")
        if _SUM in known and not known[_SUM].same_bytes(storage.format, added.shape):
            return Inapplicable("the sum has to lie as the result does")
        return replace(signature, inputs=(*signature.inputs[:3], Storage(storage.format)))

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """What the activation makes of zeros, or of the lanes of the sum."""
        states = super().lanes(op, signature, inputs[:3])
        added = inputs[3] if len(inputs) > 3 else Lanes.ZERO
        return None if states is None else (activated(op, max(states[0], added)),)

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """An affine of the input, as for Conv."""
        return super().absorb(op, affine, side) if side == "in" else None

    def mapped_axis(self, op: Op) -> int | None:
        """None: it is no linear map."""
        del op
        return None


@register
class PaddedTransposedConvolution(TransposedConvolution):
    """ConvTransposeWithDynamicPads: the pads are an input before the bias."""

    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::ConvTransposeWithDynamicPads",)

    def along_channels(self, op: Op) -> tuple[int, ...]:
        """The bias."""
        return (3,) if len(op.inputs) > 3 else ()

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """None: its bias is not where that of the others is."""
        del op, affine, side
        return None


__all__ = ["FusedConvolution", "PaddedTransposedConvolution"]
