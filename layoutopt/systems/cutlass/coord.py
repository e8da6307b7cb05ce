"""The names of coordinates.

Source: CUTLASS include/cutlass/pitch_linear_coord.h, matrix_coord.h and tensor_coord.h. All tensors have the coordinates
(n, h, w, c) for every layout; filters have K, R, S and C in these places.
"""

from typing import NamedTuple

from numpy.typing import ArrayLike


class PitchLinearCoord(NamedTuple):
    """A place in lines of memory: within the line, and which line."""

    contiguous: ArrayLike
    strided: ArrayLike


class MatrixCoord(NamedTuple):
    """A place in a matrix."""

    row: ArrayLike
    column: ArrayLike


class Tensor4DCoord(NamedTuple):
    """A place in a batch of images, or in filters (K, R, S, C)."""

    n: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike


class Tensor5DCoord(NamedTuple):
    """A place in a batch of volumes."""

    n: ArrayLike
    d: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike
