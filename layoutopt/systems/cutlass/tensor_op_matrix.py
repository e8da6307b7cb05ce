"""The layouts of `tensor_op` for column-major and row-major matrices: the same offsets, with coordinates (row, column).

Source: CUTLASS include/cutlass/layout/tensor_op_multiplicand_sm75.h and tensor_op_multiplicand_sm80.h.
"""

from layoutopt.systems.cutlass.coord import MatrixCoord
from layoutopt.systems.cutlass.tensor_op import (
    TensorOpMultiplicand64bCrosswise,
    TensorOpMultiplicandCongruous,
    TensorOpMultiplicandCongruous64b,
    TensorOpMultiplicandCongruous128b,
    TensorOpMultiplicandCrosswise,
    TensorOpMultiplicandCrosswise128x4,
)


class ColumnMajorTensorOpMultiplicandCongruous(TensorOpMultiplicandCongruous):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicandCongruous(TensorOpMultiplicandCongruous):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1

    __slots__ = ()


class ColumnMajorTensorOpMultiplicandCrosswise(TensorOpMultiplicandCrosswise):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicandCrosswise(TensorOpMultiplicandCrosswise):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1

    __slots__ = ()


class ColumnMajorTensorOpMultiplicandCongruous64b(TensorOpMultiplicandCongruous64b):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicandCongruous64b(TensorOpMultiplicandCongruous64b):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1
    tile = TensorOpMultiplicandCongruous64b.tile[::-1]

    __slots__ = ()


class ColumnMajorTensorOpMultiplicand64bCrosswise(TensorOpMultiplicand64bCrosswise):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicand64bCrosswise(TensorOpMultiplicand64bCrosswise):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1
    tile = TensorOpMultiplicand64bCrosswise.tile[::-1]

    __slots__ = ()


class ColumnMajorTensorOpMultiplicandCongruous128b(TensorOpMultiplicandCongruous128b):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicandCongruous128b(TensorOpMultiplicandCongruous128b):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1
    tile = TensorOpMultiplicandCongruous128b.tile[::-1]

    __slots__ = ()


class ColumnMajorTensorOpMultiplicandCrosswise128x4(TensorOpMultiplicandCrosswise128x4):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord

    __slots__ = ()


class RowMajorTensorOpMultiplicandCrosswise128x4(TensorOpMultiplicandCrosswise128x4):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1
    tile = TensorOpMultiplicandCrosswise128x4.tile[::-1]

    __slots__ = ()
