"""A Conversion copies one logical tensor from one Format to another.

It is a pair of formats, not a permutation: its effect on bytes depends on the shape. Its shortest sequence of array
operations is found on *digits*. The common refinement of the digits of both formats cuts every axis at the spans of
either format; both formats contain the refined digits, in different orders:

    NCHW16c -> NCHW8c:   N C16 H W 2 8   ->   N C16 2 H W 8         one Transpose, between two Reshapes

The padded extent of a blocked axis may change too: on the source side before the Transpose, or on the destination side
after it, in multiples of the span of the outermost digit on that side. Where neither works, or the two formats have no
common refinement, the conversion goes through an intermediate format in which those axes, or all axes, are not blocked.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Dim, Shape, quotient, static_shape
from layoutopt.formats.format import Digit, Format
from layoutopt.formats.layout import Array, resize
from layoutopt.record import Record

# --- The array operations that a conversion consists of: Pad, Reshape, Transpose, Slice ---
#
# Operands are physical arrays with one axis per part of a format. `before` and `after` are the shapes of the operand and
# the result; extents that no step changes may be symbolic.


class Pad(Record):
    """Append zeros at the ends of axes."""

    before: Shape
    after: Shape


class Reshape(Record):
    """Give the same elements in the same order another shape."""

    before: Shape
    after: Shape


class Transpose(Record):
    """Permute the axes: axis i of the result is axis `perm[i]` of the operand."""

    before: Shape
    after: Shape
    perm: tuple[int, ...]


class Slice(Record):
    """Keep the first elements of axes."""

    before: Shape
    after: Shape


Step = Pad | Reshape | Transpose | Slice
"""One array operation on physical arrays."""


def run(step: Step, array: Array) -> Array:
    """The result of one step on an array of shape `step.before`, without symbolic extents."""
    match step:
        case Transpose():
            return array.transpose(step.perm)
        case Reshape():
            return array.reshape(static_shape(step.after))
        case _:
            return resize(array, static_shape(step.after))


def _simplified(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps without identities, and with neighbours of one kind as one step."""
    found: list[Step] = []
    for step in steps:
        if found and type(step) is type(found[-1]) and not isinstance(step, Transpose):
            step = type(step)(found.pop().before, step.after)
        is_moving = isinstance(step, Transpose) and step.perm != tuple(range(len(step.perm)))
        if is_moving or step.before != step.after:
            found.append(step)
    return tuple(found)


class Conversion(Record):
    """The copy of one logical tensor from the format `src` to the format `dst`.

    Raises:
        FormatError: the formats differ in rank.
    """

    src: Format
    dst: Format

    def __post_init__(self) -> None:
        """Check that both formats have the same rank."""
        if self.src.rank != self.dst.rank:
            raise FormatError(f"{self.src} and {self.dst} have different ranks", hint="convert one logical tensor")

    def is_identity(self, shape: Shape) -> bool:
        """Whether both formats store a tensor of this shape as the same bytes.

        Raises:
            FormatError: one of the formats does not fit the shape.
        """
        return self.src.same_bytes(self.dst, shape)

    def steps(self, shape: Shape) -> tuple[Step, ...]:
        """The array operations that convert with the fewest copies; a Reshape is no copy.

        Padding that the destination adds is zero. An axis that both formats pad to the same extent keeps the values of its
        padding; otherwise the source's padding is cut off first.

        Args:
            shape: the logical shape; axes that neither format blocks may be symbolic.

        Returns:
            The steps from the physical shape of `src` to that of `dst`; none if bytes and physical shape are the same.

        Raises:
            FormatError: one of the formats does not fit the shape.
        """
        return _shortest(self, shape)

    def apply(self, physical: Array, shape: tuple[int, ...]) -> Array:
        """The physical array of `dst` for a physical array of `src`, computed with numpy.

        Raises:
            FormatError: a format does not fit the shape, or the array is not the source's memory of it.
        """
        expected = self.src.physical_shape(shape)
        if physical.shape != expected:
            raise FormatError(f"an array of shape {physical.shape} is given, not {expected}", where=str(self.src))
        for step in self.steps(shape):
            physical = run(step, physical)
        return physical


