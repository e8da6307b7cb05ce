"""The layouts of CUTLASS 2 under its names, with its TensorRef and TensorView over numpy arrays.

    LayoutConcept   interface of a layout: strides, offsets, inverse, capacity
    matrix, tensor  layouts in global memory: RowMajor, ColumnMajorInterleaved[32], TensorNHWC, ...
    tensor_op       swizzled layouts in shared memory: TensorOpMultiplicandCrosswise[16, 32], ...
    TensorRef       a pointer and a layout; TensorView has an extent as well

The layouts of CUTLASS 3 are in `layoutopt.systems.cute`.
"""

from layoutopt.systems.cutlass.layouts import (
    ColumnMajor,
    ColumnMajorInterleaved,
    LayoutConcept,
    MatrixCoord,
    PitchLinear,
    PitchLinearCoord,
    RowMajor,
    RowMajorInterleaved,
    Tensor4DCoord,
    Tensor5DCoord,
    TensorCxRSKx,
    TensorNCHW,
    TensorNCxHWx,
    TensorNDHWC,
    TensorNHWC,
)
from layoutopt.systems.cutlass.tensor_op import (
    MATRICES,
    TensorOpMultiplicand,
    TensorOpMultiplicand64bCrosswise,
    TensorOpMultiplicandCongruous,
    TensorOpMultiplicandCongruous64b,
    TensorOpMultiplicandCongruous128b,
    TensorOpMultiplicandCrosswise,
    TensorOpMultiplicandCrosswise128x4,
    layout_type,
    layout_types,
)
from layoutopt.systems.cutlass.tensor_view import TensorRef, TensorView

__all__ = [
    *MATRICES,
    "ColumnMajor",
    "ColumnMajorInterleaved",
    "LayoutConcept",
    "MatrixCoord",
    "PitchLinear",
    "PitchLinearCoord",
    "RowMajor",
    "RowMajorInterleaved",
    "Tensor4DCoord",
    "Tensor5DCoord",
    "TensorCxRSKx",
    "TensorNCHW",
    "TensorNCxHWx",
    "TensorNDHWC",
    "TensorNHWC",
    "TensorOpMultiplicand",
    "TensorOpMultiplicand64bCrosswise",
    "TensorOpMultiplicandCongruous",
    "TensorOpMultiplicandCongruous64b",
    "TensorOpMultiplicandCongruous128b",
    "TensorOpMultiplicandCrosswise",
    "TensorOpMultiplicandCrosswise128x4",
    "TensorRef",
    "TensorView",
    "layout_type",
    "layout_types",
]

globals().update(MATRICES)
