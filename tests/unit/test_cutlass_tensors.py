"""TensorRef and TensorView over numpy arrays."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass import (
    ColumnMajor,
    MatrixCoord,
    PitchLinear,
    RowMajor,
    RowMajorInterleaved,
    TensorNCxHWx,
    TensorNHWC,
    TensorOpMultiplicandCrosswise,
    TensorRef,
    TensorView,
)

DTYPES = ["bool", "int8", "uint64", "float16", "complex64", "U3", "object", "bfloat16", "float8_e4m3fn", "i4,f8"]


def memory(size: int = 100) -> np.ndarray:
    return np.arange(size)


# --- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype_is_referred_to_and_not_copied(dtype: str) -> None:
    buffer = np.zeros((4, 5), getattr(ml_dtypes, dtype, dtype))
    values = np.arange(20).astype("i4") if dtype != "i4,f8" else np.zeros(20, dtype)
    buffer.reshape(-1)[:] = values.astype(buffer.dtype)
    ref = TensorRef(buffer, RowMajor(5))
    assert np.shares_memory(ref.memory, buffer) and ref.dtype == buffer.dtype
    assert ref.at((2, 3)) == buffer[2, 3]
    ref[3, 4] = buffer[0, 1]
    assert buffer[3, 4] == buffer[0, 1]


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base,
        lambda base: base.T,
        lambda base: base.transpose(1, 2, 0),
        lambda base: base[:, None, :, :],
        lambda base: base[1],
        lambda base: base[1:],
        lambda base: base.reshape(-1)[3:50:7],
        lambda base: base.reshape(-1)[::-1],
        lambda base: base[:, 1, 2],
        lambda base: base[1, 2, 3, ...],
        lambda base: base.view("f4"),
        lambda base: base[:0],
    ],
)
def test_memory_is_seen_in_the_order_in_which_it_lies(view: Callable[[np.ndarray], np.ndarray]) -> None:
    base = np.arange(60, dtype="f8").reshape(3, 4, 5)
    data = view(base)
    linear = TensorRef(data, PitchLinear(1)).memory
    assert linear.ndim == 1 and linear.size == data.size
    assert np.shares_memory(linear, data) or not data.size
    if linear.size > 1 and data.ndim > 1:
        assert linear.strides == (data.itemsize,)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.zeros((4, 5))[:, :3], "has gaps"),
        (np.zeros((4, 5, 6))[:, ::2], "has gaps"),
        (np.zeros((4, 5))[:, ::-1], "has gaps"),
        (np.broadcast_to(np.zeros(4), (3, 4)), "has gaps or repeats"),
        ([1, 2, 3], "not a numpy array but list"),
        (np.zeros(4, ml_dtypes.int4), "int4: elements of 4 bits"),
        (np.zeros(4, ml_dtypes.uint2), "uint2: elements of 2 bits"),
        (np.zeros(4, ml_dtypes.float4_e2m1fn), "elements of 4 bits"),
        (np.zeros(4, ml_dtypes.float6_e2m3fn), "elements of 6 bits"),
    ],
)
def test_memory_that_cannot_be_referred_to(data: np.ndarray, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        TensorRef(data, RowMajor(2))
    assert "\n" not in str(caught.value)


# --- TensorRef ---------------------------------------------------------------------------------------------


def test_pointer_arithmetic() -> None:
    ref = TensorRef(memory(), RowMajor(10))
    there = ref + MatrixCoord(3, 4)
    assert (there.pointer, there[0, 0], there[2, 1], ref.pointer) == (34, 34, 55, 0)
    assert (there - (1, 2))[0, 0] == 22 and there.add_pointer_offset(-4)[0, 0] == 30
    assert there[-1, -1] == 23  # as with any pointer
    there += (1, 0)
    assert there[0, 0] == 44


def test_pointer_arithmetic_is_refused_where_the_layout_does_not_repeat() -> None:
    ref = TensorRef(memory(4096), RowMajorInterleaved[4].packed((64, 64)))
    assert (ref + MatrixCoord(8, 3))[0, 0] == ref[8, 3]
    with pytest.raises(FormatError, match=r"\(6, 3\) is within a block.*multiples of \(4, 1\)"):
        ref + MatrixCoord(6, 3)
    swizzled = TensorRef(memory(4096), TensorOpMultiplicandCrosswise[16, 32].packed((64, 64)))
    assert (swizzled + MatrixCoord(32, 16))[5, 3] == swizzled[37, 19]
    with pytest.raises(FormatError, match="within a block"):
        swizzled - (0, 1)


# --- TensorView --------------------------------------------------------------------------------------------


def view_of(rows: int = 5, columns: int = 7, ldm: int = 10) -> TensorView:
    return TensorView(memory(), RowMajor(ldm), (rows, columns))


@pytest.mark.parametrize("coord", [(5, 0), (0, 7), (-1, 0), (np.array([0, 9]), 0)])
def test_a_view_has_bounds(coord: tuple) -> None:
    view = view_of()
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view.at(coord)
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view[coord] = 0


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: view_of(11), "has 100 elements, 0 to 106 are needed"),
        (lambda: TensorView(memory(), RowMajor(10), (5, 5), 60), "60 to 104 are needed"),
        (lambda: TensorView(memory(), RowMajor(10), (5, 5, 5)), "not 2 integers"),
        (lambda: view_of() + MatrixCoord(6, 0), "are needed"),
        (lambda: view_of() - (1, 0), "are needed"),
        (lambda: view_of().subview((1, 1), (6, 0)), "outside the extent"),
        (lambda: view_of().subview((1, 1), (-1, 0)), "of 0 or more"),
        (lambda: view_of().contains((1, 2, 3)), "3 coordinates for 2 axes"),
        (lambda: list(view_of()), "1 coordinates for 2 axes"),
    ],
)
def test_views_that_cannot_be(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@given(st.data())
def test_subviews_are_slices(data: st.DataObject) -> None:
    layouts = (
        RowMajor.packed,
        ColumnMajor.packed,
        RowMajorInterleaved[3].packed,
        TensorOpMultiplicandCrosswise[64, 4].packed,
    )
    extent = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    layout = data.draw(st.sampled_from(layouts))(extent)
    view = TensorView(memory(layout.capacity(extent)), layout, extent)
    start = tuple(
        step * data.draw(st.integers(0, (size - 1) // step)) for size, step in zip(extent, layout.tile, strict=True)
    )
    sizes = data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40)))
    part = view.subview(sizes, start)
    whole = np.asarray(view)[start[0] : start[0] + sizes[0], start[1] : start[1] + sizes[1]]
    assert part.extent == whole.shape and (np.asarray(part) == whole).all()


def test_a_view_as_an_array() -> None:
    values = np.arange(2 * 3 * 5 * 7, dtype="f4").reshape(2, 3, 5, 7)
    for kind in (TensorNHWC, TensorNCxHWx[4]):
        layout = kind.packed(values.shape)
        buffer = np.full(layout.capacity(values.shape), np.nan, "f4")
        view = TensorView(buffer, layout, values.shape)
        view.assign(values)
        assert (np.asarray(view) == values).all() and np.asarray(view, "f8").dtype == "f8"
        assert np.isnan(buffer).sum() == layout.capacity(values.shape) - values.size
    view.assign(0)
    assert not np.asarray(view).any()
    with pytest.raises(ValueError, match="without a copy"):
        np.array(view, copy=False)
