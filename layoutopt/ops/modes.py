"""Modes: what a product of two tensors is to kernels, in some formats of its operands.

Every axis is in two or three of the operands, and by which it is a row, a column, summed or a batch:

    rows a, y    columns b, y    summed a, b    batches a, b, y

Formats cut the axes into digits. Digits that follow each other in every operand which has them are one *mode*. How many
modes there are of each kind says which kernels can read and write the operands as they lie:

    a (B, H, M, K) in B M H K, b and y canonical     one mode each of rows, columns and summed; batches B and H apart

cublasGemmStridedBatched takes one mode of each kind; where no batch is shared, a second mode of rows or columns can be
the batch. cublasGemmBatched has a pointer for each matrix, so batches may be many modes. cuTENSOR and CUTLASS's GETT
(NVIDIA/cutlass, examples/51_hopper_gett) take any number of modes of every kind.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Slot

A, B, Y = Slot("in", 0), Slot("in", 1), Slot("out", 0)

Kind: TypeAlias = Literal["rows", "columns", "summed", "batches"]
_KINDS: dict[frozenset[Slot], Kind] = {
    frozenset((A, Y)): "rows",
    frozenset((B, Y)): "columns",
    frozenset((A, B)): "summed",
    frozenset((A, B, Y)): "batches",
}

Digit: TypeAlias = tuple[int, int]
"""An iteration axis, and how many of its elements one step of the digit covers."""


@dataclass(frozen=True, slots=True)
class Modes:
    """How many modes of each kind a contraction has with its operands in some formats.

    Attributes:
        rows: modes of a and y.
        columns: modes of b and y.
        summed: modes of a and b.
        batches: modes of all three.
        innermost: for each operand what the mode is that has stride 1; none if it has one element.
    """

    rows: int
    columns: int
    summed: int
    batches: int
    innermost: Mapping[Slot, Kind]

    @property
    def contiguous(self) -> bool:
        """Whether what has stride 1 is of the matrix in every operand."""
        return "batches" not in self.innermost.values()

    @property
    def is_strided(self) -> bool:
        """Whether it is a matrix product with leading dimensions, or a batch of them with a stride from each to the next."""
        spare = max(self.rows - 1, 0) + max(self.columns - 1, 0)
        return self.contiguous and self.summed <= 1 and spare + self.batches <= 1

    @property
    def is_batched(self) -> bool:
        """Whether it is a batch of matrix products with leading dimensions, wherever these matrices are."""
        return self.contiguous and max(self.rows, self.columns, self.summed) <= 1


def modes_of(
    axes: Mapping[Slot, Sequence[int]], formats: Mapping[Slot, Format], shapes: Mapping[Slot, Shape]
) -> Modes | None:
    """The modes of a contraction.

    Args:
        axes: the iteration axis of every axis of a, b and y.
        formats: those of the operands.
        shapes: those of the operands.

    Returns:
        The modes; None where an operand has lanes, where blocks of an axis do not divide each other, or where an axis is
        in one operand alone.
    """
    return _modes_of(tuple((slot, tuple(axes[slot]), formats[slot], shape) for slot, shape in shapes.items()))


@lru_cache(maxsize=1 << 14)
def _modes_of(operands: tuple[tuple[Slot, tuple[int, ...], Format, Shape], ...]) -> Modes | None:
    """Remembered: every row of a target asks for the same ones."""
    axes = {slot: numbers for slot, numbers, _, _ in operands}
    digits = digits_of(
        axes, {slot: format for slot, _, format, _ in operands}, {slot: shape for slot, _, _, shape in operands}
    )
    if digits is None:
        return None
    holders: dict[Digit, frozenset[Slot]] = {}
    links: dict[tuple[Digit, Digit], int] = {}
    for slot, row in digits.items():
        for digit in row:
            holders[digit] = holders.get(digit, frozenset()) | {slot}
        for pair in pairwise(row):
            links[pair] = links.get(pair, 0) + 1
    kinds = {digit: _KINDS.get(slots) for digit, slots in holders.items()}
    if None in kinds.values():
        return None
    counts = Counter(kinds.values())
    for (left, right), count in links.items():
        if holders[left] == holders[right] and count == len(holders[left]):
            counts[kinds[left]] -= 1
    innermost = {slot: kind for slot, row in digits.items() if row and (kind := kinds[row[-1]]) is not None}
    return Modes(counts["rows"], counts["columns"], counts["summed"], counts["batches"], innermost)


def kind_of(axes: Mapping[Slot, Sequence[int]], axis: int) -> Kind | None:
    """What an iteration axis is, by the operands that have it; None if one alone has it."""
    return _KINDS.get(frozenset(slot for slot in (A, B, Y) if axis in axes[slot]))


def digits_of(
    axes: Mapping[Slot, Sequence[int]], formats: Mapping[Slot, Format], shapes: Mapping[Slot, Shape]
) -> dict[Slot, list[Digit]] | None:
    """The digits of each operand in memory order, cut at the blocks of all of them; None if these do not divide, or lanes."""
    if any(not formats[slot].fits(shape) or formats[slot].has_padding(shape) for slot, shape in shapes.items()):
        return None
    cuts: dict[int, set[int]] = {}
    for slot, shape in shapes.items():
        for part, span in zip(formats[slot].parts, formats[slot].spans, strict=True):
            if shape[part.axis] != 1:
                cuts.setdefault(axes[slot][part.axis], set()).add(span)
    grid = {axis: sorted(spans, reverse=True) for axis, spans in cuts.items()}
    if any(outer % inner for spans in grid.values() for outer, inner in pairwise(spans)):
        return None
    return {slot: list(_row(formats[slot], axes[slot], shape, grid)) for slot, shape in shapes.items()}


def _row(format: Format, axes: Sequence[int], shape: Shape, grid: Mapping[int, Sequence[int]]) -> Iterator[Digit]:
    """The digits of one operand in memory order, without those of one element."""
    for part, digit in zip(format.parts, format.digits(shape), strict=True):
        dim, extent = shape[part.axis], digit.extent
        if dim == 1 or extent == 1:
            continue
        axis = axes[part.axis]
        for cut in grid[axis]:
            above = digit.span * extent if part.block and isinstance(extent, int) else dim
            if digit.span <= cut and (isinstance(above, str) or cut < above):
                yield axis, cut


__all__ = ["Digit", "Kind", "Modes", "digits_of", "kind_of", "modes_of"]
