"""Filters of Ascend: a matrix product with the packed filter computes the convolution.

The references are written as loops over the memory, the other way round than the offsets are.
"""

from math import ceil, gcd, lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import lookup, pack
from layoutopt.formats.ascend import C1HWNCoC0, FractalZC04, GroupedFractalZ, pack_filter


def numbered(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.integers(1, 3))
def test_one_group_is_fractal_z(n: int, c: int, h: int, w: int) -> None:
    filter = numbered(n, c, h, w)
    want = pack(filter, lookup("FRACTAL_Z", "float16"))
    got = pack_filter(filter, GroupedFractalZ(1))
    np.testing.assert_array_equal(got.reshape(-1), want.reshape(-1))


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 20), st.sampled_from([8, 16, 32]))
def test_groups_are_blocks_on_a_diagonal(groups: int, n: int, c: int, c0: int) -> None:
    """Every element of the packed memory is that of its group, output channel and input channel."""
    h, w = 2, 3
    filter = numbered(groups * n, c, h, w)
    storage = GroupedFractalZ(groups, c0)
    memory = pack_filter(filter, storage)
    together = min(lcm(c0 // gcd(c, c0), 16 // gcd(n, 16)), groups)
    sets, depth, width = ceil(groups / together), ceil(together * c / c0), ceil(together * n / 16)
    assert memory.shape == (sets * depth * h * w, width, 16, c0)
    dense = (
        memory.reshape(sets, depth, h, w, width * 16, c0)
        .transpose(0, 4, 1, 5, 2, 3)
        .reshape(sets, width * 16, -1, h, w)
    )
    for which in range(sets):
        want = np.zeros_like(dense[which])
        for place in range(min(together, groups - which * together)):
            group = which * together + place
            want[place * n : (place + 1) * n, place * c : (place + 1) * c] = filter[group * n : (group + 1) * n]
        np.testing.assert_array_equal(dense[which], want)
    np.testing.assert_array_equal(memory.reshape(-1)[storage.offsets(filter.shape)], filter)


@given(st.integers(1, 33), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.sampled_from([8, 16, 32]))
def test_c04(n: int, c: int, h: int, w: int, c0: int) -> None:
    filter = numbered(n, c, h, w)
    memory = pack_filter(filter, FractalZC04(c0))
    assert memory.shape == (ceil(4 * h * w / c0), ceil(n / 16), 16, c0)
    for fractal, column, output, place in np.ndindex(*memory.shape):
        pixel, channel = divmod(fractal * c0 + place, 4)
        row, left = divmod(pixel, w)
        inside = column * 16 + output < n and channel < c and row < h
        want = filter[column * 16 + output, channel, row, left] if inside else 0
        assert memory[fractal, column, output, place] == want
    np.testing.assert_array_equal(memory.reshape(-1)[FractalZC04(c0).offsets(filter.shape)], filter)


@given(st.integers(1, 3), st.integers(1, 37), st.integers(1, 3), st.integers(1, 3))
def test_depthwise_squares(n: int, c: int, h: int, w: int) -> None:
    filter = numbered(n, c, h, w)
    memory = pack_filter(filter, C1HWNCoC0())
    assert memory.shape == (ceil(c / 16), h, w, n, 16, 16)
    for block, row, left, multiple, first, second in np.ndindex(*memory.shape):
        channel = block * 16 + second
        want = filter[multiple, channel, row, left] if first == second and channel < c else 0
        assert memory[block, row, left, multiple, first, second] == want
    np.testing.assert_array_equal(memory.reshape(-1)[C1HWNCoC0().offsets(filter.shape)], filter)


def test_errors() -> None:
    with pytest.raises(FormatError, match="not 3 equal groups"):
        pack_filter(numbered(4, 1, 1, 1), GroupedFractalZ(3))
    with pytest.raises(FormatError, match="at most 4"):
        pack_filter(numbered(4, 5, 1, 1), FractalZC04())
    with pytest.raises(FormatError, match="four axes"):
        pack_filter(numbered(4, 5), C1HWNCoC0())
