"""Contractions: products of two tensors, summed over the axes that both have and the result has not."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal, TypeAlias

from typing_extensions import override

from layoutopt.formats import Format, Part, Shape, quotient
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import LayoutRule, padded_axes_of, register
from layoutopt.ops.signatures import (
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    Y,
    estimated_extent,
    format_text,
    shape_of,
    signature_of,
)

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


@dataclass(frozen=True, slots=True)
class ContractionModes:
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


def modes_of(
    axes: Mapping[Slot, Sequence[int]], formats: Mapping[Slot, Format], shapes: Mapping[Slot, Shape]
) -> ContractionModes | None:
    """The modes of a contraction.

    Args:
        axes: the iteration axis of every axis of a, b and y.
        formats: the formats of the operands.
        shapes: the shapes of the operands.

    Returns:
        The modes; None where an operand has padding, where blocks of an axis do not divide each other, or where only one
        operand has an axis.
    """
    return _modes_of(tuple((slot, tuple(axes[slot]), formats[slot], shape) for slot, shape in shapes.items()))


@lru_cache(maxsize=1 << 14)
def _modes_of(operands: tuple[tuple[Slot, tuple[int, ...], Format, Shape], ...]) -> ContractionModes | None:
    """`modes_of`, cached: every kernel of a target requires the same modes."""
    axes = {slot: numbers for slot, numbers, _, _ in operands}
    digits = digits_of(
        axes, {slot: format for slot, _, format, _ in operands}, {slot: shape for slot, _, _, shape in operands}
    )
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


def kind_of(axes: Mapping[Slot, Sequence[int]], axis: int) -> AxisKind | None:
    """The kind of an iteration axis; None if only one operand has it."""
    return _AXIS_KINDS.get(frozenset(slot for slot in (A, B, Y) if axis in axes[slot]))


def digits_of(
    axes: Mapping[Slot, Sequence[int]], formats: Mapping[Slot, Format], shapes: Mapping[Slot, Shape]
) -> dict[Slot, list[AxisDigit]] | None:
    """The digits of each operand in memory order, cut at the blocks of all; None if these do not divide, or with padding."""
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


# --- collapsed batch ---
#
# Collapsed batch dimensions: a matrix product without the axes that are outermost, in the same order, in all operands.
#
#     a (windows, rows, K) in W R 8w 8r K    b (K, N)    y likewise, with N for K    ->    a (W R 8 8, K)    y (W R 8 8, N)
#
# On physical arrays the result is a plain product: collapsed axes are batches, or rows of one large matrix if b has no
# batches.


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


_KINDS = {A: ("rows", "summed"), B: ("summed", "columns"), Y: ("rows", "columns")}


class Contraction(LayoutRule):
    """A product of two tensors; each operand has a format of its own."""

    family = "matmul"
    formats = "a format for each operand, in any order of any digits"
    padding = PaddingTransfer(ZERO, None, None)
    has_independent_operands = True

    @abstractmethod
    def axes(self, op: Op) -> Axes:
        """The iteration axes of a, b and y, for an op that has others than the canonical signature."""

    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        """The axes, or the reason why there are none, for any op."""
        reason = self.canonical_reason(op)
        return Inapplicable(reason) if reason else self.axes(op)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"a": A, "b": B, "y": Y}

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, canonical for the other operands.

        If one operand is a matrix without shared batches, the result takes the order of axes of the other operand, and so does
        the matrix if it is a constant.
        """
        axes, shapes = self.axes(op), _shapes(op)
        formats = {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()} | dict(known)
        matrix = self._matrix(op, axes, shapes)
        if matrix is not None:
            data = A if matrix == B else B
            source = next((slot for slot in (data, Y) if slot in known), data)
            format, shape = known.get(source), shapes[source]
            if format is not None and format.fits(shape) and not format.has_padding(shape):
                constant = op.inputs[matrix.index]
                slots = (data, Y, matrix) if constant is not None and constant.is_constant else (data, Y)
                others = [slot for slot in slots if slot not in known]
                formats |= {slot: aligned_format(format, source, slot, axes, shapes[slot]) for slot in others}
        return signature_of(op, formats)

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if an operand would have padding outside of its `padded_axes`."""
        for slot in (A, B, Y):
            storage = signature[slot]
            padded = set(padded_axes_of(op.operand(slot), storage)).difference(self.padded_axes(op, slot))
            if storage is not None and padded:
                return f"{slot} would have padding in {format_text(op, slot, storage.format)}"
        return ""

    def _matrix(self, op: Op, axes: Axes, shapes: Mapping[Slot, Shape]) -> Slot | None:
        """The slot of the operand without shared batches, preferably a constant; None if both have some."""
        shared = {
            axis
            for slot, other in ((A, B), (B, A))
            for axis, dim in zip(axes[slot], shapes[slot], strict=True)
            if dim != 1 and axis in axes[Y] and axis in axes[other]
        }
        single = [
            slot
            for slot in (B, A)
            if not any(dim != 1 and axis in shared for axis, dim in zip(axes[slot], shapes[slot], strict=True))
        ]
        constants = [slot for slot in single if (value := op.inputs[slot.index]) is not None and value.is_constant]
        return next(iter(constants + single), None)

    def padded_axes(self, op: Op, slot: Slot) -> Collection[int]:
        """The axes of an operand that may have padding."""
        return ()

    @override
    def is_transposed(self, op: Op, slot: Slot) -> bool | None:
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable) or len(axes[slot]) < 2:
            return None
        kinds = [kind_of(axes, axis) for axis in axes[slot][-2:]]
        matrix = list(_KINDS[slot])
        return kinds == matrix[::-1] if kinds in (matrix, matrix[::-1]) else None

    def modes(self, op: Op, formats: OperandFormats) -> ContractionModes | None:
        """The modes of the iteration axes."""
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return None
        shapes = _shapes(op)
        return modes_of(axes, formats, shapes) if all(slot in formats for slot in shapes) else None


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


def _shapes(op: Op) -> dict[Slot, Shape]:
    """The shapes of a, b and y."""
    values = {slot: op.operand(slot) for slot in (A, B, Y)}
    return {slot: value.shape for slot, value in values.items() if value is not None and value.shape is not None}


# --- einsum ---
#
# Einsum of two tensors: a contraction whose equation names the iteration axes. Each letter is one iteration axis.
#
# An Einsum of one tensor that permutes its axes is a Transpose (`patterns.permuted_axes`); all others run in canonical
# format.
#
#     bhsd, bhtd -> bhst      rows s, columns t, summed d, batches b and h
#     ...ij, jk  -> ...ik


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@register
class Einsum(Contraction):
    """An Einsum of two operands without repeated letters in one operand and without letters that only one operand has."""

    ops = ("Einsum",)

    def _operand_terms(self, op: Op) -> list[list[str]] | None:
        """The axis names of a, b and y; None if the equation does not fit."""
        if len(op.inputs) != 2:
            return None
        return _terms(str(op.attributes.get("equation", "")), [shape_of(op.operand(slot)) for slot in (A, B, Y)])

    @override
    def inapplicability(self, op: Op) -> str:
        terms = self._operand_terms(op)
        if terms is None:
            return "a letter occurs twice in an operand, or the number of letters or operands does not fit"
        a, b, y = map(set, terms)
        is_summed = not a | b >= y or (a | b) - (a & b) - y
        return "an axis of only one operand is summed" if is_summed else ""

    def axes(self, op: Op) -> Axes:
        """A number for every letter; axes under an ellipsis are counted from the right."""
        terms = self._operand_terms(op)
        if terms is None:
            return {}
        numbers = {name: number for number, name in enumerate(dict.fromkeys((*terms[2], *terms[0], *terms[1])))}
        return {slot: tuple(numbers[name] for name in term) for slot, term in zip((A, B, Y), terms, strict=True)}

    def flops(self, op: Op) -> float:
        """Two for every element of the iteration."""
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return super().flops(op)
        extents: dict[int, int] = {}
        for slot, numbers in axes.items():
            for axis, dim in zip(numbers, shape_of(op.operand(slot)), strict=True):
                extents[axis] = max(extents.get(axis, 1), estimated_extent(dim))
        return 2.0 * prod(extents.values())


def permutation(op: Op) -> tuple[int, ...] | None:
    """The `perm` of the Transpose that an Einsum of one operand computes; None if it computes anything else."""
    x, y = op.inputs[0], op.outputs[0]
    if len(op.inputs) != 1 or x is None or x.shape is None or y is None or y.shape is None:
        return None
    terms = _terms(str(op.attributes.get("equation", "")), (x.shape, y.shape))
    if terms is None or sorted(terms[0]) != sorted(terms[1]):
        return None
    return tuple(terms[0].index(name) for name in terms[1])


def _terms(equation: str, shapes: Sequence[Shape]) -> list[list[str]] | None:
    """The axis names of each operand and, last, of the result; None if the equation does not fit the shapes.

    Without an arrow the result has the axes of an ellipsis, then the letters that occur once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if not arrow:
        letters = [letter for letter in sorted(set(left) - set(".,")) if left.count(letter) == 1]
        right = ("..." if "..." in left else "") + "".join(letters)
    texts.append(right)
    if len(texts) != len(shapes) or not all(map(_TERM.fullmatch, texts)):
        return None
    terms = [_names(text, len(shape)) for text, shape in zip(texts, shapes, strict=True)]
    if any(len(set(term)) != len(term) or len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        return None
    return terms


def _names(text: str, rank: int) -> list[str]:
    """The axis names of one operand: its letters, and the axes of an ellipsis counted from the right."""
    before, ellipsis, behind = text.partition("...")
    count = rank - len(before) - len(behind) if ellipsis else 0
    return [*before, *(f"...{position}" for position in range(count, 0, -1)), *behind]
