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
from layoutopt.formats import Conversion, Format, Layout, Part
from layoutopt.systems.cute.layout import ComposedLayout, CuteLayout, IntTuple, Swizzle, make_layout, nested, product

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


# --- Division and product: a layout split into tiles, and copies of a layout arranged by another one ---
#
#     logical_divide(A, B)  = A o (B, B*)         the tile that B selects, and the offsets of the other tiles
#     logical_product(A, B) = (A, A* o B)         A, and the offsets of its copies
#
# The other functions rearrange the same modes, here for a layout (M, N, L) and tilers of its first two modes:
#
#     logical_divide   ((TileM, RestM), (TileN, RestN), L)        logical_product   ((M, TileM), (N, TileN), L)
#     zipped_divide    ((TileM, TileN), (RestM, RestN, L))        zipped_product    ((M, N), (TileM, TileN, L))
#     tiled_divide     ((TileM, TileN), RestM, RestN, L)          tiled_product     ((M, N), TileM, TileN, L)
#     flat_divide      (TileM, TileN, RestM, RestN, L)            flat_product      (M, N, TileM, TileN, L)
#
# Source: CUTLASS include/cute/layout.hpp and media/docs/cpp/cute/02_layout_algebra.md.


_Split = Callable[[CuteLayout, Tiler], CuteLayout]


def logical_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """Two modes: the tile that `tiler` selects, and the offsets of the other tiles; a tuple divides mode by mode.

    Raises:
        FormatError: the tiler has no complement, or the tiles are no layouts.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return by_mode(layout, tiler, logical_divide)
    tile = CuteLayout(tiler) if isinstance(tiler, int) else tiler
    return composition(layout, make_layout(tile, complement(tile, layout.size)))


def logical_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """Two modes: the layout, and the offsets of its copies in the order of `tiler`; a tuple multiplies mode by mode.

    Raises:
        FormatError: the layout has no complement, or its copies are no layout.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return by_mode(layout, tiler, logical_product)
    copies = CuteLayout(tiler) if isinstance(tiler, int) else tiler
    return make_layout(layout, composition(complement(layout, layout.size * copies.cosize), copies))


def zipped_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`logical_divide` with all tile modes in the first mode and all rest modes in the second."""
    return _zipped(logical_divide, layout, tiler)


def tiled_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`zipped_divide` with the second mode's modes at the top."""
    tiles, rest = zipped_divide(layout, tiler)
    return make_layout(tiles, *rest)


def flat_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`zipped_divide` with the modes of both modes at the top."""
    tiles, rest = zipped_divide(layout, tiler)
    return make_layout(*tiles, *rest)


def zipped_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`logical_product` with the layout in the first mode and all copy modes in the second."""
    return _zipped(logical_product, layout, tiler)


def tiled_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`zipped_product` with the second mode's modes at the top."""
    block, copies = zipped_product(layout, tiler)
    return make_layout(block, *copies)


def flat_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """`zipped_product` with the modes of both modes at the top."""
    block, copies = zipped_product(layout, tiler)
    return make_layout(*block, *copies)


def blocked_product(block: CuteLayout, tiler: CuteLayout) -> CuteLayout:
    """Copies of `block` arranged by `tiler`, mode by mode with the block's mode inside."""
    inner, outer = _same_rank(block, tiler)
    return coalesce(make_layout(*map(make_layout, inner, outer)), (1,) * inner.rank)


def raked_product(block: CuteLayout, tiler: CuteLayout) -> CuteLayout:
    """Copies of `block` interleaved by `tiler`, mode by mode with the tiler's mode inside."""
    inner, outer = _same_rank(block, tiler)
    return coalesce(make_layout(*map(make_layout, outer, inner)), (1,) * inner.rank)


def _same_rank(block: CuteLayout, tiler: CuteLayout) -> tuple[CuteLayout, CuteLayout]:
    """The two modes of the product of layouts that are extended to equal rank."""
    rank = max(block.rank, tiler.rank)
    inner, outer = logical_product(_ranked(block, rank), _ranked(tiler, rank))
    return inner, outer


def _ranked(layout: CuteLayout, rank: int) -> CuteLayout:
    return make_layout(*layout, *(CuteLayout(1, 0) for _ in range(rank - layout.rank)))


