"""Keys and values written into a cache, at a place of its own for every sequence of the batch."""

from layoutopt.formats import Part
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y

_UPDATE = Slot("in", 1)


@register
class CacheUpdate(OneAxis):
    """TensorScatter: the batch is the outermost axis, as the places are counted along it."""

    family = "rearrangement"
    ops = ("TensorScatter",)
    default_axis = -2
    formats = "the batch outermost, the others in any format; the axis must not be blocked"
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of the cache, of what is written and of the result correspond by position."""
        axes, update = super().axes(op), op.inputs[1]
        if isinstance(axes, Inapplicable) or update is None or update.rank is None:
            return Inapplicable("the rank is unknown")
        return {**axes, _UPDATE: axes[X]}

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Neither that axis nor the batch."""
        return "the batch cannot be blocked" if axis == 0 else super().may_block(op, axis, order)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """As the axes say, if the batch comes first."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        storages = [storage for slot in (X, _UPDATE, Y) if (storage := signature[slot]) is not None]
        if any(storage.format.parts[0] != Part(0) for storage in storages):
            return Inapplicable("the batch has to be the outermost axis")
        return signature

    def lower(self, op: Op, build: Builder) -> None:
        """The same op along the physical axis."""
        (axis,) = positions(build.format(X), (self.axis(op),))
        inputs = [build.input(index) for index in range(len(op.inputs))]
        (result,) = build.op(op.op_type, inputs, [build.output_type(0)], {**op.attributes, "axis": axis})
        build.set_output(0, result)


__all__ = ["CacheUpdate"]
