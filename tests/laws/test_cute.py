"""Laws of the layout algebra, each checked at every index of random layouts."""

import math
import re
from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from test_format_laws import bound, formats, numbered

from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, pack
from layoutopt.systems import cute

EXTENTS = (1, 2, 2, 3, 4, 4, 6, 8)
SHAPES: st.SearchStrategy[cute.IntTuple] = st.recursive(
    st.sampled_from(EXTENTS), lambda parts: st.lists(parts, min_size=1, max_size=3).map(tuple), max_leaves=4
)


@st.composite
def layouts(draw: Callable, shapes: st.SearchStrategy[cute.IntTuple] = SHAPES) -> cute.CuteLayout:
    """Any layout: overlapping, with gaps, or with strides of 0."""
    shape = draw(shapes)
    strides = [draw(st.sampled_from((0, 1, 2, 3, 4, 6, 8, 12, 16, 24))) for _ in cute.flatten(shape)]
    return cute.CuteLayout(shape, cute.nested(strides, shape))


@st.composite
def injective(draw: Callable, gaps: bool = True) -> cute.CuteLayout:
    """The modes in any order, each stride a multiple of what the smaller ones fill."""
    shape = draw(SHAPES)
    extents = cute.flatten(shape)
    strides, reached = [0] * len(extents), 1
    for index in draw(st.permutations(range(len(extents)))):
        strides[index] = reached * (draw(st.sampled_from((1, 1, 2, 3))) if gaps else 1)
        reached = strides[index] * extents[index]
    return cute.CuteLayout(shape, cute.nested(strides, shape))


def small(layout: cute.CuteLayout, most: int = 400) -> cute.CuteLayout:
    assume(layout.size <= most)
    return layout


def defined(
    function: Callable[[cute.CuteLayout, cute.CuteLayout], cute.CuteLayout],
    left: cute.CuteLayout,
    right: cute.CuteLayout,
) -> cute.CuteLayout:
    """The result of a function; an example without a result is discarded."""
    try:
        return function(left, right)
    except FormatError:
        assume(False)
        raise


# --- layouts -----------------------------------------------------------------------------------------------


@given(layouts())
def test_a_layout_is_the_sum_of_its_digits(layout: cute.CuteLayout) -> None:
    small(layout)
    extents, strides = cute.flatten(layout.shape), cute.flatten(layout.stride)
    coords = product(*(range(extent) for extent in reversed(extents)))
    values = [sum(digit * step for digit, step in zip(reversed(coord), strides, strict=True)) for coord in coords]
    assert layout.values().tolist() == values
    assert layout.cosize == max(values) + 1 and layout.size == len(values)


@given(layouts())
def test_coordinates_of_any_depth_agree(layout: cute.CuteLayout) -> None:
    small(layout)
    every = np.unravel_index(np.arange(layout.size), [mode.size for mode in layout], order="F")
    assert (layout(*every) == layout.values()).all()
    leaves = np.unravel_index(np.arange(layout.size), cute.flatten(layout.shape), order="F")
    assert (layout(cute.nested(leaves, layout.shape)) == layout.values()).all()


@given(layouts())
def test_the_notation_is_read_back(layout: cute.CuteLayout) -> None:
    assert cute.CuteLayout.parse(str(layout)) == layout
    assert cute.CuteLayout.parse(re.sub("([0-9]+)", " \\1 ", str(layout))) == layout
    assert hash(cute.CuteLayout.parse(str(layout))) == hash(layout)


# --- coalesce, composition ---------------------------------------------------------------------------------


@given(layouts())
def test_coalesce_keeps_the_function(layout: cute.CuteLayout) -> None:
    small(layout)
    simple = cute.coalesce(layout)
    assert (simple.values() == layout.values()).all()
    assert cute.coalesce(simple) == simple and not any(isinstance(mode.shape, tuple) for mode in simple)


@given(layouts(), layouts())
def test_composition(outer: cute.CuteLayout, inner: cute.CuteLayout) -> None:
    """R(i) = A(B(i)), also where B leaves the domain of A."""
    small(inner)
    result = defined(cute.composition, outer, inner)
    assert (result.values() == outer(inner.values())).all()


# --- complement, inverses ----------------------------------------------------------------------------------


@given(injective(), st.integers(1, 300))
def test_complement(layout: cute.CuteLayout, cotarget: int) -> None:
    small(layout)
    rest = cute.complement(layout, cotarget)
    both = cute.make_layout(layout, rest).values()
    assert len(np.unique(both)) == len(both)  # disjoint
    assert set(range(cotarget)) <= set(both.tolist())  # covering
    assert (np.diff(rest.values()) > 0).all()  # ordered
    assert rest == cute.complement(cute.coalesce(layout), cotarget)


@given(layouts())
def test_right_inverse(layout: cute.CuteLayout) -> None:
    inverse = small(cute.right_inverse(layout))
    assert (layout(inverse.values()) == np.arange(inverse.size)).all()
    assert cute.coalesce(cute.composition(layout, inverse)) == cute.coalesce(cute.CuteLayout(inverse.size))


@given(injective())
def test_left_inverse(layout: cute.CuteLayout) -> None:
    small(layout)
    assert (cute.left_inverse(layout)(layout.values()) == np.arange(layout.size)).all()


# --- formats -----------------------------------------------------------------------------------------------


BOUND = bound(least=1).filter(lambda case: math.prod(map(int, case[0].padded_shape(case[1]))) <= 3000)


@given(BOUND)
def test_a_format_is_a_layout(case: tuple[Format, tuple[int, ...]]) -> None:
    """`pack` stores the elements at the layout's offsets, and padding elements have coordinates beyond the logical extents."""
    fmt, shape = case
    layout = cute.from_format(fmt, shape)
    coords = np.ix_(*map(np.arange, shape))
    memory = pack(numbered(shape), fmt).ravel()
    assert (memory[layout(coords) if shape else layout(0)] == numbered(shape)).all()
    assert sorted(layout.values().tolist()) == list(range(memory.size))


@given(BOUND)
def test_and_back(case: tuple[Format, tuple[int, ...]]) -> None:
    """The format may be another one for axes of extent 1, but never for the bytes."""
    fmt, shape = case
    assume(shape)
    padded = tuple(int(dim) for dim in fmt.padded_shape(shape))
    again = cute.to_format(cute.from_format(fmt, shape))
    assert again.key(padded) == fmt.key(padded)


@given(st.data())
def test_a_conversion_is_a_composition(data: st.DataObject) -> None:
    """dst[i] = src[map(i)] for every offset of the destination's memory, padding included."""
    src, shape = data.draw(BOUND)
    dst = data.draw(formats(src.rank))
    shape = tuple(math.lcm(src.block(axis), dst.block(axis)) * data.draw(st.integers(1, 2)) for axis in range(src.rank))
    assume(math.prod(shape) <= 3000)
    try:
        found = cute.index_map(Conversion(src, dst), shape)
    except FormatError as error:
        assert "is no layout" in str(error)
        return
    assert (pack(numbered(shape), dst).ravel() == pack(numbered(shape), src).ravel()[found.values()]).all()
    assert found == cute.coalesce(found)
    if src == dst:
        assert found == cute.coalesce(cute.CuteLayout(math.prod(shape)))
