"""A product of matrices, taken out of the axes that lie outside of it in the same order in all operands.

    a (windows, rows, K) in W R 8w 8r K    b (K, N)    y likewise, with N for K    ->    a (W R 8 8, K)    y (W R 8 8, N)

On arrays that is the same product: what is outside are batches, or rows of one large matrix where b has no batches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from layoutopt.formats import Format, Part, Shape, quotient
from layoutopt.ir.types import Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.signatures import Known


@dataclass(frozen=True, slots=True)
class Peeled:
    """What is left of a product.

    Attributes:
        outside: the parts that were taken off, in memory order, under their iteration axes.
        formats: of the operands, with the axes that lie outside in canonical order.
        is_whole: whether every operand has all of what is outside, or nothing. A kernel that counts through it as if it
            were one axis may then count in any order.
    """

    outside: tuple[Part, ...]
    formats: Known
    is_whole: bool

    def shape(self, axes: Sequence[int], shape: Shape) -> Shape:
        """The extents of an operand's array: those of what is outside, 1 where it has none of that, and of the matrix."""
        extents = dict(zip(axes, shape, strict=True))
        own = {part.axis for part in self.outside}.intersection(axes)
        blocks = {axis: prod(part.block for part in self.outside if part.axis == axis and part.block) for axis in own}
        held = {axis: quotient(extents[axis], blocks[axis]) for axis in own if extents[axis] != 1}
        matrix = tuple(dim for axis, dim in zip(axes[-2:], shape[-2:], strict=True) if axis not in own)
        if not held:
            return matrix
        return (*((part.block or held[part.axis]) if part.axis in held else 1 for part in self.outside), *matrix)


def peeled(axes: Axes, formats: Known, shapes: Mapping[Slot, Shape], outside: Collection[int]) -> Peeled | None:
    """The product without some axes; None if they do not lie outside of the others, in one order in all operands."""
    orders: dict[Slot, list[Part]] = {}
    inner: dict[Slot, Format] = {}
    for slot, shape in shapes.items():
        format, own = formats[slot], axes[slot]
        if any(own[axis] in outside for axis in format.blocked_axes) and format.has_padding(shape):
            return None
        parts = [part for part in format.parts if shape[part.axis] != 1 or format.block(part.axis) > 1]
        count = sum(own[part.axis] in outside for part in parts)
        if any(own[part.axis] not in outside for part in parts[:count]):
            return None
        orders[slot] = [Part(own[part.axis], part.block, part.step) for part in parts[:count]]
        kept = {part.axis for part in parts[count:]}
        inner[slot] = Format((*(Part(place) for place in range(len(shape)) if place not in kept), *parts[count:]))
    longest = max(orders.values(), key=len)
    for slot, shape in shapes.items():
        held = {axis for axis, dim in zip(axes[slot], shape, strict=True) if dim != 1}
        if orders[slot] != [part for part in longest if part.axis in held]:
            return None
    return Peeled(tuple(longest), inner, all(order in ([], longest) for order in orders.values()))


__all__ = ["Peeled", "peeled"]
