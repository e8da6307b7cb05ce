"""The algebra of layouts: layouts as functions from integers to integers, whose results are layouts again.

    coalesce(A)(i) = A(i)                       in as few modes as possible
    composition(A, B)(i) = A(B(i))
    complement(A, n) = A*                       (A, A*) has every integer below n once
    A(right_inverse(A)(i)) = i                  left_inverse(A)(A(i)) = i

Not every function is a layout. If a result is no layout, the function raises an error instead of returning another layout.

Source: CUTLASS include/cute/layout.hpp and media/docs/cpp/cute/02_layout_algebra.md, with examples and post-conditions. The
composition has another algorithm than in CuTe, which also finds results that CuTe's divisibility conditions exclude, and is
never wrong where a sum of digits carries.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeAlias, overload

from layoutopt.errors import FormatError
from layoutopt.systems.cute.int_tuple import IntTuple, nested, product
from layoutopt.systems.cute.layout import CuteLayout, make_layout
from layoutopt.systems.cute.swizzle import ComposedLayout, Swizzle

Tiler: TypeAlias = CuteLayout | int | tuple["Tiler", ...] | None
"""A layout or an extent for the whole layout, a tuple for its modes one by one, or None for no change."""

Mode: TypeAlias = tuple[int, int]
"""Extent and stride."""


def by_mode(
    layout: CuteLayout, tiler: tuple[Tiler, ...], function: Callable[[CuteLayout, Tiler], CuteLayout]
) -> CuteLayout:
    """The layout with a function applied to each mode and its tiler; modes without a tiler stay as they are.

    Raises:
        FormatError: there are fewer modes than tilers.
    """
    if layout.rank < len(tiler):
        raise FormatError(f"has {layout.rank} modes, not {len(tiler)}", where=str(layout), hint="give it fewer tilers")
    pairs = zip_longest(layout, tiler)
    return make_layout(*(mode if part is None else function(mode, part) for mode, part in pairs))


def coalesce(layout: CuteLayout, profile: IntTuple | None = None) -> CuteLayout:
    """The same function of one integer in as few modes as possible; with a profile, mode by mode.

    `(2,(1,6)):(1,(6,2))` is `12:1`; with the profile `(1,1)` it is `(2,6):(1,2)`.
    """
    if isinstance(profile, tuple):
        kept: tuple[Tiler, ...] = tuple(1 for _ in profile)
        profiles = iter(profile)
        return by_mode(layout, kept, lambda mode, _: coalesce(mode, next(profiles)))
    return _layout(_merged(mode for mode in layout.flat() if mode[0] > 1))


@overload
def composition(outer: Swizzle, inner: CuteLayout) -> ComposedLayout: ...


@overload
def composition(outer: CuteLayout, inner: Tiler) -> CuteLayout: ...


def composition(outer: CuteLayout | Swizzle, inner: Tiler) -> CuteLayout | ComposedLayout:
    """The function `outer(inner(i))`; every coordinate of `inner` is one of the result.

    The stride of a mode of `inner` has digits in the extents of `outer`. As long as no digit carries, i steps have i times the
    offset of one step, which makes a mode of the result; where a digit wraps around, the next mode begins. The modes of `inner`
    are added, so the sum of their digits must not carry either.

    Args:
        outer: a layout, or a swizzle.
        inner: a layout; an extent n means n:1; a tuple is applied mode by mode.

    Raises:
        FormatError: the function is no layout of these modes, or there are not enough of them.
    """
    if isinstance(outer, Swizzle):
        if not isinstance(inner, CuteLayout):
            raise FormatError(f"a swizzle is applied to a layout, not to {inner}", where=str(outer))
        return ComposedLayout(outer, 0, inner)
    if inner is None:
        return outer
    if isinstance(inner, tuple):
        return by_mode(outer, inner, composition)
    inner = CuteLayout(inner) if isinstance(inner, int) else inner
    modes = _radices(outer)
    room = [extent - 1 for extent, _ in modes[:-1]]
    leaves: list[CuteLayout] = []
    for extent, stride in inner.flat():
        pieces = _pieces(modes, extent, stride)
        if pieces is None:
            raise _no_layout(outer, inner)
        for count, step in pieces:
            for index, digit in enumerate(_digits(modes, step)[:-1]):
                room[index] -= (count - 1) * digit
        leaves.append(_layout(_merged((count, _at(modes, step)) for count, step in pieces)))
    if min(room, default=0) < 0:
        raise _no_layout(outer, inner)
    shapes, strides = [leaf.shape for leaf in leaves], [leaf.stride for leaf in leaves]
    return CuteLayout(nested(shapes, inner.shape), nested(strides, inner.shape))


def complement(layout: CuteLayout, cotarget: IntTuple | None = None) -> CuteLayout:
    """The layout of the integers that a layout does not have: (layout, complement) has every integer below `cotarget` once.

    Its strides ascend. If `cotarget` is no multiple of the block of the layout, it is rounded up.

    Args:
        layout: the layout; modes of stride 0 are ignored.
        cotarget: a number, or a shape of that size; by default the cosize of the layout.

    Raises:
        FormatError: the layout has values more than once, or its gaps are no multiples of its blocks.
    """
    target = layout.cosize if cotarget is None else product(cotarget)
    covered, modes = 1, []
    for stride, extent in sorted((stride, extent) for extent, stride in layout.flat() if extent > 1 and stride):
        if stride % covered:
            raise FormatError("overlaps, or its gaps are no multiples of its blocks", where=str(layout))
        modes.append((stride // covered, covered))
        covered = stride * extent
    modes.append((-(-target // covered), covered))
    return _layout(_merged(mode for mode in modes if mode[0] > 1))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """The longest layout with `layout(result(i)) = i`: the coordinates of 0, 1, 2, ..."""
    modes_by_stride: dict[int, Mode] = {}
    count = 1
    for extent, stride in _merged(mode for mode in layout.flat() if mode[0] > 1):
        modes_by_stride.setdefault(stride, (extent, count))
        count *= extent
    modes, reached = [], 1
    while reached in modes_by_stride:
        extent, stride = modes_by_stride.pop(reached)
        modes.append((extent, stride))
        reached *= extent
    return _layout(_merged(modes))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """The layout with `result(layout(i)) = i`.

    Raises:
        FormatError: the layout has values more than once, or its gaps are no multiples of its blocks.
    """
    if any(extent > 1 and not stride for extent, stride in layout.flat()):
        raise FormatError("has values more than once", where=str(layout))
    return right_inverse(make_layout(layout, complement(layout)))


def max_common_vector(left: CuteLayout, right: CuteLayout) -> int:
    """The number of elements that are contiguous in both layouts of one tensor, from the first on: the widest vector access."""
    first = next(coalesce(composition(left, right_inverse(right))).flat())
    return first[0] if first[1] == 1 else 1


def _merged(modes: Iterable[Mode]) -> list[Mode]:
    """The modes, with consecutive contiguous modes merged."""
    merged: list[Mode] = []
    for extent, stride in modes:
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = merged[-1][0] * extent, merged[-1][1]
        else:
            merged.append((extent, stride))
    return merged


def _layout(modes: Sequence[Mode]) -> CuteLayout:
    """The layout of modes: `1:0` for none, without a tuple for one."""
    if len(modes) < 2:
        return CuteLayout(*modes[0]) if modes else CuteLayout(1, 0)
    return CuteLayout(tuple(extent for extent, _ in modes), tuple(stride for _, stride in modes))


def _radices(layout: CuteLayout) -> list[Mode]:
    """The modes as the digits of an integer; the last one is unbounded, so it is kept even if its extent is 1."""
    flat = list(layout.flat()) or [(1, 0)]
    return _merged([*(mode for mode in flat[:-1] if mode[0] > 1), flat[-1]])


def _digits(modes: Sequence[Mode], number: int) -> list[int]:
    digits = []
    for extent, _ in modes[:-1]:
        number, digit = divmod(number, extent)
        digits.append(digit)
    return [*digits, number]


def _at(modes: Sequence[Mode], number: int) -> int:
    """The value of the layout with these modes."""
    return sum(digit * stride for digit, (_, stride) in zip(_digits(modes, number), modes, strict=True))


def _pieces(modes: Sequence[Mode], extent: int, stride: int) -> list[Mode] | None:
    """The mode extent:stride, split where a digit wraps around; None if it cannot be split there."""
    if extent == 1:
        return [(1, 0)]
    pieces: list[Mode] = []
    while extent > 1:
        digits = zip(_digits(modes, stride)[:-1], modes, strict=False)
        count = min([extent, *((radix - 1) // digit + 1 for digit, (radix, _) in digits if digit)])
        if extent % count:
            return None
        pieces.append((count, stride))
        extent, stride = extent // count, stride * count
    return pieces


def _no_layout(outer: CuteLayout, inner: CuteLayout) -> FormatError:
    return FormatError(
        f"the composition with {inner} is no layout", where=str(outer), hint="divide along its modes only"
    )
