"""Division and product: a layout split into tiles, and copies of a layout arranged by another one.

    logical_divide(A, B)  = A o (B, B*)         the tile that B selects, and the offsets of the other tiles
    logical_product(A, B) = (A, A* o B)         A, and the offsets of its copies

The other functions rearrange the same modes, here for a layout (M, N, L) and tilers of its first two modes:

    logical_divide   ((TileM, RestM), (TileN, RestN), L)        logical_product   ((M, TileM), (N, TileN), L)
    zipped_divide    ((TileM, TileN), (RestM, RestN, L))        zipped_product    ((M, N), (TileM, TileN, L))
    tiled_divide     ((TileM, TileN), RestM, RestN, L)          tiled_product     ((M, N), TileM, TileN, L)
    flat_divide      (TileM, TileN, RestM, RestN, L)            flat_product      (M, N, TileM, TileN, L)

Source: CUTLASS include/cute/layout.hpp and media/docs/cpp/cute/02_layout_algebra.md.
"""

from collections.abc import Callable
from itertools import zip_longest

from layoutopt.errors import FormatError
from layoutopt.systems.cute.algebra import Tiler, by_mode, coalesce, complement, composition
from layoutopt.systems.cute.layout import CuteLayout, make_layout

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
