"""A sum and the normalisation of its rows in one op, as onnxruntime saves them.

    s = x + skip + bias    y = (s - mean) / sqrt(variance + epsilon) * gamma + beta    or without mean and beta

Rows run along the last axis. The op may give s as well, as its fourth output.
"""

from layoutopt.ir.types import Lanes, Op, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.bias_gelu import ends_with_last
from layoutopt.ops.elementwise import met
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, is_canonical


@register
class SkipNormalization(AxiswiseRule):
    """SkipLayerNormalization and its simplified form."""

    family = "normalization"
    ops = ("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
    formats = "any; rows must not be blocked; one kernel where they are innermost"
    padding = PaddingTransfer(Lanes.FINITE, Lanes.FINITE, Lanes.ANY, "those of the sum as of Add")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Operands are aligned with the last axes of x."""
        x = op.inputs[0]
        if x is None or x.rank is None or x.rank < 2:
            return Inapplicable("the input is not known to have rows")
        if any(output is not None for output in op.outputs[1:3]):
            return Inapplicable("the statistics are used")
        axes: dict[Slot, tuple[int, ...]] = {}
        for slot in op.slots():
            value = op.operand(slot)
            if value is None or value.rank is None:
                return Inapplicable(f"the rank of {slot} is unknown")
            axes[slot] = tuple(range(x.rank - value.rank, x.rank))
        return axes

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Lanes would count in the mean."""
        x = op.inputs[0]
        assert x is not None and x.rank is not None
        return "the normalised axis cannot be blocked" if axis == x.rank - 1 else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Lanes are rows of their own, which an epsilon keeps finite; those of the sum add up."""
        addends = [index for index in (0, 1, len(op.inputs) - 1) if index < 2 or self._has_bias(op)]
        states = [met(op, signature, index, inputs[index]) for index in addends]
        added = max(states) if states.count(Lanes.ZERO) >= len(states) - 1 else Lanes.ANY
        finite = max(inputs) is not Lanes.ANY and op.attributes.get("epsilon", 1e-12) != 0
        others = (Lanes.ZERO, Lanes.ZERO, added) if len(op.outputs) > 3 else ()
        return (Lanes.FINITE if finite else Lanes.ANY, *others)

    def _has_bias(self, op: Op) -> bool:
        place = 4 if op.op_type == "SkipLayerNormalization" else 3
        return len(op.inputs) > place and op.inputs[place] is not None

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Where rows are contiguous, and x and skip lie alike as matrices or stacks of them."""
        if is_canonical(signature):
            return True
        x, skip = op.inputs[0], op.inputs[1]
        rows = [storage for storage in (*signature.inputs[:2], *signature.outputs) if storage is not None]
        alike = x is not None and skip is not None and x.shape == skip.shape
        return alike and all(len(row.format.parts) <= 3 and ends_with_last(row.format) for row in rows)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the physical arrays, or emulated."""
        assert op.signature is not None
        if not self.is_layout_agnostic(op, op.signature):
            super().lower(op, build)
            return
        inputs = [build.input(index) for index in range(len(op.inputs))]
        types = [build.output_type(index) for index in range(len(op.outputs))]
        results = build.op(op.op_type, inputs, types, op.attributes)
        present = [slot.index for slot in op.slots() if slot.side == "out"]
        for index, result in zip(present, results, strict=True):
            build.set_output(index, result)


__all__ = ["SkipNormalization"]
