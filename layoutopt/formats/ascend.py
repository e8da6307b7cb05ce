"""Filter formats of Ascend outside the format algebra: they mix axes within a block, or hold zeros between elements.

    FRACTAL_Z with groups    (G*C1*H*W, N1, 16, C0)       groups gathered until they fill a fractal, one diagonal block each
    FRACTAL_Z_C04            (ceil(4*H*W/C0), N1, 16, C0) at most 4 channels: the axis 4*H*W is split into blocks of C0
    C1HWNCoC0                (C1, H, W, N, C0, C0)        depthwise: each C0 channels are the diagonal of a C0 x C0 square

Sources: Ascend graph_metadef/third_party/transformer/src/transfer_shape_utils.cc (shapes), MindSpore
mindspore/ccsrc/common/trans.cc (NchwFracZTransWithGroups, NchwToFracZc04, NchwToC1hwncoc0: element order).
"""

from math import gcd, lcm, prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.record import Record

Array = NDArray[Any]
Index = NDArray[np.int64]
Extents = tuple[int, int, int, int]

N0 = 16
"""Output channels of a fractal."""


class GroupedFractalZ(Record):
    """FRACTAL_Z of a convolution with groups; N counts the output channels of all groups, C the input channels of one.

    Attributes:
        groups: the groups of the convolution; with 1 the format is FRACTAL_Z.
        c0: input channels of a fractal.
    """

    groups: int
    c0: int = 16

    def groups_per_fractal(self, shape: Extents) -> int:
        """The smallest number of groups that fill whole fractals together, so that the fewest zeros are stored."""
        n, c = self._channels_per_group(shape)
        return min(lcm(self.c0 // gcd(c, self.c0), N0 // gcd(n, N0)), self.groups)

    def physical_shape(self, shape: Extents) -> tuple[int, ...]:
        """(G * C1 * H * W, N1, 16, C0)."""
        n, c = self._channels_per_group(shape)
        gathered = self.groups_per_fractal(shape)
        fractals = -(-self.groups // gathered) * -(-gathered * c // self.c0) * prod(shape[2:])
        return fractals, -(-gathered * n // N0), N0, self.c0

    def offsets(self, shape: Extents) -> Index:
        """Group g is block g % groups_per_fractal on the diagonal of its fractals."""
        n, c = self._channels_per_group(shape)
        gathered = self.groups_per_fractal(shape)
        _, columns, _, _ = self.physical_shape(shape)
        output, channel, row, column = _coordinates(shape)
        group = output // n
        outputs, channels = group % gathered * n + output % n, group % gathered * c + channel
        block = group // gathered * -(-gathered * c // self.c0) + channels // self.c0
        fractal = (block * shape[2] + row) * shape[3] + column
        return np.asarray(((fractal * columns * N0) + outputs) * self.c0 + channels % self.c0, np.int64)

    def _channels_per_group(self, shape: Extents) -> tuple[int, int]:
        """Output and input channels of one group."""
        if self.groups < 1 or shape[0] % self.groups:
            raise FormatError(f"{shape[0]} filters are not {self.groups} equal groups", where="FRACTAL_Z")
        return shape[0] // self.groups, shape[1]


class FractalZC04(Record):
    """FRACTAL_Z_C04, for at most four input channels.

    Attributes:
        c0: elements of a row of a fractal.
    """

    c0: int = 16

    def physical_shape(self, shape: Extents) -> tuple[int, ...]:
        """(ceil(4 * H * W / C0), N1, 16, C0)."""
        if shape[1] > 4:
            raise FormatError(f"{shape[1]} input channels", where="FRACTAL_Z_C04", hint="it is for at most 4")
        return -(-4 * shape[2] * shape[3] // self.c0), -(-shape[0] // N0), N0, self.c0

    def offsets(self, shape: Extents) -> Index:
        """Channel, then column, then row, from the innermost outwards: the four channels of a pixel are contiguous."""
        _, columns, _, _ = self.physical_shape(shape)
        output, channel, row, column = _coordinates(shape)
        element = (row * shape[3] + column) * 4 + channel
        return np.asarray((element // self.c0 * columns * N0 + output) * self.c0 + element % self.c0, np.int64)


class C1HWNCoC0(Record):
    """C1HWNCoC0 of a depthwise filter (N, C, H, W): N is the multiplier, C the channels, as in HWCN of TensorFlow.

    Attributes:
        c0: channels of a square.
    """

    c0: int = 16

    def physical_shape(self, shape: Extents) -> tuple[int, ...]:
        """(C1, H, W, N, C0, C0)."""
        n, c, h, w = shape
        return -(-c // self.c0), h, w, n, self.c0, self.c0

    def offsets(self, shape: Extents) -> Index:
        """Channel c is on the diagonal of square c // C0."""
        multiple, channel, row, column = _coordinates(shape)
        square = ((channel // self.c0 * shape[2] + row) * shape[3] + column) * shape[0] + multiple
        return np.asarray(square * self.c0**2 + channel % self.c0 * (self.c0 + 1), np.int64)


FilterLayout: TypeAlias = GroupedFractalZ | FractalZC04 | C1HWNCoC0
"""Offsets of the elements of a filter (N, C, H, W) in memory that is zero elsewhere."""


def _coordinates(shape: Extents) -> tuple[Index, ...]:
    """The indices of each axis, which broadcast to the shape."""
    return np.ix_(*map(np.arange, shape))


def pack_filter(array: Array, layout: FilterLayout) -> Array:
    """The memory of a filter, zero where no element is stored.

    Args:
        array: of shape (N, C, H, W), any dtype.
        layout: its format.

    Raises:
        FormatError: the format does not support such a shape.
    """
    shape = _extents(array.shape)
    memory = np.zeros(prod(layout.physical_shape(shape)), array.dtype)
    memory[layout.offsets(shape)] = array
    return memory.reshape(layout.physical_shape(shape))


def _extents(shape: tuple[int, ...]) -> Extents:
    if len(shape) != 4:
        raise FormatError(f"a filter has four axes, not {len(shape)}", where=str(shape), hint="unsqueeze it")
    n, c, h, w = shape
    return n, c, h, w
