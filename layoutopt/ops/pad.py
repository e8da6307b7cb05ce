"""Pad: elements added at both ends of axes."""

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.pads import Pads, ZeroPadOp
from layoutopt.ops.operands import rank_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


@register
class Pad(AxiswiseRule, ZeroPadOp):
    """Elements added at both ends of axes; pads are an attribute (before opset 11) or an input."""

    family = "rearrangement"
    ops = ("Pad",)
    formats = "any; padded axes must not be blocked"
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "the state of the constant that it pads with")
    is_always_agnostic = True

    def pads(self, op: Op) -> dict[int, tuple[int, int]] | None:
        """The numbers of elements added before and behind each axis; None if computed."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return None
        axes: Sequence[int] = range(x.rank)
        if op.version < 11:
            numbers = op.integers("pads") or op.integers("paddings")
        else:
            array = op.constant(1)
            if array is None:
                return None
            numbers = tuple(int(number) for number in array)
            if len(op.inputs) > 3 and op.inputs[3] is not None:
                chosen: Array | None = op.constant(3)
                if chosen is None:
                    return None
                axes = [int(axis) % x.rank for axis in chosen]
        half = len(numbers) // 2
        return {axis: (numbers[position], numbers[position + half]) for position, axis in enumerate(axes)}

    def zero_pads(self, op: Op) -> Pads | None:
        """The pads, if they are constant, not negative, and of zeros."""
        pads, x = self.pads(op), op.inputs[0]
        if pads is None or x is None or x.shape is None or op.attributes.get("mode", "constant") != "constant":
            return None
        value: object = op.attributes.get("value", 0.0)
        if op.version >= 11 and len(op.inputs) > 2 and op.inputs[2] is not None:
            value = op.constant(2)
        if value is None or np.any(np.asarray(value) != 0):
            return None
        padding = {axis: ends for axis, ends in pads.items() if any(ends)}
        known = all(min(ends) >= 0 and isinstance(x.shape[axis], int) for axis, ends in padding.items())
        return padding if known else None

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if self.pads(op) is None:
            return Inapplicable("the pads are computed")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why a padded axis cannot be blocked; empty for other axes."""
        return "a padded axis cannot be blocked" if any((self.pads(op) or {}).get(axis, (0, 0))) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The larger state of x and of the constant, which is also written behind padding elements."""
        if op.attributes.get("mode", "constant") != "constant":
            return super().transfer_padding(op, signature, inputs)
        value: object = op.attributes.get("value", 0.0)
        if op.version >= 11 and len(op.inputs) > 2 and op.inputs[2] is not None:
            array = op.constant(2)
            value = 1.0 if array is None else array  # a computed constant is finite, like data
        fill_state = state_of(np.asarray(value))
        return super().transfer_padding(op, signature, inputs) if fill_state <= inputs[0] else (fill_state,)

    def must_be_expanded(self, op: Op) -> bool:
        """Whether the op has axes: onnxruntime 1.31 moves a Transpose across it as if it had pads for every axis."""
        return len(op.inputs) > 3 and op.inputs[3] is not None and self.pads(op) is not None

    @override
    def lower(self, op: Op, build: Builder) -> None:
        pads = self.pads(op)
        assert pads is not None
        ends = [(0, 0) if part.block else pads.get(part.axis, (0, 0)) for part in build.format(X).parts]
        flat = tuple(before for before, _ in ends) + tuple(behind for _, behind in ends)
        inputs = [build.input(index) for index in range(len(op.inputs))]
        attributes: dict[str, Attribute] = dict(op.attributes)
        if op.version < 11:
            attributes["pads" if "pads" in op.attributes else "paddings"] = flat
        else:
            value = inputs[2:3] if len(op.inputs) > 2 and op.inputs[2] is not None else []
            inputs = [inputs[0], build.constant(np.asarray(flat, dtype=np.int64), "pads"), *value]
        lower_directly(op, build, attributes, inputs)
