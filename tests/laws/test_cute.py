"""Laws of the layout algebra, each checked at every index of random layouts."""

import math
import re
from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, Part, pack
from layoutopt.systems.cute import (
    CuteLayout,
    IntTuple,
    Swizzle,
    blocked_product,
    coalesce,
    compatible,
    complement,
    composition,
    flat_divide,
    from_format,
    index_map,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    raked_product,
    right_inverse,
    tiled_divide,
    to_format,
    zipped_divide,
    zipped_product,
)
from layoutopt.systems.cute.layout import flatten, nested

EXTENTS = (1, 2, 2, 3, 4, 4, 6, 8)
SHAPES: st.SearchStrategy[IntTuple] = st.recursive(
    st.sampled_from(EXTENTS), lambda parts: st.lists(parts, min_size=1, max_size=3).map(tuple), max_leaves=4
)


@st.composite
def layouts(draw: Callable, shapes: st.SearchStrategy[IntTuple] = SHAPES) -> CuteLayout:
    """Any layout: overlapping, with gaps, or with strides of 0."""
    shape = draw(shapes)
    strides = [draw(st.sampled_from((0, 1, 2, 3, 4, 6, 8, 12, 16, 24))) for _ in flatten(shape)]
    return CuteLayout(shape, nested(strides, shape))


@st.composite
def injective(draw: Callable, gaps: bool = True) -> CuteLayout:
    """The modes in any order, each stride a multiple of what the smaller ones fill."""
    shape = draw(SHAPES)
    extents = flatten(shape)
    strides, reached = [0] * len(extents), 1
    for index in draw(st.permutations(range(len(extents)))):
        strides[index] = reached * (draw(st.sampled_from((1, 1, 2, 3))) if gaps else 1)
        reached = strides[index] * extents[index]
    return CuteLayout(shape, nested(strides, shape))


def small(layout: CuteLayout, most: int = 400) -> CuteLayout:
    assume(layout.size <= most)
    return layout


def defined(
    function: Callable[[CuteLayout, CuteLayout], CuteLayout], left: CuteLayout, right: CuteLayout
) -> CuteLayout:
    """The result of a function; an example without a result is discarded."""
    try:
        return function(left, right)
    except FormatError:
        assume(False)
        raise


# --- layouts -----------------------------------------------------------------------------------------------


@given(layouts())
def test_a_layout_is_the_sum_of_its_digits(layout: CuteLayout) -> None:
    small(layout)
    extents, strides = flatten(layout.shape), flatten(layout.stride)
    coords = product(*(range(extent) for extent in reversed(extents)))
    values = [sum(digit * step for digit, step in zip(reversed(coord), strides, strict=True)) for coord in coords]
    assert layout.values().tolist() == values
    assert layout.cosize == max(values) + 1 and layout.size == len(values)


@given(layouts())
def test_coordinates_of_any_depth_agree(layout: CuteLayout) -> None:
    small(layout)
    every = np.unravel_index(np.arange(layout.size), [mode.size for mode in layout], order="F")
    assert (layout(*every) == layout.values()).all()
    leaves = np.unravel_index(np.arange(layout.size), flatten(layout.shape), order="F")
    assert (layout(nested(leaves, layout.shape)) == layout.values()).all()


@given(layouts())
def test_the_notation_is_read_back(layout: CuteLayout) -> None:
    assert CuteLayout.parse(str(layout)) == layout
    assert CuteLayout.parse(re.sub("([0-9]+)", " _\\1 ", str(layout))) == layout
    assert hash(CuteLayout.parse(str(layout))) == hash(layout)


# --- coalesce, composition ---------------------------------------------------------------------------------


@given(layouts())
def test_coalesce_keeps_the_function(layout: CuteLayout) -> None:
    small(layout)
    simple = coalesce(layout)
    assert (simple.values() == layout.values()).all()
    assert coalesce(simple) == simple and not any(isinstance(mode.shape, tuple) for mode in simple)
    by_mode = coalesce(layout, (1,) * layout.rank)
    assert (by_mode.values() == layout.values()).all()
    assert [mode.size for mode in by_mode] == [mode.size for mode in layout]


