"""Collapsed batch dimensions: a matrix product without the axes that are outermost, in the same order, in all operands.

    a (windows, rows, K) in W R 8w 8r K    b (K, N)    y likewise, with N for K    ->    a (W R 8 8, K)    y (W R 8 8, N)

On physical arrays the result is a plain product: collapsed axes are batches, or rows of one large matrix if b has no batches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from layoutopt.formats import Format, Part, Shape, quotient
from layoutopt.ir.types import Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.signatures import OperandFormats


@dataclass(frozen=True, slots=True)
class CollapsedBatch:
    """A product whose outermost axes are collapsed.

    Attributes:
        outside: the collapsed parts in memory order, as parts of iteration axes.
        formats: the formats of the operands with the collapsed axes in logical order.
        has_uniform_batch: whether every operand has all collapsed axes or none; a kernel may then traverse them in any order.
    """

    collapsed: tuple[Part, ...]
    formats: OperandFormats
    has_uniform_batch: bool

    def shape(self, axes: Sequence[int], shape: Shape) -> Shape:
        """The shape of an operand's array: the extents of the collapsed parts, 1 where it lacks them, and of the matrix."""
        extents = dict(zip(axes, shape, strict=True))
        own = {part.axis for part in self.collapsed}.intersection(axes)
        blocks = {axis: prod(part.block for part in self.collapsed if part.axis == axis and part.block) for axis in own}
        stored = {axis: quotient(extents[axis], blocks[axis]) for axis in own if extents[axis] != 1}
        matrix = tuple(dim for axis, dim in zip(axes[-2:], shape[-2:], strict=True) if axis not in own)
        if not stored:
            return matrix
        return (*((part.block or stored[part.axis]) if part.axis in stored else 1 for part in self.collapsed), *matrix)


def collapse_batch(
    axes: Axes, formats: OperandFormats, shapes: Mapping[Slot, Shape], collapsed: Collection[int]
) -> CollapsedBatch | None:
    """The product without the axes `collapsed`; None if they are not outermost, in the same order, in all operands."""
    orders: dict[Slot, list[Part]] = {}
    inner: dict[Slot, Format] = {}
    for slot, shape in shapes.items():
        format, own = formats[slot], axes[slot]
        if any(own[axis] in collapsed for axis in format.blocked_axes) and format.has_padding(shape):
            return None
        parts = [part for part in format.parts if shape[part.axis] != 1 or format.block(part.axis) > 1]
        count = sum(own[part.axis] in collapsed for part in parts)
        if any(own[part.axis] not in collapsed for part in parts[:count]):
            return None
        orders[slot] = [Part(own[part.axis], part.block, part.step) for part in parts[:count]]
        kept = {part.axis for part in parts[count:]}
        inner[slot] = Format(
            (*(Part(position) for position in range(len(shape)) if position not in kept), *parts[count:])
        )
    longest = max(orders.values(), key=len)
    for slot, shape in shapes.items():
        stored = {axis for axis, dim in zip(axes[slot], shape, strict=True) if dim != 1}
        if orders[slot] != [part for part in longest if part.axis in stored]:
            return None
    return CollapsedBatch(tuple(longest), inner, all(order in ([], longest) for order in orders.values()))


__all__ = ["CollapsedBatch", "collapse_batch"]
