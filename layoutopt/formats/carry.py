"""Carry a Format through a Reshape: the format of the result in which the same bytes are the reshaped tensor.

A Reshape keeps the row-major order of the logical elements, so both shapes are two ways of cutting one mixed
radix number. Both are cut at every boundary of either shape and of the blocks of the format:

    (N, C=64, H, W) in NCHW16c  ->  (N, 4, 16, H, W):    N 4 H W 16 stays as it lies, and reads  N g H W c

The parts of the format become runs of these factors, and each new axis is a run of factors of its own. In which
order they lie does not matter, since the digits of an axis may lie in any:

    (N, 2, C, H, W) in N H W 2 C, the 2 and C merged after a Transpose  ->  NHW2cC    a channel shuffle moves nothing

The result exists if the cuts of both sides divide one another, or where an axis is carried as a whole. Factors
that meet in memory and continue each other merge into one part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Dim
from layoutopt.formats.format import Format, Part, Shape, volume


@dataclass(frozen=True, slots=True)
class _Factor:
    """A piece of an axis of the result; a rigid one does not merge with its neighbours."""

    axis: int
    span: int
    extent: Dim
    rigid: bool = False


_Pieces = dict[int, list[_Factor]]
"""The factors of some parts of a format, by the index of the part."""


def carry(fmt: Format, before: Shape, after: Shape) -> Format | None:
    """The format of Reshape(x, after) that leaves the bytes of x, of shape `before` in `fmt`, as they are.

    Symbolic extents are matched by their names, or as what remains between matching ends. A blocked axis with
    lanes has to be carried as a whole. The canonical format is always carried to the canonical one. Where an
    axis of extent 1 stands does not matter to the bytes: it goes right behind the axis before it.

    Returns:
        The format, or None if no format describes those bytes.

    Raises:
        FormatError: `fmt` does not fit `before`, or the shapes have different numbers of elements.
    """
    fmt.check(before)
    stored, wanted = volume(before), volume(after)
    if stored != wanted and not stored[1] and not wanted[1]:
        raise FormatError(f"a Reshape from {before} to {after} changes the number of elements", where=str(fmt))
    if before == after:
        return fmt
    if fmt.is_canonical or not stored[0]:
        return Format.canonical(len(after))
    if stored != wanted and stored[1] == wanted[1]:  # at no size is it a Reshape
        return None
    if any(before[axis] == 1 for axis in fmt.blocked_axes):
        return None
    factors: dict[int, list[_Factor]] = {}
    for group in _groups(fmt, before, after):
        pieces = group.whole() or group.refined() or group.opaque()
        if pieces is None:
            return None
        factors.update(pieces)
    return _assembled([factor for index in sorted(factors) for factor in factors[index]], after)


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring axes `here` of one shape that hold the same elements as the axes `there` of the other."""

    fmt: Format
    before: Shape
    after: Shape
    here: tuple[int, ...]
    there: tuple[int, ...]

    def whole(self) -> _Pieces | None:
        """One axis that becomes one axis keeps its blocks and its lanes."""
        if len(self.here) != 1 or len(self.there) != 1:
            return None
        spans, extents = self.fmt.spans, self.fmt.physical_shape(self.before)
        return {index: [_Factor(self.there[0], spans[index], extents[index], rigid=True)] for index in self._parts()}

    def refined(self) -> _Pieces | None:
        """The factors between the cuts of both sides, if these divide one another and there are no lanes."""
        here, there = _weights(self.here, self.before), _weights(self.there, self.after)
        if here is None or there is None or any(size % self.fmt.block(axis) for axis, (_, size) in here.items()):
            return None
        extents = self.fmt.physical_shape(self.before)
        start = {index: here[self.fmt.parts[index].axis][0] * self.fmt.spans[index] for index in self._parts()}
        stop = {index: low * int(extents[index]) for index, low in start.items()}
        cuts = sorted({*start.values(), *stop.values(), *(weight for weight, _ in there.values())}, reverse=True)
        if any(outer % inner for outer, inner in pairwise(cuts)):
            return None
        factors = {
            cut: _Factor(axis, cut // weight, outer // cut)
            for axis, (weight, size) in there.items()
            for outer, cut in pairwise(cuts)
            if weight <= cut < weight * size
        }
        return {index: [factors[cut] for cut in cuts if low <= cut < stop[index]] for index, low in start.items()}

    def opaque(self) -> _Pieces | None:
        """Axes that lie together, in order, hold the new axes in order, whatever the extents."""
        parts = self._parts()
        if [self.fmt.parts[index] for index in parts] != [Part(axis) for axis in self.here]:
            return None
        extents = self.fmt.physical_shape(self.before)
        reach = range(parts[0], parts[-1] + 1) if parts else ()
        if [index for index in reach if extents[index] != 1] != parts:
            return None
        held = [_Factor(axis, 1, self.after[axis], rigid=True) for axis in self.there]
        return {index: held if index == parts[0] else [] for index in parts}

    def _parts(self) -> list[int]:
        return [index for index, part in enumerate(self.fmt.parts) if part.axis in self.here]


def _groups(fmt: Format, before: Shape, after: Shape) -> Iterator[_Group]:
    """The axes of extents other than 1, cut where equally much lies to the left, or to the right."""
    left = [axis for axis, dim in enumerate(before) if dim != 1]
    right = [axis for axis, dim in enumerate(after) if dim != 1]
    here, there = [before[axis] for axis in left], [after[axis] for axis in right]
    ends = {volume(there[:index]): index for index in range(len(there) + 1)}
    cuts = [(index, ends[key]) for index in range(len(here) + 1) if (key := volume(here[:index])) in ends]
    if cuts[-1] != (len(here), len(there)):
        ends = {volume(there[index:]): index for index in range(cuts[-1][1], len(there) + 1)}
        tail = range(cuts[-1][0], len(here) + 1)
        cuts += [(index, ends[key]) for index in tail if (key := volume(here[index:])) in ends]
    for (start, first), (stop, last) in pairwise(cuts):
        yield _Group(fmt, before, after, tuple(left[start:stop]), tuple(right[first:last]))


def _weights(axes: tuple[int, ...], shape: Shape) -> dict[int, tuple[int, int]] | None:
    """Weight and extent of each axis in the number that they form together; None if one is symbolic."""
    weights: dict[int, tuple[int, int]] = {}
    total = 1
    for axis in reversed(axes):
        size = shape[axis]
        if isinstance(size, str):
            return None
        weights[axis] = total, size
        total *= size
    return weights


def _assembled(factors: list[_Factor], after: Shape) -> Format:
    """Factors in memory order as a format: the most significant one of an axis is its outer part."""
    placed: list[_Factor] = []
    for factor in factors:
        last = next((index for index in reversed(range(len(placed))) if placed[index].extent != 1), None)
        if last is not None and _continues(placed[last], factor):
            placed[last] = _Factor(factor.axis, factor.span, int(placed[last].extent) * int(factor.extent))
        else:
            placed.append(factor)
    outer: dict[int, int] = {}
    for factor in placed:
        outer[factor.axis] = max(factor.span, outer.get(factor.axis, 0))
    parts: list[Part] = []
    for factor in placed:
        is_outer = factor.span == outer[factor.axis]
        parts.append(Part(factor.axis) if is_outer else Part(factor.axis, int(factor.extent), factor.span))
    for axis in range(len(after)):
        if axis not in outer:
            parts.insert(parts.index(Part(axis - 1)) + 1 if axis else 0, Part(axis))
    return Format(tuple(parts))


def _continues(last: _Factor, factor: _Factor) -> bool:
    same = last.axis == factor.axis and not (last.rigid or factor.rigid)
    return same and last.span == factor.span * int(factor.extent)
