"""Offsets and shapes that the vendors of the formats publish, or that follow from their documentation."""

import math

import numpy as np
import pytest

from layoutopt.formats import Conversion, Format, Layout, c0, fractal_nz, lookup, pack, unpack


def numbered(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


def flat(array: np.ndarray, name: str) -> list[int]:
    return pack(array, lookup(name)).ravel().tolist()


def test_fractals_of_2x2_in_a_4x4_matrix() -> None:
    memory = pack(numbered(4, 4), fractal_nz(2, m0=2, c0=2)).ravel().tolist()
    assert memory == [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]


def test_17_channels_in_blocks_of_8_are_padded_to_24() -> None:
    fmt = lookup("nChw8c")
    assert fmt.padded_shape((1, 17, 5, 5)) == (1, 24, 5, 5)
    assert fmt.physical_shape((1, 17, 5, 5)) == (1, 3, 5, 5, 8)
    assert fmt.padding_elements((1, 17, 5, 5)) == 7 * 25


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("NHWC", 0, [0, 9, 18]),
        ("NCHW4", 0, [0, 9, 18, 27, 1, 10, 19, 28, 2]),
        ("NCHW32", 31, [279, 1]),
        ("NCHW64", 63, [567, 1]),
        ("CHWN4", 0, [0, 9, 18, 27, 576, 585, 594, 603, 1]),
    ],
)
def test_the_order_of_2_images_of_64_channels(name: str, start: int, expected: list[int]) -> None:
    assert flat(numbered(2, 64, 3, 3), name)[start : start + len(expected)] == expected


@pytest.mark.parametrize(("dtype", "width"), [("float16", 16), ("int8", 32), ("float32", 16), ("int4", 64)])
def test_nc1hwc0_takes_its_block_from_the_dtype(dtype: str, width: int) -> None:
    fmt = lookup("NC1HWC0", dtype)
    assert c0(dtype) == width
    assert fmt == Format.parse(f"NCHW{width}c")
    shape = (2, 70, 3, 3)
    assert fmt.physical_shape(shape) == (2, -(-70 // width), 3, 3, width)
    for source in (lookup("NCHW"), lookup("NHWC")):
        memory = Conversion(source, fmt).apply(pack(numbered(*shape), source), shape)
        assert np.array_equal(unpack(memory, fmt, shape), numbered(*shape))


@pytest.mark.parametrize(
    ("name", "shape", "physical"),
    [
        ("FRACTAL_Z", (40, 20, 3, 5), (2, 3, 5, 3, 16, 16)),
        ("FRACTAL_Z_3D", (40, 20, 2, 3, 5), (2, 2, 3, 5, 3, 16, 16)),
        ("FRACTAL_Z_3D_TRANSPOSE", (40, 20, 2, 3, 5), (2, 3, 5, 3, 2, 16, 16)),
        ("NDC1HWC0", (1, 20, 2, 3, 5), (1, 2, 2, 3, 5, 16)),
        ("FRACTAL_NZ", (40, 20), (2, 3, 16, 16)),
        ("FRACTAL_ZZ", (40, 20), (3, 2, 16, 16)),
        ("FRACTAL_ZN", (40, 20), (3, 2, 16, 16)),
    ],
)
def test_storage_shapes_of_ascend(name: str, shape: tuple[int, ...], physical: tuple[int, ...]) -> None:
    assert lookup(name, "float16").physical_shape(shape) == physical


def test_offsets_of_cutlass() -> None:
    """The offset functions of include/cutlass/layout/matrix.h and tensor.h, at every coordinate."""
    row, column = np.indices((24, 40))
    interleaved = Layout.packed(lookup("RowMajorInterleaved<4>"), (24, 40))
    assert np.array_equal(interleaved.offset(row, column), row // 4 * 160 + column * 4 + row % 4)
    interleaved = Layout.packed(lookup("ColumnMajorInterleaved<4>"), (24, 40))
    assert np.array_equal(interleaved.offset(row, column), column // 4 * 96 + row * 4 + column % 4)
    pitched = Layout.padded(lookup("ColumnMajor"), (24, 40), (40, 30))
    assert np.array_equal(pitched.offset(row, column), column * 30 + row)
    assert pitched.capacity == 40 * 30
    n, c, h, w = np.indices((2, 64, 3, 5))
    tensor = Layout.packed(lookup("TensorNCxHWx<32>"), (2, 64, 3, 5))
    assert np.array_equal(tensor.offset(n, c, h, w), c % 32 + 32 * w + 160 * h + 480 * (c // 32) + 960 * n)
    filters = Layout.packed(lookup("TensorCxRSKx<32>"), (2, 64, 3, 5))
    assert np.array_equal(filters.offset(n, c, h, w), c % 32 + 32 * n + 64 * w + 320 * h + 960 * (c // 32))
