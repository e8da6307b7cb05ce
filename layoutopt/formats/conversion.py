"""A Conversion copies one logical tensor from one Format to another.

It is a pair of formats, never a permutation: what it does to bytes follows from the shape. Its shortest
spelling in array operations is found on *digits*. Each part of either format covers a run of digits of its
axis, and the common refinement of the spans of both formats cuts the axis into atoms that both only reorder:

    NCHW16c -> NCHW8c:   N C16 H W 2 8   ->   N C16 2 H W 8         one Transpose, between two Reshapes

What remains is the padded extent of a blocked axis. It may change where the outer digits of the axis stand
together: on the source side before the Transpose, or on the destination side after it, in multiples of what
lies further in. Where neither works, or the two formats have no common refinement, the chain goes through a
format in which those axes, or all of them, are whole.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Self

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Dim
from layoutopt.formats.format import Format, Shape, quotient
from layoutopt.formats.pack import Array
from layoutopt.formats.steps import Chain, Reshape, Step, Transpose, run


@dataclass(frozen=True, slots=True)
class Conversion:
    """The copy of one logical tensor from the format `src` to the format `dst`.

    Raises:
        FormatError: the formats differ in rank.
    """

    src: Format
    dst: Format

    def __post_init__(self) -> None:
        """Check that both formats can be of one tensor."""
        if self.src.rank != self.dst.rank:
            raise FormatError(f"{self.src} and {self.dst} have different ranks", hint="convert one logical tensor")

    def then(self, other: Self) -> Self:
        """This conversion followed by another one.

        Raises:
            FormatError: the other one does not start from the format in which this one ends.
        """
        if other.src != self.dst:
            raise FormatError(f"a conversion to {self.dst} cannot be followed by one from {other.src}")
        return type(self)(self.src, other.dst)

    @property
    def inverse(self) -> Self:
        """The conversion back."""
        return type(self)(self.dst, self.src)

    def is_identity(self, shape: Shape) -> bool:
        """Whether both formats put a tensor of this shape into the same bytes.

        Raises:
            FormatError: one of the formats does not fit the shape.
        """
        return self.src == self.dst or self.src.key(shape) == self.dst.key(shape)

    def moves(self, shape: Shape) -> bool:
        """Whether bytes move: the opposite of `is_identity`."""
        return not self.is_identity(shape)

    def steps(self, shape: Shape, *, trust_lanes: bool = False) -> tuple[Step, ...]:
        """The chain of array operations that converts with the fewest copies; a Reshape is none.

        Lanes that the destination adds are zero. An axis that both formats pad to the same extent keeps its
        lanes as they are; otherwise the source's lanes are cut off first, unless they are trusted.

        Args:
            shape: the logical shape; axes that neither format blocks may be symbolic.
            trust_lanes: the source's lanes are known to be zero and may serve as those of the destination.

        Returns:
            The steps, from the physical shape of `src` to that of `dst`; none if they are the same bytes and
            shape.

        Raises:
            FormatError: one of the formats does not fit the shape.
        """
        return _shortest(self, shape, trust_lanes)

    def apply(self, physical: Array, shape: tuple[int, ...], *, trust_lanes: bool = False) -> Array:
        """Run the steps on the memory of a tensor, in numpy.

        Raises:
            FormatError: a format does not fit the shape, or the array is not the source's memory of it.
        """
        expected = self.src.physical_shape(shape)
        if physical.shape != expected:
            raise FormatError(f"an array of shape {physical.shape} is given, not {expected}", where=str(self.src))
        for step in self.steps(shape, trust_lanes=trust_lanes):
            physical = run(step, physical)
        return physical


@dataclass(frozen=True, slots=True)
class _Digit:
    """A level of an axis at one place in memory: `extent` steps of `span` elements."""

    axis: int
    span: int
    extent: Dim


_View = tuple[_Digit, ...]


@lru_cache(maxsize=1 << 14)
def _shortest(conversion: Conversion, shape: Shape, trust: bool) -> tuple[Step, ...]:
    """The steps of a conversion; cached, since a model asks for the same few over and over."""
    src, dst = conversion.src, conversion.dst
    if conversion.is_identity(shape):
        chain = Chain(src.physical_shape(shape))
        chain.reshape(dst.physical_shape(shape))
        return chain.steps
    passages = [_Passage.make(conversion, shape, lean=lean, trust=trust) for lean in (False, True)]
    chains = [passage.steps() for passage in passages if not passage.stubborn]
    detours = product((src, dst), (passages[-1].stubborn, range(src.rank))) if not chains else ()
    for fmt, axes in detours:
        whole = fmt.without_blocks(axes)
        halves = Conversion(src, whole), Conversion(whole, dst)
        steps = [step for half in halves for step in _shortest(half, shape, trust)]
        chains.append(Chain(src.physical_shape(shape), steps).steps)
    return min(chains, key=_effort)


@dataclass(frozen=True, slots=True)
class _Passage:
    """How one Transpose converts: the digits on both sides, and the extent of every axis on its way through.

    A lean passage joins digits that continue each other and drops those of extent 1; any other takes the
    parts as they are. `have`, `kept` and `want` are the extents of the axes in the source, after the source's
    lanes are cut off, and in the destination, `moved` those in between; `stubborn` are the axes that one
    Transpose cannot convert.
    """

    conversion: Conversion
    shape: Shape
    views: tuple[_View, _View]
    have: Shape
    kept: Shape
    want: Shape
    moved: Shape
    stubborn: tuple[int, ...]
    lean: bool

    @classmethod
    def make(cls, conversion: Conversion, shape: Shape, *, lean: bool, trust: bool) -> Self:
        """The passage for one shape."""
        src, dst = conversion.src, conversion.dst
        have, want = src.padded_shape(shape), dst.padded_shape(shape)
        resized = {axis for axis, (old, new) in enumerate(zip(have, want, strict=True)) if old != new}
        views = _view(src, shape, resized, lean), _view(dst, shape, resized, lean)
        kept = tuple(map(_smaller, have, want)) if trust else shape
        moved = [_moved(axis, sizes, views) for axis, sizes in enumerate(zip(have, kept, want, strict=True))]
        stubborn = tuple(axis for axis, dim in enumerate(moved) if dim is None)
        through = tuple(dim for dim in moved if dim is not None)
        return cls(conversion, shape, views, have, kept, want, through, stubborn, lean)

    def steps(self) -> tuple[Step, ...]:
        """Resize on the source side, transpose, resize on the destination side."""
        src, dst = self.views
        chain = Chain(self.conversion.src.physical_shape(self.shape))
        chain.reshape(_extents(src, self.have))
        chain.resize(_extents(src, self.moved), _extents(src, self.kept))
        runs = self._runs()
        chain.reshape(tuple(extent for _, extent in runs))
        chain.transpose(tuple(sorted(range(len(runs)), key=lambda index: runs[index][0])))
        chain.reshape(_extents(dst, self.moved))
        chain.resize(_extents(dst, self.want), _extents(dst, self.kept))
        chain.reshape(self.conversion.dst.physical_shape(self.shape))
        return chain.steps

    def _runs(self) -> list[tuple[int, Dim]]:
        """What the Transpose moves, in source order: the place in the destination, and the extent."""
        grid = [_grid(axis, self.views) for axis in range(len(self.moved))]
        place = {atom: index for index, atom in enumerate(_atoms(self.views[1], grid, self.moved))}
        runs: list[tuple[int, Dim]] = []
        follower = -1
        for atom in _atoms(self.views[0], grid, self.moved):
            last = runs[-1][1] if self.lean and place[atom] == follower else ""
            if isinstance(last, int) and isinstance(atom.extent, int):
                runs[-1] = runs[-1][0], last * atom.extent
            else:
                runs.append((place[atom], atom.extent))
            follower = place[atom] + 1
        return runs


def _view(fmt: Format, shape: Shape, resized: Collection[int], lean: bool) -> _View:
    """The digits of a format in memory order; a lean view keeps one of each axis that is resized."""
    parts = zip(fmt.parts, fmt.spans, fmt.physical_shape(shape), strict=True)
    view: list[_Digit] = []
    for digit in (_Digit(part.axis, span, extent) for part, span, extent in parts):
        if lean and digit.extent == 1 and not (digit.axis in resized and digit.span == 1):
            continue
        if lean and view and (joint := _joint(view[-1], digit)):
            view[-1] = joint
        else:
            view.append(digit)
    return tuple(view)


def _joint(outer: _Digit, inner: _Digit) -> _Digit | None:
    """Two digits side by side as one; None if the inner one does not continue the outer one."""
    if isinstance(outer.extent, str) or isinstance(inner.extent, str):
        return None
    if outer.axis != inner.axis or outer.span != inner.span * inner.extent:
        return None
    return _Digit(inner.axis, inner.span, outer.extent * inner.extent)


def _moved(axis: int, sizes: tuple[Dim, Dim, Dim], views: tuple[_View, _View]) -> Dim | None:
    """The extent with which an axis goes through the Transpose; None if it cannot.

    An axis is cut and filled in multiples of what lies within its outermost digit, on one of the two sides.
    """
    have, kept, want = sizes
    spans = _grid(axis, views)
    if any(outer % inner for outer, inner in pairwise(spans)):
        return None
    if isinstance(have, str) or isinstance(want, str) or isinstance(kept, str) or have == want:
        return have
    grains = [max(digit.span for digit in view if digit.axis == axis) for view in views]
    sides = zip((want, have), grains, strict=True)
    return min((size for size, grain in sides if size % grain == 0 == kept % grain), default=None)


def _grid(axis: int, views: tuple[_View, _View]) -> list[int]:
    """The spans of an axis on either side, the largest first."""
    return sorted({digit.span for view in views for digit in view if digit.axis == axis}, reverse=True)


def _atoms(view: _View, grid: Sequence[Sequence[int]], sizes: Shape) -> Iterator[_Digit]:
    """The digits of a view, cut at the spans of the grid."""
    above = _spans_above(view)
    for digit, larger in zip(view, above, strict=True):
        spans = grid[digit.axis]
        start = 0 if larger is None else spans.index(larger) + 1
        for index in range(start, spans.index(digit.span) + 1):
            outer = sizes[digit.axis] if index == 0 else spans[index - 1]
            yield _Digit(digit.axis, spans[index], quotient(outer, spans[index]))


def _extents(view: _View, sizes: Shape) -> Shape:
    """The extents of the digits when the axes have these sizes: the outermost digit of each axis adapts."""
    digits = zip(view, _spans_above(view), strict=True)
    return tuple(quotient(sizes[each.axis], each.span) if larger is None else each.extent for each, larger in digits)


def _spans_above(view: _View) -> list[int | None]:
    """For each digit the span of the next more significant one of its axis; None for the outermost one."""
    spans = [sorted({each.span for each in view if each.axis == digit.axis}) for digit in view]
    places = [own.index(digit.span) + 1 for digit, own in zip(view, spans, strict=True)]
    return [own[place] if place < len(own) else None for own, place in zip(spans, places, strict=True)]


def _smaller(left: Dim, right: Dim) -> Dim:
    return min(left, right) if isinstance(left, int) and isinstance(right, int) else left


def _effort(steps: Sequence[Step]) -> tuple[int, int, int]:
    """Fewest copies first, then fewest steps, then fewest transposed axes."""
    copies = sum(not isinstance(step, Reshape) for step in steps)
    return copies, len(steps), sum(len(step.perm) for step in steps if isinstance(step, Transpose))
