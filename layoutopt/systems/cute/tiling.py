"""Division and product: a layout cut into tiles, and a layout repeated as another one says.

    logical_divide(A, B)  = A o (B, B*)         the elements that B points to, and where the other such tiles are
    logical_product(A, B) = (A, A* o B)         A, and where its copies are

The other names arrange the same modes otherwise, for a layout (M, N, L) and tilers of its first two modes:

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
from layoutopt.systems.cute.layout import Layout, make_layout

_Split = Callable[[Layout, Tiler], Layout]


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Two modes: what `tiler` points to, and where the other tiles are; a tuple divides mode by mode.

    Raises:
        FormatError: the tiler has no complement, or the tiles are no layouts.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return by_mode(layout, tiler, logical_divide)
    tile = Layout(tiler) if isinstance(tiler, int) else tiler
    return composition(layout, make_layout(tile, complement(tile, layout.size)))


def logical_product(layout: Layout, tiler: Tiler) -> Layout:
    """Two modes: the layout, and where its copies are, in the order of `tiler`; a tuple multiplies mode by mode.

    Raises:
        FormatError: the layout has no complement, or its copies are no layout.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return by_mode(layout, tiler, logical_product)
    copies = Layout(tiler) if isinstance(tiler, int) else tiler
    return make_layout(layout, composition(complement(layout, layout.size * copies.cosize), copies))


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`logical_divide` with all tiles in the first mode and all that counts them in the second."""
    return _zipped(logical_divide, layout, tiler)


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_divide` with the second mode's modes at the top."""
    tiles, rest = zipped_divide(layout, tiler)
    return make_layout(tiles, *rest)


def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_divide` with the modes of both modes at the top."""
    tiles, rest = zipped_divide(layout, tiler)
    return make_layout(*tiles, *rest)


def zipped_product(layout: Layout, tiler: Tiler) -> Layout:
    """`logical_product` with the layout in the first mode and all that counts its copies in the second."""
    return _zipped(logical_product, layout, tiler)


def tiled_product(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_product` with the second mode's modes at the top."""
    block, copies = zipped_product(layout, tiler)
    return make_layout(block, *copies)


def flat_product(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_product` with the modes of both modes at the top."""
    block, copies = zipped_product(layout, tiler)
    return make_layout(*block, *copies)


def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """Every element of `tiler` as a block: mode by mode, first within the block, then from block to block."""
    inner, outer = _same_rank(block, tiler)
    return coalesce(make_layout(*map(make_layout, inner, outer)), (1,) * inner.rank)


def raked_product(block: Layout, tiler: Layout) -> Layout:
    """Every element of `block` dealt out over `tiler`: mode by mode, first from block to block, then within."""
    inner, outer = _same_rank(block, tiler)
    return coalesce(make_layout(*map(make_layout, outer, inner)), (1,) * inner.rank)


def _same_rank(block: Layout, tiler: Layout) -> tuple[Layout, Layout]:
    """Both modes of the product of layouts that have been given as many modes each."""
    rank = max(block.rank, tiler.rank)
    inner, outer = logical_product(_ranked(block, rank), _ranked(tiler, rank))
    return inner, outer


def _ranked(layout: Layout, rank: int) -> Layout:
    return make_layout(*layout, *(Layout(1, 0) for _ in range(rank - layout.rank)))


def _zipped(split: _Split, layout: Layout, tiler: Tiler) -> Layout:
    """What a split gives, gathered into a mode of first halves and a mode of second halves."""
    if tiler is None:
        return make_layout(Layout(1, 0), layout)
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
