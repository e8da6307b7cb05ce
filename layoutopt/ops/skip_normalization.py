"""Fused residual sum and normalisation of rows of onnxruntime.

    s = x + skip + bias    y = (s - mean) / sqrt(variance + epsilon) * gamma + beta    or without mean and beta

Rows run along the last axis. The fourth output of the op is s.
"""

from collections.abc import Mapping

from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.bias_gelu import is_last_axis_innermost
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import broadcast_padding
from layoutopt.ops.operands import chosen_signature, rank_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, is_canonical


@register
class SkipNormalization(AxiswiseRule):
    """SkipLayerNormalization and its simplified form."""

    family = "normalization"
    ops = ("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
    formats = "any; rows must not be blocked; one kernel where they are innermost"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY, "the sum as for Add")

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return {**dict.fromkeys(op.slots(), 0), X: 2}

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Operands are aligned with the last axes of x."""
        if any(output is not None for output in op.outputs[1:3]):
            return Inapplicable("the statistics are used")
        rank = rank_of(op.inputs[0])
        return {slot: tuple(range(rank - rank_of(op.operand(slot)), rank)) for slot in op.slots()}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the normalised axis cannot be blocked: the mean would include padding elements."""
        return "the normalised axis cannot be blocked" if axis == rank_of(op.inputs[0]) - 1 else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Finite for y with an epsilon, since padding is normalised in separate rows; for s the state of the sum."""
        addends = [index for index in (0, 1, len(op.inputs) - 1) if index < 2 or self._has_bias(op)]
        states = [broadcast_padding(op, signature, index, inputs[index]) for index in addends]
        added = max(states) if states.count(Padding.ZERO) >= len(states) - 1 else Padding.ANY
        finite = max(inputs) is not Padding.ANY and op.attributes.get("epsilon", 1e-12) != 0
        others = (Padding.ZERO, Padding.ZERO, added) if len(op.outputs) > 3 else ()
        return (Padding.FINITE if finite else Padding.ANY, *others)

    def _has_bias(self, op: Op) -> bool:
        index = 4 if op.op_type == "SkipLayerNormalization" else 3
        return len(op.inputs) > index and op.inputs[index] is not None

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether rows are contiguous, and x and skip have one shape of at most three physical axes."""
        if is_canonical(signature):
            return True
        x, skip = op.inputs[0], op.inputs[1]
        storages = [storage for storage in (*signature.inputs[:2], *signature.outputs) if storage is not None]
        alike = x is not None and skip is not None and x.shape == skip.shape
        return alike and all(len(each.format.parts) <= 3 and is_last_axis_innermost(each.format) for each in storages)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            super().lower(op, build)


__all__ = ["SkipNormalization"]
