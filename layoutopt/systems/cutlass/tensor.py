"""Layouts of tensors. Source: CUTLASS include/cutlass/layout/tensor.h.

Coordinates are (n, h, w, c) for every layout; those of filters are (k, r, s, c).
"""

from typing import ClassVar

from layoutopt.systems.cutlass.coord import Tensor4DCoord, Tensor5DCoord
from layoutopt.systems.cutlass.strided import StridedLayout


class TensorNHWC(StridedLayout):
    """Channels last. Strides of w, h, n."""

    coordinate = Tensor4DCoord
    notation = "NHWC"
    letters = "NHWC"

    __slots__ = ()


class TensorNCHW(StridedLayout):
    """Image by image. Strides of h, c, n."""

    coordinate = Tensor4DCoord
    notation = "NCHW"
    letters = "NHWC"

    __slots__ = ()


class TensorNCxHWx(StridedLayout):
    """Blocks of x channels, which are innermost. Strides of h, blocks of c, n."""

    coordinate = Tensor4DCoord
    notation = "NCHW{}c"
    letters = "NHWC"
    parameters: ClassVar[tuple[str, ...]] = ("Interleave",)

    __slots__ = ()


class TensorCxRSKx(StridedLayout):
    """Filters with blocks of x input channels: blocks outermost, their channels innermost. Strides of s, r, blocks of c."""

    coordinate = Tensor4DCoord
    notation = "CHWN{}c"
    letters = "NHWC"
    parameters: ClassVar[tuple[str, ...]] = ("Interleave",)

    __slots__ = ()


class TensorNDHWC(StridedLayout):
    """Channels last of volumes. Strides of w, h, d, n."""

    coordinate = Tensor5DCoord
    notation = "NDHWC"
    letters = "NDHWC"

    __slots__ = ()
