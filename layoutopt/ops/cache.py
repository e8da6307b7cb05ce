"""Writes of keys and values into a cache, at one position per sequence of the batch."""

from types import MappingProxyType

from layoutopt.formats import Part
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.axis import OneAxis
from layoutopt.ops.axiswise import Axes, IterationOrder
from layoutopt.ops.base import register
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y

_UPDATE = Slot("in", 1)


@register
class CacheUpdate(OneAxis):
    """TensorScatter: the batch is the outermost axis, because the write positions are indexed by it."""

    family = "rearrangement"
    ops = ("TensorScatter",)
    default_axis = -2
    formats = "the batch outermost, the others in any format; the axis must not be blocked"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 1, _UPDATE: 1})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of the cache, of the update and of the result correspond by position."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, _UPDATE: axes[X]}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the axis of the op and the batch cannot be blocked; empty for other axes."""
        return "the batch cannot be blocked" if axis == 0 else super().unblockable_reason(op, axis, order)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if the batch is the outermost axis."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        storages = [storage for slot in (X, _UPDATE, Y) if (storage := signature[slot]) is not None]
        if any(storage.format.parts[0] != Part(0) for storage in storages):
            return Inapplicable("the batch has to be the outermost axis")
        return signature


__all__ = ["CacheUpdate"]