_Digits = tuple[Digit, ...]
"""Digits of all axes in memory order."""


@lru_cache(maxsize=1 << 14)
def _shortest(conversion: Conversion, shape: Shape) -> tuple[Step, ...]:
    """The steps of a conversion; cached, since a model has many equal conversions."""
    src, dst = conversion.src, conversion.dst
    if conversion.is_identity(shape):
        return _simplified([Reshape(src.physical_shape(shape), dst.physical_shape(shape))])
    sequences = []
    sizes = [*zip(src.padded_shape(shape), shape, dst.padded_shape(shape), strict=True)]
    resized = {axis for axis, (source, _, destination) in enumerate(sizes) if source != destination}
    inconvertible: list[int] = []
    for merges in (False, True):
        digits = _merged_digits(src, shape, resized, merges), _merged_digits(dst, shape, resized, merges)
        extents = [_transposed_extent(axis, each, digits) for axis, each in enumerate(sizes)]
        inconvertible = [axis for axis, extent in enumerate(extents) if extent is None]
        if not inconvertible:
            transposed = tuple(extent for extent in extents if extent is not None)
            sequences.append(_simplified(_by_one_transpose(conversion, shape, digits, transposed, merges=merges)))
    for fmt, axes in product((src, dst), (inconvertible, range(src.rank))) if not sequences else ():
        unblocked = fmt.without_blocks(axes)
        halves = Conversion(src, unblocked), Conversion(unblocked, dst)
        sequences.append(_simplified(step for half in halves for step in _shortest(half, shape)))
    return min(sequences, key=_sort_key)


def _by_one_transpose(
    conversion: Conversion, shape: Shape, digits: tuple[_Digits, _Digits], transposed: Shape, *, merges: bool
) -> Iterator[Step]:
    """The steps that resize axes on the source side, transpose, and resize axes on the destination side.

    Args:
        conversion: the formats.
        shape: the logical shape.
        digits: the digits of the source and the destination.
        transposed: the extents of the axes in the Transpose.
        merges: whether axes of the Transpose that stay neighbours become one.
    """
    (src, dst), source, destination = digits, conversion.src.padded_shape(shape), conversion.dst.padded_shape(shape)
    axes = _transpose_axes(digits, transposed, merges=merges)
    before = tuple(extent for _, extent in axes)
    perm = tuple(sorted(range(len(axes)), key=lambda index: axes[index][0]))
    after = tuple(before[index] for index in perm)
    yield Reshape(conversion.src.physical_shape(shape), _extents(src, source))
    yield from _resized(_extents(src, source), _extents(src, transposed), _extents(src, shape))
    yield Reshape(_extents(src, transposed), before)
    yield Transpose(before, after, perm)
    yield Reshape(after, _extents(dst, transposed))
    yield from _resized(_extents(dst, transposed), _extents(dst, destination), _extents(dst, shape))
    yield Reshape(_extents(dst, destination), conversion.dst.physical_shape(shape))


def _resized(before: Shape, after: Shape, kept: Shape) -> Iterator[Step]:
    """A Slice of the axes that change to the extents `kept`, and a Pad with zeros."""
    cut = tuple(old if old == new else keep for old, new, keep in zip(before, after, kept, strict=True))
    yield Slice(before, cut)
    yield Pad(cut, after)


def _transpose_axes(digits: tuple[_Digits, _Digits], sizes: Shape, *, merges: bool) -> list[tuple[int, Dim]]:
    """The axes of the Transpose in source order: the position in the destination, and the extent."""
    spans = [_common_spans(axis, digits) for axis in range(len(sizes))]
    position = {each: index for index, each in enumerate(_refined_digits(digits[1], spans, sizes))}
    axes: list[tuple[int, Dim]] = []
    next_position = -1
    for each in _refined_digits(digits[0], spans, sizes):
        last = axes[-1][1] if merges and position[each] == next_position else None
        if isinstance(last, int) and isinstance(each.extent, int):
            axes[-1] = axes[-1][0], last * each.extent
        else:
            axes.append((position[each], each.extent))
        next_position = position[each] + 1
    return axes


def _merged_digits(fmt: Format, shape: Shape, resized: Collection[int], merges: bool) -> _Digits:
    """The digits of a format in memory order, merged if `merges` is set; every resized axis keeps at least one digit."""
    if not merges:
        return fmt.digits(shape)
    merged: list[Digit] = []
    for digit in fmt.digits(shape):
        if digit.extent == 1 and not (digit.axis in resized and digit.span == 1):
            continue
        if merged and (joined := merged[-1].joined(digit)):
            merged[-1] = joined
        else:
            merged.append(digit)
    return tuple(merged)


def _transposed_extent(axis: int, sizes: tuple[Dim, Dim, Dim], digits: tuple[_Digits, _Digits]) -> Dim | None:
    """The extent of an axis in the Transpose; None if one Transpose cannot convert the axis.

    An axis is cut and padded in multiples of the span of its outermost digit, on one of the two sides.

    Args:
        axis: the axis.
        sizes: its extents in the source, of the tensor, and in the destination.
        digits: the digits of the source and the destination.
    """
    if any(outer % inner for outer, inner in pairwise(_common_spans(axis, digits))):
        return None
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) < len(sizes) or sizes[0] == sizes[2]:
        return sizes[0]
    source, logical, destination = numbers
    granularities = [max(digit.span for digit in side if digit.axis == axis) for side in digits]
    sides = zip((destination, source), granularities, strict=True)
    return min((size for size, granularity in sides if size % granularity == 0 == logical % granularity), default=None)


def _common_spans(axis: int, digits: tuple[_Digits, _Digits]) -> list[int]:
    """The spans of an axis on either side, the largest first."""
    return sorted({digit.span for side in digits for digit in side if digit.axis == axis}, reverse=True)


def _refined_digits(digits: _Digits, common_spans: Sequence[Sequence[int]], sizes: Shape) -> Iterator[Digit]:
    """The common refinement of digits of one format: each is cut at the common spans of its axis."""
    for digit, larger in zip(digits, _spans_above(digits), strict=True):
        spans = common_spans[digit.axis]
        start = 0 if larger is None else spans.index(larger) + 1
        for index in range(start, spans.index(digit.span) + 1):
            outer = sizes[digit.axis] if index == 0 else spans[index - 1]
            yield Digit(digit.axis, spans[index], quotient(outer, spans[index]))


def _extents(digits: _Digits, sizes: Shape) -> Shape:
    """The extents of the digits for axes of the given sizes, which determine the outermost digit of each axis."""
    pairs = zip(digits, _spans_above(digits), strict=True)
    return tuple(quotient(sizes[each.axis], each.span) if larger is None else each.extent for each, larger in pairs)


def _spans_above(digits: _Digits) -> list[int | None]:
    """For each digit the span of the next more significant one of its axis; None for the outermost one."""
    spans = [{each.span for each in digits if each.axis == digit.axis} for digit in digits]
    larger = ([span for span in own if span > digit.span] for digit, own in zip(digits, spans, strict=True))
    return [min(each, default=None) for each in larger]


def _sort_key(steps: Sequence[Step]) -> tuple[int, int, int]:
    """The sort key of a conversion: the number of copies, then of steps, then of transposed axes."""
    copies = sum(not isinstance(step, Reshape) for step in steps)
    return copies, len(steps), sum(len(step.perm) for step in steps if isinstance(step, Transpose))
