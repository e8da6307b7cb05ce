"""Keys and values written into a cache, at a place of its own for every sequence of the batch."""

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
    """TensorScatter: the batch is the outermost axis, as the places are counted along it."""

    family = "rearrangement"
    ops = ("TensorScatter",)
    default_axis = -2
    formats = "the batch outermost, the others in any format; the axis must not be blocked"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 1, _UPDATE: 1})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of the cache, of what is written and of the result correspond by position."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, _UPDATE: axes[X]}

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


__all__ = ["CacheUpdate"]
