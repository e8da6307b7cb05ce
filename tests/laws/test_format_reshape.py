"""Laws of propagate_reshape: the propagated format reads the same bytes as the reshaped tensor."""

from collections.abc import Callable

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from test_format import formats, shapes

from layoutopt.formats import Format, pack, propagate_reshape
from layoutopt.testing.laws import numbered

PARSE = Format.parse


@st.composite
def cut(draw: Callable, primes: list[int]) -> tuple[int, ...]:
    """A shape whose row-major elements are numbered by these factors, with some axes of extent 1."""
    shape = [1]
    for prime in primes:
        if draw(st.booleans()):
            shape.append(1)
        shape[-1] *= prime
    for _ in range(draw(st.integers(0, 1))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@st.composite
def reshapes(draw: Callable) -> tuple[Format, tuple[int, ...], tuple[int, ...]]:
    primes = draw(st.lists(st.sampled_from((2, 3)), max_size=6))
    before, after = (
        draw(cut(primes)),
        draw(cut(draw(st.permutations(primes)) if draw(st.booleans()) else primes)),
    )
    return draw(formats(len(before), 2)), before, after


@given(reshapes())
@example((PARSE("NCHW16c"), (2, 64, 3, 3), (2, 4, 16, 3, 3)))
@example((PARSE("NCHW16c"), (2, 17, 3, 3), (2, 17, 9)))
@example((PARSE("NHWC"), (2, 6, 4, 4), (2, 6, 16)))
@example((Format.plain((0, 1, 3, 4, 2)), (2, 4, 16, 3, 3), (2, 64, 3, 3)))
@example((Format.plain((0, 1, 3, 2)), (2, 4, 6, 5), (8, 6, 5)))
def test_a_carried_format_reads_the_same_bytes(
    case: tuple[Format, tuple[int, ...], tuple[int, ...]],
) -> None:
    fmt, before, after = case
    carried = propagate_reshape(fmt, before, after)
    array = numbered(before)
    if carried is not None:
        assert np.array_equal(pack(array.reshape(after), carried).ravel(), pack(array, fmt).ravel())
    if fmt.is_canonical:
        assert carried is not None and carried.is_canonical


@given(reshapes())
def test_carrying_back_gives_the_same_bytes(case: tuple[Format, tuple[int, ...], tuple[int, ...]]) -> None:
    fmt, before, after = case
    carried = propagate_reshape(fmt, before, after)
    back = propagate_reshape(carried, after, before) if carried else None
    assert back is None or back.key(before) == fmt.key(before)


@given(st.data())
def test_nothing_changes_without_a_change_of_shape(data: st.DataObject) -> None:
    fmt = data.draw(formats())
    shape = data.draw(shapes(fmt.rank))
    assert propagate_reshape(fmt, shape, shape) == fmt


@given(st.data())
def test_a_split_of_a_plain_format_is_always_carried_and_merged_again(data: st.DataObject) -> None:
    factors = [data.draw(st.lists(st.sampled_from((2, 3)), min_size=1, max_size=3)) for _ in range(3)]
    before = tuple(int(np.prod(group)) for group in factors)
    after = tuple(factor for group in factors for factor in group)
    fmt = data.draw(formats(3, 0))
    split = propagate_reshape(fmt, before, after)
    assert split is not None
    assert propagate_reshape(split, after, before) == fmt