@given(layouts(), layouts())
def test_composition(outer: CuteLayout, inner: CuteLayout) -> None:
    """R(i) = A(B(i)), also where B leaves the domain of A; and every coordinate of B is one of R."""
    small(inner)
    result = defined(composition, outer, inner)
    assert (result.values() == outer(inner.values())).all()
    assert compatible(inner.shape, result.shape)


# --- complement, inverses ----------------------------------------------------------------------------------


@given(injective(), st.integers(1, 300))
def test_complement(layout: CuteLayout, cotarget: int) -> None:
    small(layout)
    rest = complement(layout, cotarget)
    both = make_layout(layout, rest).values()
    assert len(np.unique(both)) == len(both)  # disjoint
    assert set(range(cotarget)) <= set(both.tolist())  # covering
    assert (np.diff(rest.values()) > 0).all()  # ordered
    assert rest == complement(coalesce(layout), cotarget)


@given(layouts())
def test_right_inverse(layout: CuteLayout) -> None:
    inverse = small(right_inverse(layout))
    assert (layout(inverse.values()) == np.arange(inverse.size)).all()
    assert coalesce(composition(layout, inverse)) == coalesce(CuteLayout(inverse.size))


@given(injective())
def test_left_inverse(layout: CuteLayout) -> None:
    small(layout)
    assert (left_inverse(layout)(layout.values()) == np.arange(layout.size)).all()


# --- division, product -------------------------------------------------------------------------------------


@given(injective(), injective())
def test_logical_divide(layout: CuteLayout, tiler: CuteLayout) -> None:
    """A o (B, B*): mode by mode, and all elements of A once where the tiles fit."""
    small(layout)
    result = defined(logical_divide, layout, tiler)
    tile, rest = result
    assert (tile.values() == layout(tiler.values())).all()
    assert (rest.values() == layout(complement(tiler, layout.size).values())).all()
    if result.size == layout.size:
        assert sorted(result.values().tolist()) == sorted(layout.values().tolist())


@given(injective(), layouts(st.sampled_from(EXTENTS)))
def test_logical_product(layout: CuteLayout, tiler: CuteLayout) -> None:
    """(A, A* o B): A, and copies of it that do not touch each other unless B repeats itself."""
    small(layout)
    result = defined(logical_product, layout, tiler)
    block, copies = result
    assert block == layout and compatible(tiler.shape, copies.shape)
    reachable = complement(layout, layout.size * tiler.cosize)
    assert (copies.values() == reachable(tiler.values())).all()
    assert len(np.unique(result.values())) == layout.size * len(np.unique(tiler.values()))


@given(injective(gaps=False), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 3)))
def test_the_names_of_division_arrange_the_same_modes(layout: CuteLayout, first: int, second: int) -> None:
    middle = CuteLayout(layout.shape, nested([12 * stride for stride in flatten(layout.stride)], layout.shape))
    layout = make_layout(CuteLayout(12), small(middle), CuteLayout(6, 12 * layout.size))
    tiler = (first, None, second)
    logical, zipped = logical_divide(layout, tiler), zipped_divide(layout, tiler)
    assert zipped[0][0] == logical[0][0] and zipped[1][0] == logical[0][1]
    assert zipped[0][2] == logical[2][0] and zipped[1][2] == logical[2][1] and zipped[1][1] == logical[1]
    assert list(tiled_divide(layout, tiler)) == [zipped[0], *zipped[1]]
    assert list(flat_divide(layout, tiler)) == [*zipped[0], *zipped[1]]
    assert sorted(zipped.values().tolist()) == list(range(layout.size))


@given(st.lists(st.sampled_from((1, 2, 3, 5)), min_size=4, max_size=4), st.booleans())
def test_blocked_and_raked_products(extents: list[int], rows: bool) -> None:
    m, n, p, q = extents
    block, tiler = CuteLayout((m, n), (n, 1) if rows else (1, m)), CuteLayout((p, q))
    blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
    i, j, a, b = np.ix_(range(m), range(n), range(p), range(q))
    wanted = block(i, j) + block.size * tiler(a, b)
    assert (blocked(i + m * a, j + n * b) == wanted).all()
    assert (raked(a + p * i, b + q * j) == wanted).all()
    assert blocked.size == raked.size == math.prod(extents) and zipped_product(block, tiler).size == blocked.size


