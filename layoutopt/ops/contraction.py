"""Modes of matrix products, and formats of one operand that follow from those of another."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.signatures import Y
from layoutopt.record import Record

# --- contraction modes ---
#
# Contraction modes: the axes of a matrix product as strided kernels address them, for given formats of the operands.
#
# Every axis belongs to two or three operands, which make it a row, column, summed or batch axis:
#
#     rows a, y    columns b, y    summed a, b    batches a, b, y
#
# Formats cut the axes into digits. Digits that are adjacent in every operand that has them form one *mode*. The number of
# modes of each kind determines which kernels can address the operands without a copy:
#
#     a (B, H, M, K) in B M H K, b and y canonical     one mode each of rows, columns and summed; batches B and H apart
#
# cublasGemmStridedBatched accepts one mode of each kind; without shared batches, a second mode of rows or columns can be the
# batch. cublasGemmBatched has a pointer per matrix, so it accepts any number of batch modes. cuTENSOR and CUTLASS's GETT
# (NVIDIA/cutlass, examples/51_hopper_gett) accept any number of modes of every kind.


A, B = Slot("in", 0), Slot("in", 1)

AxisKind: TypeAlias = Literal["rows", "columns", "summed", "batches"]
_AXIS_KINDS: dict[frozenset[Slot], AxisKind] = {
    frozenset((A, Y)): "rows",
    frozenset((B, Y)): "columns",
    frozenset((A, B)): "summed",
    frozenset((A, B, Y)): "batches",
}

AxisDigit: TypeAlias = tuple[int, int]
"""An iteration axis, and how many of its elements one step of the digit covers."""


class ContractionModes(Record):
    """The number of modes of each kind.

    Attributes:
        rows: modes of a and y.
        columns: modes of b and y.
        summed: modes of a and b.
        batches: modes of all three.
        innermost: the kind of the mode with stride 1, by operand; operands of one element are absent.
    """

    rows: int
    columns: int
    summed: int
    batches: int
    innermost: Mapping[Slot, AxisKind]

    @property
    def is_contiguous(self) -> bool:
        """Whether the mode with stride 1 is an axis of the matrix in every operand."""
        return "batches" not in self.innermost.values()

    @property
    def is_strided(self) -> bool:
        """Whether one product with leading dimensions, or a batch of them at a constant stride, computes the contraction."""
        spare = max(self.rows - 1, 0) + max(self.columns - 1, 0)
        return self.is_contiguous and self.summed <= 1 and spare + self.batches <= 1

    @property
    def is_batched(self) -> bool:
        """Whether a batch of products with leading dimensions, at any addresses, computes the contraction."""
        return self.is_contiguous and max(self.rows, self.columns, self.summed) <= 1


Operand: TypeAlias = tuple[Slot, tuple[int, ...], Format, Shape]
"""An operand of a contraction: its slot, the iteration axis of every axis, its format and its shape."""


@lru_cache(maxsize=1 << 14)
def modes_of(operands: tuple[Operand, ...]) -> ContractionModes | None:
    """The modes of a contraction of a and b to y; cached, since every kernel of a target requires the same modes.

    Returns:
        The modes; None where an operand has padding, where blocks of an axis do not divide each other, or where only one
        operand has an axis.
    """
    digits = digits_of(operands)
    if digits is None:
        return None
    operands_with: dict[AxisDigit, frozenset[Slot]] = {}
    adjacent: dict[tuple[AxisDigit, AxisDigit], int] = {}
    for slot, operand_digits in digits.items():
        for digit in operand_digits:
            operands_with[digit] = operands_with.get(digit, frozenset()) | {slot}
        for pair in pairwise(operand_digits):
            adjacent[pair] = adjacent.get(pair, 0) + 1
    kinds = {digit: _AXIS_KINDS.get(slots) for digit, slots in operands_with.items()}
    if None in kinds.values():
        return None
    counts = Counter(kinds.values())
    for (left, right), count in adjacent.items():
        if operands_with[left] == operands_with[right] and count == len(operands_with[left]):
            counts[kinds[left]] -= 1
    innermost = {slot: kind for slot, found in digits.items() if found and (kind := kinds[found[-1]]) is not None}
    return ContractionModes(counts["rows"], counts["columns"], counts["summed"], counts["batches"], innermost)


def digits_of(operands: Iterable[Operand]) -> dict[Slot, list[AxisDigit]] | None:
    """The digits of each operand in memory order, cut at the blocks of all; None if these do not divide, or with padding."""
    cuts: dict[int, set[int]] = {}
    for _, axes, format, shape in operands:
        if not format.fits(shape) or format.has_padding(shape):
            return None
        for part, span in zip(format.parts, format.spans, strict=True):
            if shape[part.axis] != 1:
                cuts.setdefault(axes[part.axis], set()).add(span)
    grid = {axis: sorted(spans, reverse=True) for axis, spans in cuts.items()}
    if any(outer % inner for spans in grid.values() for outer, inner in pairwise(spans)):
        return None
    return {slot: list(_row(format, axes, shape, grid)) for slot, axes, format, shape in operands}


def _row(format: Format, axes: Sequence[int], shape: Shape, grid: Mapping[int, Sequence[int]]) -> Iterator[AxisDigit]:
    """The digits of one operand in memory order, without those of one element."""
    for part, digit in zip(format.parts, format.digits(shape), strict=True):
        dim, extent = shape[part.axis], digit.extent
        if dim == 1 or extent == 1:
            continue
        axis = axes[part.axis]
        for cut in grid[axis]:
            above = digit.span * extent if part.block and isinstance(extent, int) else dim
            if digit.span <= cut and (not isinstance(above, int) or cut < above):
                yield axis, cut


def aligned_format(format: Format, source: Slot, target: Slot, axes: Axes, shape: Shape) -> Format:
    """The format of operand `target` with its axes in the positions that they have in operand `source`.

    Axes missing from `source` take the position of the first source axis missing from `target`, so that columns of the result
    take the position of the summed axes. Between a and b they are rows, which come first, or columns, which come last.
    """
    target_axes = {axis: target_axis for target_axis, axis in enumerate(axes[target])}
    parts: list[Part] = []
    positions: list[int] = []
    for part in format.parts:
        target_axis = target_axes.get(axes[source][part.axis])
        if target_axis is None:
            positions.append(len(parts))
        elif not (part.block and shape[target_axis] == 1):
            parts.append(Part(target_axis, part.block, part.step))
    missing = [Part(target_axis) for target_axis, axis in enumerate(axes[target]) if axis not in axes[source]]
    at = positions[0] if positions and Y in (source, target) else len(parts)
    if target == A and source == B:
        at = 0
    return Format((*parts[:at], *missing, *parts[at:]))
