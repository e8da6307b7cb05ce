"""The names of coordinates.

Source: CUTLASS include/cutlass/pitch_linear_coord.h, matrix_coord.h and tensor_coord.h. All tensors have the coordinates
(n, h, w, c) for every layout; for filters these are K, R, S and C.
"""

from typing import NamedTuple

from numpy.typing import ArrayLike


class PitchLinearCoord(NamedTuple):
    """A position in lines of memory: the position in the line, and the line."""

    contiguous: ArrayLike
    strided: ArrayLike


class MatrixCoord(NamedTuple):
    """A position in a matrix."""

    row: ArrayLike
    column: ArrayLike


class Tensor4DCoord(NamedTuple):
    """A position in a batch of images, or in filters (K, R, S, C)."""

    n: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike


class Tensor5DCoord(NamedTuple):
    """A position in a batch of volumes."""

    n: ArrayLike
    d: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike
