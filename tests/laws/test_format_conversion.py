"""Laws of Conversion: its steps are what unpacking and packing again would do, for every shape."""

from collections.abc import Callable

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from test_format import formats, shapes

from layoutopt.formats import Conversion, Extent, Format, Transpose, as_shape, pack, run, unpack
from layoutopt.formats.extent import static_shape
from layoutopt.testing.laws import check_conversion, numbered


@st.composite
def conversions(draw: Callable) -> tuple[Conversion, tuple[int, ...]]:
    src = draw(formats())
    return Conversion(src, draw(formats(src.rank))), draw(shapes(src.rank))


def dirty(conversion: Conversion, shape: tuple[int, ...]) -> np.ndarray:
    """The source's memory of a numbered tensor, with arbitrary padding."""
    physical = pack(numbered(shape), conversion.src)
    return np.where(physical == 0, -1, physical)


@given(conversions())
def test_steps_do_what_packing_again_does(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    check_conversion(conversion.src, conversion.dst, shape)


@given(conversions())
def test_new_padding_is_zero_whatever_the_old_padding_held(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    assume(conversion.moves(shape))
    src, dst = conversion.src.padded_shape(shape), static_shape(conversion.dst.padded_shape(shape))
    result = conversion.apply(dirty(conversion, shape), shape)
    assert np.array_equal(unpack(result, conversion.dst, shape), numbered(shape))
    whole = unpack(result, conversion.dst, dst)
    for axis, dim in enumerate(shape):
        if src[axis] != dst[axis]:
            assert not np.any(np.moveaxis(whole, axis, 0)[dim:])


@given(conversions())
def test_what_does_not_move_takes_at_most_a_reshape(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    if conversion.is_identity(shape):
        assert not any(isinstance(step, Transpose) for step in conversion.steps(shape))
        assert len(conversion.steps(shape)) == (
            conversion.src.physical_shape(shape) != conversion.dst.physical_shape(shape)
        )
    assert conversion.inverse.is_identity(shape) == conversion.is_identity(shape)


@given(conversions(), st.data())
def test_conversions_compose(case: tuple[Conversion, tuple[int, ...]], data: st.DataObject) -> None:
    first, shape = case
    second = Conversion(first.dst, data.draw(formats(first.src.rank)))
    physical = pack(numbered(shape), first.src)
    there = second.apply(first.apply(physical, shape), shape)
    assert np.array_equal(first.then(second).apply(physical, shape), there)
    assert np.array_equal(first.inverse.apply(first.apply(physical, shape), shape), physical)


@given(conversions(), st.data())
def test_steps_for_symbolic_extents_hold_for_every_value(
    case: tuple[Conversion, tuple[int, ...]], data: st.DataObject
) -> None:
    conversion, shape = case
    free = set(range(len(shape))) - {*conversion.src.blocked_axes, *conversion.dst.blocked_axes}
    symbolic = as_shape(
        f"d{axis}" if axis in free and data.draw(st.booleans()) else dim for axis, dim in enumerate(shape)
    )
    values = dict(zip(symbolic, shape, strict=True))
    array = pack(numbered(shape), conversion.src)
    for step in conversion.steps(symbolic):
        after = tuple(dim if isinstance(dim, int) else values[dim] for dim in step.after)
        array = run(type(step)(**{**fields(step), "after": after}), array)
    assert np.array_equal(array, pack(numbered(shape), conversion.dst))


def fields(step: object) -> dict[str, object]:
    return {name: getattr(step, name) for name in step.__dataclass_fields__}


@given(st.data())
def test_a_plain_conversion_is_one_transpose(data: st.DataObject) -> None:
    rank = data.draw(st.integers(2, 5))
    src, dst = (Format.plain(data.draw(st.permutations(range(rank)))) for _ in range(2))
    shape = data.draw(st.tuples(*[st.sampled_from((2, 3, Extent.of_atom("d")))] * rank))
    steps = Conversion(src, dst).steps(shape)
    assert len(steps) == (src != dst)
    assert all(isinstance(step, Transpose) and len(step.perm) == rank for step in steps)
