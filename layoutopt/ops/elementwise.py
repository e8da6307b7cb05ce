"""Element-wise ops with broadcasting: any format is legal as long as all operands agree on it.

The padding of the result is f of the padding of the operands (`unary`, `nary`).
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, aligned_input
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.broadcasting import PureBroadcast
from layoutopt.ops.operands import present, rank_of, shape_of
from layoutopt.ops.padding_state import padded_axes_of, state_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y


class Elementwise(AxiswiseRule):
    """y[i] = f(a[i], b[i], ...), operands broadcast from the right."""

    family = "elementwise"
    formats = "any; all operands have one order of axes"
    is_always_agnostic = True
    ranks = MappingProxyType({})

    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        """All operands, unless the rule lists those that it requires."""
        return self.ranks or dict.fromkeys(op.slots(), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Output axis j is iteration axis j; operands are aligned with the last axes."""
        rank = rank_of(op.outputs[0])
        return {slot: tuple(range(rank - rank_of(op.operand(slot)), rank)) for slot in op.slots()}

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the physical arrays, operands reshaped where they broadcast."""
        axes = self.axes(op)
        assert not isinstance(axes, Inapplicable)
        lower_directly(op, build, inputs=[aligned_input(build, op, index, axes) for index in range(len(op.inputs))])


@register
class Expand(Elementwise, PureBroadcast):
    """A tensor broadcast to a shape."""

    ops = ("Expand",)
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "elements broadcast over a block count as finite"
    )
    ranks = MappingProxyType({X: 0, Y: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of tensor and result; the shape operand has none. Extents that x is broadcast along have to be known."""
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        own = (1,) * (len(y) - len(x)) + x
        if any(not isinstance(after, int) and before != after for before, after in zip(own, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return {X: tuple(range(len(y) - len(x), len(y))), Y: tuple(range(len(y)))}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the larger state of x and, where x is broadcast over a block, of its elements."""
        return super().transfer_padding(op, signature, (broadcast_padding(op, signature, 0, inputs[0]),))

    @override
    def lower(self, op: Op, build: Builder) -> None:
        axes, target = self.axes(op), build.output_type(0)
        assert not isinstance(axes, Inapplicable)
        extents = [dim if isinstance(dim, int) else 1 for dim in shape_of(target)]  # 1 keeps a symbolic extent
        shape = build.constant(np.asarray(extents, dtype=np.int64), "shape")
        (result,) = build.op("Expand", [aligned_input(build, op, 0, axes), shape], [target])
        build.set_output(0, result)


def broadcast_padding(op: Op, signature: Signature, index: int, state: Padding) -> Padding:
    """The padding state that operand `index` contributes to the result.

    It is the state of its own padding and, if it is broadcast over padding of the result, that of its elements.
    """
    value, y = present(op.inputs[index]), op.outputs[0]
    offset = rank_of(y) - rank_of(value)
    own = {axis + offset for axis in padded_axes_of(value, signature.inputs[index])}
    if own.issuperset(padded_axes_of(y, signature.outputs[0])):
        return state
    return max(state, Padding.FINITE if value.data is None else state_of(value.data.numpy()))
