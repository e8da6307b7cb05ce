"""Shape functions: the types and extents of results as functions of those of the operands, one function per op type.

    shapes            extents of results, as expressions in the extents of the operands
    elements          elements of small integer tensors, such as the arithmetic that exporters do on shapes
    type_functions    types of the results of operators that onnx does not infer: onnxruntime's, and those of extensions

For an operator without a function here, `inference` calls onnx's inference of a single node.
"""

from layoutopt.ops.shape_functions.elements import MAX_ELEMENTS, array_of, elements_of
from layoutopt.ops.shape_functions.node import (
    Dims,
    Elements,
    Node,
    Operand,
    TypeFunction,
    as_elements,
    results_of,
    type_function,
)
from layoutopt.ops.shape_functions.shapes import shapes_of
