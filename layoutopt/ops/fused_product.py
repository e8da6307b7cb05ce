"""Fused matrix products of onnxruntime: transposed operands, a factor, an activation.

    FusedMatMul   y = alpha * a' b'          ' swaps the last two axes of an operand, if its attribute is set
    FusedGemm     y = activation(alpha * a' b' + beta * c)

Attributes stay as they are, so only canonical matrices are the same op.
"""

from typing_extensions import override

from layoutopt.ir.types import Array, Op, Padding, Signature
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import register
from layoutopt.ops.fused_activation import padding_after_activation
from layoutopt.ops.interfaces.affine import Affine, Side
from layoutopt.ops.matmul import AffineFoldingProduct, ScaleFoldingProduct
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, is_canonical


@register
class FusedMatMul(ScaleFoldingProduct):
    """A product with a factor and transpositions as attributes."""

    ops = ("com.microsoft::FusedMatMul",)

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if op.integer("transBatchA") or op.integer("transBatchB"):
            return Inapplicable("its batch axes are between rows and columns")
        return super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return is_canonical(signature)


@register
class TransposeMatMul(FusedMatMul):
    """The older name of FusedMatMul."""

    ops = ("com.microsoft::TransposeMatMul",)


@register
class FusedGemm(AffineFoldingProduct):
    """FusedGemm: an affine map of its output cannot be folded, because the activation comes first."""

    ops = ("com.microsoft::FusedGemm",)
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY, "the activation of zero and the bias")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The activation of the padding that Gemm leaves."""
        states = super().transfer_padding(op, signature, inputs)
        return None if states is None else (padding_after_activation(op, states[0]),)

    @override
    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        return super().fold_affine(op, affine, side) if side == "in" else None


__all__ = ["FusedGemm", "FusedMatMul", "TransposeMatMul"]
