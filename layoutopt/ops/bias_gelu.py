"""onnxruntime's fused GELU of a sum with a bias along the last axis."""

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops.axiswise import AxiswiseRule
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import Elementwise, broadcast_padding
from layoutopt.ops.operands import chosen_signature
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import is_canonical


def is_last_axis_innermost(format: Format) -> bool:
    """Whether the last axis is the innermost part of a format and not blocked."""
    last = format.parts[-1]
    return last.axis == format.rank - 1 and format.block(last.axis) == 1


@register
class BiasGelu(Elementwise):
    """GELU of x + bias; the bias of FastGelu is optional."""

    ops = ("com.microsoft::BiasGelu", "com.microsoft::FastGelu")
    formats = "any; one kernel where the last axis is the innermost one"
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "a bias over a block is finite; the sum of two finite ones is any"
    )

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer for the states that x and the bias contribute; the sum of two finite states is any."""
        states = tuple(broadcast_padding(op, signature, index, state) for index, state in enumerate(inputs))
        has_one_addend = states.count(Padding.ZERO) >= len(states) - 1
        return super().transfer_padding(op, signature, states) if has_one_addend else (Padding.ANY,)

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether the axis of the bias is innermost, or there is no bias."""
        if len(op.inputs) == 1 or is_canonical(signature):
            return True
        ends = (signature.inputs[0], signature.outputs[0])
        return all(storage is None or is_last_axis_innermost(storage.format) for storage in ends)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            AxiswiseRule.lower(self, op, build)


__all__ = ["BiasGelu", "is_last_axis_innermost"]