def _zipped(split: _Split, layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """The result of a split with all first halves in one mode and all second halves in another."""
    if tiler is None:
        return make_layout(CuteLayout(1, 0), layout)
    if not isinstance(tiler, tuple):
        return split(layout, tiler)
    if layout.rank < len(tiler):
        raise FormatError(f"has {layout.rank} modes, not {len(tiler)}", where=str(layout), hint="give it fewer tilers")
    firsts, seconds = [], []
    for index, (mode, part) in enumerate(zip_longest(layout, tiler)):
        if index < len(tiler):
            first, second = _zipped(split, mode, part)
            firsts.append(first)
            seconds.append(second)
        else:
            seconds.append(mode)
    return make_layout(make_layout(*firsts), make_layout(*seconds))


# --- Memory formats and conversions as CuTe layouts ---
#
# A tensor in a format is a layout with one mode per axis. The submodes of a mode are the digits of its axis, the least
# significant first. For (1, 32, 5, 5) in NCHW16c:
#
#     (1,(16,2),5,5):(800,(1,400),80,16)
#
# The offset in the source of element i of the destination is then a composition,
#
#     index_map = source o right_inverse(destination)
#
# and its coalesced form is the loop nest of the copy: extents, and strides in the source, innermost loop first; the
# destination is written from its first element to its last.


def from_format(format: Format, shape: tuple[int, ...]) -> CuteLayout:
    """The layout of a tensor of a shape in a format, without gaps: from logical coordinates to offsets.

    Extents of blocked axes include padding.

    Raises:
        FormatError: the format does not fit the shape, or an extent is 0.
    """
    return from_bound_layout(Layout.packed(format, shape))


def from_bound_layout(bound: Layout) -> CuteLayout:
    """The CuTe layout of a bound layout, which may have gaps.

    Raises:
        FormatError: an extent is 0.
    """
    modes: list[list[tuple[int, int, int]]] = [[] for _ in bound.shape]
    for digit, stride in zip(bound.format.digits(bound.shape), bound.strides, strict=True):
        modes[digit.axis].append((digit.span, int(digit.extent), stride))
    if not modes:
        return CuteLayout(1, 0)
    shape = tuple(_mode(extent for _, extent, _ in sorted(digits)) for digits in modes)
    return CuteLayout(shape, tuple(_mode(stride for _, _, stride in sorted(digits)) for digits in modes))


def to_format(layout: CuteLayout) -> Format:
    """The format in which a tensor whose axes are the modes of a layout has these offsets.

    An axis of extent 1, which has no effect on offsets, is outermost.

    Raises:
        FormatError: the layout has gaps or overlaps, which no format has.
    """
    parts: list[tuple[int, int, Part]] = []
    for axis, mode in enumerate(layout):
        *inner, outer = coalesce(mode).flat()
        span = 1
        for extent, stride in inner:
            parts.append((stride, extent, Part(axis, extent, span)))
            span *= extent
        parts.append((outer[1] if outer[0] > 1 else layout.cosize, outer[0], Part(axis)))
    parts.sort(key=lambda part: -part[0])
    packed_stride = 1
    for stride, extent, _ in reversed(parts):
        if extent > 1 and stride != packed_stride:
            raise FormatError("is no format: there are gaps or overlaps", where=str(layout))
        packed_stride *= extent
    return Format(tuple(part for _, _, part in parts))


def index_map(conversion: Conversion, shape: tuple[int, ...]) -> CuteLayout:
    """The offset in the source of each element of the destination, `dst[i] = src[map(i)]`, coalesced.

    Raises:
        FormatError: a format does not fit the shape, the formats pad it differently, or neither of two blocks of one axis
            divides the other, so that the map is not a layout.
    """
    src, dst = conversion.src, conversion.dst
    if src.padded_shape(shape) != dst.padded_shape(shape):
        raise FormatError(
            f"{src} and {dst} have different padding for the shape {shape}",
            hint="pad the tensor to blocks of both first",
        )
    return coalesce(composition(from_format(src, shape), right_inverse(from_format(dst, shape))))


def _mode(values: Iterable[int]) -> IntTuple:
    found = tuple(values)
    return found[0] if len(found) == 1 else found