# --- swizzles ----------------------------------------------------------------------------------------------


@given(st.integers(0, 4), st.integers(0, 4), st.integers(-6, 6))
def test_a_swizzle_undoes_itself(bits: int, base: int, shift: int) -> None:
    assume(abs(shift) >= bits)
    swizzle = Swizzle(bits, base, shift)
    numbers = np.arange(swizzle.size * 2)
    assert sorted(swizzle(numbers).tolist()) == numbers.tolist()
    assert (swizzle(swizzle(numbers)) == numbers).all()
    assert (swizzle(numbers[: swizzle.size]) + swizzle.size == swizzle(numbers[swizzle.size :])).all()
    assert Swizzle.parse(str(swizzle)) == swizzle
    mask = (1 << bits) - 1
    for number in numbers[:: max(1, len(numbers) // 64)].tolist():
        yyy = (number >> base + max(0, shift)) & mask
        assert swizzle(number) == number ^ yyy << base + max(0, -shift)


# --- formats -----------------------------------------------------------------------------------------------


@st.composite
def formats(draw: Callable, rank: int) -> Format:
    """Any order of the axes and of up to two blocks each."""
    parts = [Part(axis) for axis in draw(st.permutations(range(rank)))]
    for axis in range(rank):
        span = 1
        for block in draw(st.lists(st.sampled_from((2, 3, 4)), max_size=2)):
            parts.insert(draw(st.integers(0, len(parts))), Part(axis, block, span))
            span *= block
    return Format(tuple(parts))


@st.composite
def bound(draw: Callable) -> tuple[Format, tuple[int, ...]]:
    fmt = draw(formats(draw(st.integers(0, 4))))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(fmt.rank))
    assume(math.prod(int(dim) for dim in fmt.padded_shape(shape)) <= 3000)
    return fmt, shape


@given(bound())
def test_a_format_is_a_layout(case: tuple[Format, tuple[int, ...]]) -> None:
    """`pack` stores the elements at the layout's offsets, and padding elements have coordinates beyond the logical extents."""
    fmt, shape = case
    layout = from_format(fmt, shape)
    coords = np.ix_(*map(np.arange, shape))
    memory = pack(np.arange(math.prod(shape)).reshape(shape), fmt).ravel()
    assert (memory[layout(coords) if shape else layout(0)] == np.arange(math.prod(shape)).reshape(shape)).all()
    assert sorted(layout.values().tolist()) == list(range(memory.size))


@given(bound())
def test_and_back(case: tuple[Format, tuple[int, ...]]) -> None:
    """The format may be another one for axes of extent 1, but never for the bytes."""
    fmt, shape = case
    assume(shape)
    padded = tuple(int(dim) for dim in fmt.padded_shape(shape))
    again = to_format(from_format(fmt, shape))
    assert again.key(padded) == fmt.key(padded)


@given(st.data())
def test_a_conversion_is_a_composition(data: st.DataObject) -> None:
    """dst[i] = src[map(i)] for every offset of the destination's memory, padding included."""
    src, shape = data.draw(bound())
    dst = data.draw(formats(src.rank))
    shape = tuple(math.lcm(src.block(axis), dst.block(axis)) * data.draw(st.integers(1, 2)) for axis in range(src.rank))
    assume(math.prod(shape) <= 3000)
    try:
        found = index_map(Conversion(src, dst), shape)
    except FormatError as error:
        assert "is no layout" in str(error)
        return
    values = np.arange(math.prod(shape)).reshape(shape)
    assert (pack(values, dst).ravel() == pack(values, src).ravel()[found.values()]).all()
    assert found == coalesce(found)
    if src == dst:
        assert found == coalesce(CuteLayout(math.prod(shape)))
