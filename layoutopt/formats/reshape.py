"""Propagation of a Format through a Reshape: the format in which the same bytes are the reshaped tensor.

A Reshape keeps the row-major order of the logical elements, so both shapes are factorisations of one row-major index.
The index is cut at every boundary of either shape and of the blocks of the format:

    (N, C=64, H, W) in NCHW16c  ->  (N, 4, 16, H, W):    the physical array N 4 H W 16 stays, with the axes N g H W c

The parts of the format become runs of these digits, and each new axis consists of the digits within its extent. Their order in
memory does not matter, since a format allows the digits of an axis in any order:

    (N, 2, C, H, W) in N H W 2 C, the 2 and C merged after a Transpose  ->  NHW2cC    a channel shuffle moves nothing

The result exists if the cuts of both sides divide one another. Besides, an axis that becomes one axis keeps its blocks, and
axes that are contiguous in memory and in order become the new axes in order. Digits that are neighbours in memory and continue
each other merge into one part.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Extent, Shape, volume
from layoutopt.formats.format import Digit, Format, Part
from layoutopt.record import Record

_DigitsByPart = dict[int, list[Digit]]
"""Digits of the result's axes, by the index of the part of the format that contains them."""


def propagate_reshape(fmt: Format, before: Shape | None, after: Shape | None) -> Format | None:
    """The format of Reshape(x, after) that has the same bytes as x, of shape `before` in `fmt`.

    Symbolic extents are matched by name, or as the remainder between matching axes. A blocked axis with padding must become
    one axis of the same extent. The canonical format always propagates to the canonical format. An axis of extent 1, whose
    position changes no bytes, is placed right behind the axis before it.

    Returns:
        The format, or None if no format describes those bytes, or if a shape is not known.

    Raises:
        FormatError: `fmt` does not fit `before`, or the shapes have different numbers of elements.
    """
    if before is None or after is None:
        return None
    fmt.check(before)
    stored, required = volume(before), volume(after)
    if stored != required and not stored[1] and not required[1]:
        raise FormatError(f"a Reshape from {before} to {after} changes the number of elements", where=str(fmt))
    if before == after:
        return fmt
    if fmt.is_canonical or not stored[0]:
        return Format.canonical(len(after))
    if stored != required and stored[1] == required[1]:  # the numbers of elements differ at every size
        return None
    if any(before[axis] == 1 for axis in fmt.blocked_axes):
        return None
    digits: _DigitsByPart = {}
    unsplit: set[int] = set()
    for group in _groups(fmt, before, after):
        refined = None if group.is_single_axis else group.refined()
        new_digits = refined or group.unsplit()
        if new_digits is None:
            return None
        digits.update(new_digits)
        if not refined:
            unsplit.update(group.new_axes)
    return _format_of([digit for index in sorted(digits) for digit in digits[index]], unsplit, len(after))


