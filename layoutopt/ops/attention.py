"""The fused attention op of onnxruntime.

    q (B, S, H*D)   k (B, L, H*D)   v (B, L, H*E)   mask (B or 1, H or 1, S, L)   ->   y (B, S, H*E)

Its only signature is the canonical one; the rule declares the number of operations.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.base import LayoutRule, register
from layoutopt.ops.interfaces.axis_letters import AxisLetters, letters_by_rank
from layoutopt.ops.padding_transfer import PADDING_REFUSED
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    Y,
    canonical_signature,
    estimated_extent,
    estimated_volume,
)


@register
class MultiHeadAttention(LayoutRule, AxisLetters):
    """Canonical formats only."""

    family = "attention"
    ops: ClassVar[tuple[str, ...]] = ("com.microsoft::MultiHeadAttention",)
    formats = "canonical"
    padding = PADDING_REFUSED

    @override
    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        if all(format.is_canonical for format in known.values()):
            return canonical_signature(op)
        return Inapplicable("the kernel reads and writes canonical formats only")

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return letters_by_rank(op, dict.fromkeys((*(Slot("in", index) for index in range(3)), Y), ("NSC",)))

    def flops(self, op: Op) -> float:
        """Two per key for every element of q and of y."""
        q, k, y = op.inputs[0], op.inputs[1] if len(op.inputs) > 1 else None, op.outputs[0]
        shapes = [value.shape for value in (q, k, y) if value is not None and value.shape is not None]
        if len(shapes) < 3 or any(len(shape) != 3 for shape in shapes):
            return super().flops(op)
        return 2.0 * estimated_extent(shapes[1][1]) * (estimated_volume(shapes[0]) + estimated_volume(shapes[2]))
