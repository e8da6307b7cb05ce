"""Laws of the layout algebra, each checked at every index of random layouts."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, Layout, Part, pack
from layoutopt.systems.cute import (
    ComposedLayout,
    CuteLayout,
    IntTuple,
    Swizzle,
    blocked_product,
    coalesce,
    compatible,
    complement,
    composition,
    flat_divide,
    from_bound_layout,
    from_format,
    index_map,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    max_common_vector,
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


def packed(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, of which the axis that `order` names first has the least."""
    return tuple(math.prod(shape[inner] for inner in order[: order.index(axis)]) for axis in range(len(shape)))


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
def test_coalesced_modes_are_as_few_as_can_be(left: CuteLayout, right: CuteLayout) -> None:
    """No two adjacent modes can be merged, so equal functions with equal extents have one form."""
    modes = list(coalesce(make_layout(left, right)).flat())
    assert all(extent > 1 for extent, _ in modes) or len(modes) == 1
    assert all(outer[1] != inner[0] * inner[1] for inner, outer in pairwise(modes))


@settings(max_examples=400)
@given(layouts(), layouts())
def test_composition(outer: CuteLayout, inner: CuteLayout) -> None:
    """R(i) = A(B(i)), also where B leaves the domain of A; and every coordinate of B is one of R."""
    small(inner)
    result = defined(composition, outer, inner)
    assert (result.values() == outer(inner.values())).all()
    assert compatible(inner.shape, result.shape)


@given(injective(gaps=False), injective(gaps=False))
def test_refused_compositions_are_no_layouts(outer: CuteLayout, inner: CuteLayout) -> None:
    """If a composition is refused, A(B(i)) is not a sum over the modes of B, or is no layout along one of them."""
    small(inner), assume(inner.size <= outer.size)
    try:
        composition(outer, inner)
    except FormatError:
        values = outer(inner.values()).reshape([extent for extent, _ in inner.flat()], order="F")
        axes = [
            values[tuple(slice(None) if axis == at else 0 for at in range(values.ndim))] for axis in range(values.ndim)
        ]
        separable = (values == sum(np.ix_(*axes))).all()
        assert not separable or not all(map(is_layout, axes))


def is_layout(values: np.ndarray) -> bool:
    """Whether a vector that begins with 0 is a layout of some shape."""
    if len(values) == 1:
        return True
    counts = (count for count in range(2, len(values) + 1) if len(values) % count == 0)
    for count in counts:
        if (values[:count] == values[1] * np.arange(count)).all():
            table = values.reshape(-1, count)
            if (table == table[:, :1] + table[:1]).all() and is_layout(table[:, 0]):
                return True
    return False


@given(layouts(), layouts(), layouts())
def test_composition_is_associative(a: CuteLayout, b: CuteLayout, c: CuteLayout) -> None:
    small(c)
    assume(c.cosize <= b.size and b.cosize <= a.size)
    left, right = (
        defined(composition, defined(composition, a, b), c),
        defined(composition, a, defined(composition, b, c)),
    )
    assert (left.values() == right.values()).all()


@given(layouts())
def test_the_identity_composes(layout: CuteLayout) -> None:
    small(layout)
    assert (composition(layout, CuteLayout(layout.shape)).values() == layout.values()).all()
    assert coalesce(composition(CuteLayout(layout.cosize), layout)) == coalesce(layout)


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


@given(injective())
def test_a_complement_completes(layout: CuteLayout) -> None:
    """(A, A*) is a bijection onto a contiguous range of integers."""
    small(layout)
    whole = make_layout(layout, complement(layout))
    assert sorted(whole.values().tolist()) == list(range(whole.size))
    assert complement(whole) == CuteLayout(1, 0)


@given(layouts())
def test_right_inverse(layout: CuteLayout) -> None:
    inverse = small(right_inverse(layout))
    assert (layout(inverse.values()) == np.arange(inverse.size)).all()
    assert coalesce(composition(layout, inverse)) == coalesce(CuteLayout(inverse.size))


@given(injective(gaps=False))
def test_right_inverses_of_permutations_are_whole(layout: CuteLayout) -> None:
    inverse = right_inverse(layout)
    assert inverse.size == layout.size and coalesce(right_inverse(inverse)) == coalesce(layout)
    assert coalesce(inverse) == coalesce(left_inverse(layout))


@given(injective())
def test_left_inverse(layout: CuteLayout) -> None:
    small(layout)
    assert (left_inverse(layout)(layout.values()) == np.arange(layout.size)).all()


@given(st.permutations((2, 3, 4)), st.permutations(range(3)), st.permutations(range(3)))
def test_what_both_layouts_hold_together(shape: list[int], one: list[int], other: list[int]) -> None:
    left, right = (CuteLayout(tuple(shape), packed(shape, order)) for order in (one, other))
    count = max_common_vector(left, right)
    places = {value: index for index, value in enumerate(right.values().tolist())}
    assert [int(left(places[offset])) for offset in range(count)] == list(range(count))


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


@given(layouts(), st.integers(0, 20))
def test_composed_layouts(layout: CuteLayout, offset: int) -> None:
    small(layout)
    result = ComposedLayout(Swizzle(2, 1, 3), offset, layout)
    assert (result.values() == Swizzle(2, 1, 3)(offset + layout.values())).all()
    assert result.size == layout.size and result.shape == layout.shape and ComposedLayout.parse(str(result)) == result


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


def test_what_no_format_says() -> None:
    for layout in (CuteLayout((4, 4), (8, 1)), CuteLayout((4, 4), (1, 1)), CuteLayout(4, 0)):
        try:
            to_format(layout)
        except FormatError as error:
            assert "gaps or overlaps" in str(error)
        else:
            raise AssertionError(layout)


@given(bound(), st.integers(1, 3))
def test_memory_with_gaps_is_a_layout_too(case: tuple[Format, tuple[int, ...]], gap: int) -> None:
    fmt, shape = case
    packed = Layout.packed(fmt, shape)
    layout = Layout(fmt, shape, tuple(gap * stride for stride in packed.strides))
    assert (from_bound_layout(layout).values() == gap * from_format(fmt, shape).values()).all()


@settings(max_examples=200)
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


def test_the_copy_loops_of_some_conversions() -> None:
    def loops(src: str, dst: str, *shape: int) -> str:
        return str(index_map(Conversion(Format.parse(src), Format.parse(dst)), shape))

    assert loops("NCHW", "NHWC", 1, 64, 56, 56) == "(64,3136):(3136,1)"
    assert loops("NCHW", "NCHW16c", 2, 64, 5, 7) == "(16,35,8):(35,1,560)"
    assert loops("NCHW16c", "NCHW8c", 1, 32, 5, 5) == "(8,25,2,2):(1,16,8,400)"
    assert loops("NHWC", "NCHW", 2, 3, 1, 1) == "6:1"


def test_conversions_that_are_no_layouts() -> None:
    for src, dst, shape, expected in (
        ("NCHW", "NCHW16c", (1, 17, 5, 5), "different padding"),
        ("NCHW6c", "NCHW4c", (1, 24, 5, 5), "is no layout"),
        ("NCHW", "NHWC", (0, 3, 2, 2), "below 1"),
    ):
        try:
            index_map(Conversion(Format.parse(src), Format.parse(dst)), shape)
        except FormatError as error:
            assert expected in str(error)
        else:
            raise AssertionError((src, dst))
