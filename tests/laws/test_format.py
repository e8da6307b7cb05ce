"""Laws of Format, pack and Layout, each checked at every index of random formats and shapes."""

import math
from collections.abc import Callable
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import Extent, Format, Layout, Part, as_shape, pack, unpack
from layoutopt.testing.laws import check_format, check_keys, numbered

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "object", "U3", "S3"),
    *(name for name in dir(ml_dtypes) if name.startswith(("bfloat", "float", "int", "uint"))),
]


@st.composite
def formats(draw: Callable, rank: int | None = None, blocks: int = 3) -> Format:
    rank = draw(st.integers(0, 4)) if rank is None else rank
    parts = [Part(axis) for axis in draw(st.permutations(range(rank)))]
    reach = [1] * rank
    for _ in range(draw(st.integers(0, blocks)) if rank else 0):
        axis, block = draw(st.integers(0, rank - 1)), draw(st.sampled_from((1, 2, 3, 4, 6)))
        parts.insert(draw(st.integers(0, len(parts))), Part(axis, block, reach[axis]))
        reach[axis] *= block
    return Format(tuple(parts))


def shapes(rank: int, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.sampled_from(range(least, 10))] * rank)


@st.composite
def bound(draw: Callable, least: int = 0) -> tuple[Format, tuple[int, ...]]:
    fmt = draw(formats())
    return fmt, draw(shapes(fmt.rank, least))


@given(bound())
def test_names_packing_and_offsets_agree(case: tuple[Format, tuple[int, ...]]) -> None:
    check_format(*case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_packs(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    fmt, shape = Format.parse("NCHW4c"), (1, 3, 2, 2)
    values = np.random.default_rng(0).integers(0, 2, shape)
    array = values.astype("U3").astype(object) if kind.hasobject else values.astype(kind)
    physical = pack(array, fmt)
    assert physical.dtype == kind
    assert unpack(physical, fmt, shape).tobytes() == array.tobytes()
    padding = physical[..., 3].ravel()
    assert set(padding) == {""} if kind.hasobject else not any(padding.tobytes())


def test_what_does_not_move_is_not_copied() -> None:
    array = numbered((2, 3))
    assert np.shares_memory(pack(array, Format.canonical(2)), array)
    assert np.shares_memory(unpack(array, Format.canonical(2), (2, 3)), array)


@given(bound(least=1), st.data())
def test_offsets_of_padded_layouts_are_inverted(case: tuple[Format, tuple[int, ...]], data: st.DataObject) -> None:
    fmt, shape = case
    extents = tuple(data.draw(st.integers(dim, dim + 2)) for dim in fmt.physical_shape(shape))
    layout = Layout.padded(fmt, shape, extents)
    offsets = layout.offset(*np.indices(shape))
    assert np.unique(offsets).size == layout.size == math.prod(shape)
    assert offsets.max() < layout.capacity <= math.prod(extents)
    assert all(map(np.array_equal, layout.inverse(offsets), np.indices(shape)))
    everywhere = np.arange(-2, layout.capacity + 2)
    assert np.array_equal(layout.holds(everywhere), np.isin(everywhere, offsets))


@given(bound(least=1), st.data())
def test_strides_may_come_in_any_order(case: tuple[Format, tuple[int, ...]], data: st.DataObject) -> None:
    fmt, shape = case
    physical = fmt.physical_shape(shape)
    strides, stride = [0] * len(physical), 1
    for part in data.draw(st.permutations(range(len(physical)))):
        strides[part], stride = stride, stride * physical[part] + data.draw(st.integers(0, 2))
    layout = Layout(fmt, shape, tuple(strides))
    assert all(map(np.array_equal, layout.inverse(layout.offset(*np.indices(shape))), np.indices(shape)))


@given(st.data())
def test_keys_are_equal_exactly_if_the_bytes_are(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(*[st.sampled_from((0, 1, 1, 2, 3, 4, 8))] * rank))
    check_keys(data.draw(formats(rank, 2)), data.draw(formats(rank, 2)), shape)


def test_keys_of_small_formats_are_exact() -> None:
    """All formats of two axes with up to two blocks of 2, against all others, at all small shapes."""
    blocks = [Part(0, 2), Part(1, 2)]
    family = set()
    for count in range(3):
        for extra, order in product(product(blocks, repeat=count), ((0, 1), (1, 0))):
            for places in product(range(5), repeat=count):
                parts = [Part(axis) for axis in order]
                reach = [1, 1]
                for part, place in zip(extra, places, strict=True):
                    parts.insert(place, Part(part.axis, part.block, reach[part.axis]))
                    reach[part.axis] *= part.block
                family.add(Format(tuple(parts)))
    for shape in product(range(1, 6), repeat=2):
        bytes_of = {fmt: pack(numbered(shape), fmt).tobytes() for fmt in family}
        classes = {(fmt.key(shape), bytes_of[fmt]) for fmt in family}
        assert len(classes) == len({key for key, _ in classes}) == len(set(bytes_of.values()))


@given(bound(), st.data())
def test_relabelling_is_a_transpose_of_the_same_bytes(
    case: tuple[Format, tuple[int, ...]], data: st.DataObject
) -> None:
    fmt, shape = case
    perm = data.draw(st.permutations(range(fmt.rank)))
    array = numbered(shape)
    assert np.array_equal(pack(array.transpose(perm), fmt.propagate_transpose(perm)), pack(array, fmt))


@given(bound(least=1), st.data())
def test_restriction_is_what_the_other_axes_leave(case: tuple[Format, tuple[int, ...]], data: st.DataObject) -> None:
    fmt, shape = case
    axes = sorted(data.draw(st.sets(st.sampled_from(range(fmt.rank))))) if fmt.rank else []
    plain = fmt.without_blocks(set(range(fmt.rank)) - set(axes))
    single = tuple(dim if axis in axes else 1 for axis, dim in enumerate(shape))
    kept = tuple(shape[axis] for axis in axes)
    inside = pack(numbered(kept), fmt.restrict(axes)).ravel()
    assert np.array_equal(pack(numbered(single), plain).ravel(), inside)


@given(formats(), st.data())
def test_blocked_axes_need_known_extents(fmt: Format, data: st.DataObject) -> None:
    shape = as_shape(data.draw(st.sampled_from((5, f"d{axis}"))) for axis in range(fmt.rank))
    fits = all(isinstance(shape[axis], int) for axis in fmt.blocked_axes)
    assert fmt.fits(shape) == fits
    if fits:
        assert [dim for dim in fmt.physical_shape(shape) if isinstance(dim, Extent)] == [
            shape[axis] for axis in fmt.order if isinstance(shape[axis], Extent)
        ]
    else:
        with pytest.raises(FormatError):
            fmt.key(shape)
