"""Layouts of matrices. Source: CUTLASS include/cutlass/layout/pitch_linear.h and matrix.h."""

from typing import ClassVar

from layoutopt.systems.cutlass.coord import MatrixCoord, PitchLinearCoord
from layoutopt.systems.cutlass.strided import StridedLayout


class PitchLinear(StridedLayout):
    """Lines of memory: `contiguous + strided * stride`."""

    coordinate = PitchLinearCoord
    notation = "SC"
    letters = "CS"

    __slots__ = ()


class RowMajor(StridedLayout):
    """Row by row: `row * ldm + column`."""

    coordinate = MatrixCoord
    notation = "MN"
    letters = "MN"

    __slots__ = ()


class ColumnMajor(StridedLayout):
    """Column by column: `column * ldm + row`."""

    coordinate = MatrixCoord
    notation = "NM"
    letters = "MN"

    __slots__ = ()


class RowMajorInterleaved(StridedLayout):
    """Blocks of k rows, each in column-major order.

    `row / k * ldm + column * k + row % k`, and ldm is k times as many columns.
    """

    coordinate = MatrixCoord
    notation = "MN{}m"
    letters = "MN"
    parameters: ClassVar[tuple[str, ...]] = ("Interleave",)

    __slots__ = ()


class ColumnMajorInterleaved(StridedLayout):
    """Blocks of k columns, each in row-major order.

    `column / k * ldm + row * k + column % k`, and ldm is k times as many rows.
    """

    coordinate = MatrixCoord
    notation = "NM{}n"
    letters = "MN"
    parameters: ClassVar[tuple[str, ...]] = ("Interleave",)

    __slots__ = ()