class _Group(Record):
    """Neighbouring axes of the old shape that hold the same elements as neighbouring axes of the new shape."""

    fmt: Format
    before: Shape
    after: Shape
    old_axes: tuple[int, ...]
    new_axes: tuple[int, ...]

    @property
    def is_single_axis(self) -> bool:
        """Whether one axis becomes one axis, which keeps its blocks and its padding."""
        return len(self.old_axes) == len(self.new_axes) == 1

    def refined(self) -> _DigitsByPart | None:
        """The digits between the cuts of both shapes, if the cuts divide one another and there is no padding."""
        old, new = _spans_and_extents(self.old_axes, self.before), _spans_and_extents(self.new_axes, self.after)
        if old is None or new is None or any(size % self.fmt.block(axis) for axis, (_, size) in old.items()):
            return None
        digits = self.fmt.digits(self.before)
        start = {index: old[digits[index].axis][0] * digits[index].span for index in self._parts()}
        stop = {index: low * int(digits[index].extent) for index, low in start.items()}
        cuts = sorted({*start.values(), *stop.values(), *(span for span, _ in new.values())}, reverse=True)
        if any(outer % inner for outer, inner in pairwise(cuts)):
            return None
        new_digits = {
            cut: Digit(axis, cut // span, outer // cut)
            for axis, (span, size) in new.items()
            for outer, cut in pairwise(cuts)
            if span <= cut < span * size
        }
        return {index: [new_digits[cut] for cut in cuts if low <= cut < stop[index]] for index, low in start.items()}

    def unsplit(self) -> _DigitsByPart | None:
        """The digits of a single axis, or the new axes in order if the old ones are contiguous in memory and in order."""
        parts = self._parts()
        if self.is_single_axis:
            digits = self.fmt.digits(self.before)
            return {index: [Digit(self.new_axes[0], digits[index].span, digits[index].extent)] for index in parts}
        if [self.fmt.parts[index] for index in parts] != [Part(axis) for axis in self.old_axes]:
            return None
        extents = self.fmt.physical_shape(self.before)
        range_of_parts = range(parts[0], parts[-1] + 1) if parts else ()
        if [index for index in range_of_parts if extents[index] != 1] != parts:
            return None
        new_digits = [Digit(axis, 1, self.after[axis]) for axis in self.new_axes]
        return {index: new_digits if index == parts[0] else [] for index in parts}

    def _parts(self) -> list[int]:
        return [index for index, part in enumerate(self.fmt.parts) if part.axis in self.old_axes]


def _groups(fmt: Format, before: Shape, after: Shape) -> Iterator[_Group]:
    """The axes of extents other than 1, cut where the volumes to the left are equal, or those to the right."""
    left = [axis for axis, dim in enumerate(before) if dim != 1]
    right = [axis for axis, dim in enumerate(after) if dim != 1]
    old, new = [before[axis] for axis in left], [after[axis] for axis in right]
    ends = {volume(new[:index]): index for index in range(len(new) + 1)}
    cuts = [(index, ends[key]) for index in range(len(old) + 1) if (key := volume(old[:index])) in ends]
    if cuts[-1] != (len(old), len(new)):
        ends = {volume(new[index:]): index for index in range(cuts[-1][1], len(new) + 1)}
        tail = range(cuts[-1][0], len(old) + 1)
        cuts += [(index, ends[key]) for index in tail if (key := volume(old[index:])) in ends]
    for (start, first), (stop, last) in pairwise(cuts):
        yield _Group(fmt, before, after, tuple(left[start:stop]), tuple(right[first:last]))


def _spans_and_extents(axes: tuple[int, ...], shape: Shape) -> dict[int, tuple[int, int]] | None:
    """Span and extent of each axis in the row-major index of all of them; None if an extent is symbolic."""
    found: dict[int, tuple[int, int]] = {}
    span = 1
    for axis in reversed(axes):
        size = shape[axis]
        if isinstance(size, Extent):
            return None
        found[axis] = span, size
        span *= size
    return found


def _format_of(digits: list[Digit], unsplit: Collection[int], rank: int) -> Format:
    """Digits in memory order as a format: the most significant one of an axis is its outer part.

    Args:
        digits: of all axes, outermost first.
        unsplit: axes whose digits are not merged, since they are the parts of the old format.
        rank: the number of axes.
    """
    merged: list[Digit] = []
    for digit in digits:
        last = next((index for index in reversed(range(len(merged))) if merged[index].extent != 1), None)
        joined = None if last is None or digit.axis in unsplit else merged[last].joined(digit)
        if last is not None and joined is not None:
            merged[last] = joined
        else:
            merged.append(digit)
    outer: dict[int, int] = {}
    for digit in merged:
        outer[digit.axis] = max(digit.span, outer.get(digit.axis, 0))
    parts: list[Part] = []
    for digit in merged:
        is_outer = digit.span == outer[digit.axis]
        parts.append(Part(digit.axis) if is_outer else Part(digit.axis, int(digit.extent), digit.span))
    for axis in range(rank):
        if axis not in outer:
            parts.insert(parts.index(Part(axis - 1)) + 1 if axis else 0, Part(axis))
    return Format(tuple(parts))
