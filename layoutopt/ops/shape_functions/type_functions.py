"""Type functions: the types of results of operators that onnx does not infer.

onnx has no schema for the domain com.microsoft, which quantised models and models saved by onnxruntime use. A
type function returns the types of the results, or describes the operator by a standard one with the same extents:
QLinearConv has the extents of a Conv, and the element type of its last zero point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.ir.types import DType, OpaqueType, TensorType
from layoutopt.ops.base import EXTENSIONS
from layoutopt.ops.shape_functions.node import Node, Operand

_OPSET = 21
_CONTRIB = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A node of ai.onnx with one result.

    Attributes:
        node: the node, on operands of type float32.
        dtype: the element type of the result; None for that of the node.
        order: the axes of the node's result in the order in which the result has them; empty if it is the same order.
    """

    node: Node
    dtype: DType | None
    order: tuple[int, ...] = ()


Result: TypeAlias = TensorType | OpaqueType | Equivalent | None
"""The type of a result, or a node with such a result; None if it is unknown."""

TypeFunction: TypeAlias = Callable[[Node], Sequence[Result] | None]
"""Returns a result for each output of a node; None if all are unknown."""

FUNCTIONS: dict[str, TypeFunction] = {}
"""Type functions by the kind of op, its domain in front unless that is ai.onnx."""


def type_function(*kinds: str) -> Callable[[TypeFunction], TypeFunction]:
    """Decorator: use a function for op types that onnx does not infer; `my.domain::Mirror` for one of another domain."""

    def register(function: TypeFunction) -> TypeFunction:
        FUNCTIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


def results_of(node: Node) -> list[Result]:
    """The result of every output of a node, by the built-in type function of its kind or that of an installed package."""
    function = FUNCTIONS.get(node.kind) or EXTENSIONS.loaded_into(FUNCTIONS).get(node.kind)
    found = list(function(node) or ()) if function is not None else []
    return found + [None] * (len(node.outputs) - len(found))


def _contrib(*op_types: str) -> Callable[[TypeFunction], TypeFunction]:
    return type_function(*(f"{_CONTRIB}::{op_type}" for op_type in op_types))


# --- building blocks -----------------------------------------------------------------------------------------------------


def _as_float(operand: Operand | None) -> Operand | None:
    """The same tensor with elements of float32."""
    if operand is None or not isinstance(operand.type, TensorType):
        return None
    return Operand(TensorType(DType.FLOAT32, operand.type.shape))


def _transposed(operand: Operand | None) -> Operand | None:
    """The tensor with its last two axes exchanged; a vector as it is."""
    type = operand.type if operand is not None else None
    if not isinstance(type, TensorType) or type.shape is None:
        return None
    if len(type.shape) < 2:
        return operand
    *outer, row, column = type.shape
    return Operand(TensorType(type.dtype, (*outer, column, row)))


def _dtype(node: Node, index: int) -> DType | None:
    operand = node.operand(index)
    return None if operand is None else operand.dtype


def _standard(
    node: Node, op_type: str, operands: Sequence[Operand | None], dtype: DType | None, order: tuple[int, ...] = ()
) -> Equivalent | None:
    """An equivalent of a node with its attributes, on float32 operands; None if an operand is absent."""
    floats = [each for operand in operands if (each := _as_float(operand)) is not None]
    if len(floats) < len(operands):
        return None
    return Equivalent(Node(op_type, "", _OPSET, node.attributes, floats), dtype, order)


def _same(node: Node, index: int = 0, dtype: DType | None = None) -> TensorType | None:
    """The type of an input, or one with another element type."""
    operand = node.operand(index)
    type = operand.type if operand is not None else None
    return TensorType(dtype or type.dtype, type.shape) if isinstance(type, TensorType) else None


def _operator_on(op_type: str, *indices: int, dtype_of: int) -> TypeFunction:
    """A type function: a standard operator on some inputs, with the element type of input `dtype_of`, if present."""
    return lambda node: [_standard(node, op_type, [node.operand(index) for index in indices], _dtype(node, dtype_of))]


def _windows(
    op_type: str, *, dtype_of: int = 0, weight: int | None = None, is_channels_last: bool = False
) -> TypeFunction:
    """A type function for an operator with a window over an image, whose channels may be last."""

    def function(node: Node) -> Sequence[Result] | None:
        image = _as_float(node.operand(0))
        order: tuple[int, ...] = ()
        if is_channels_last or node.attributes.get("channels_last"):
            shape = image.type.shape if image is not None and isinstance(image.type, TensorType) else None
            if shape is None:
                return None
            image = Operand(TensorType(DType.FLOAT32, (shape[0], shape[-1], *shape[1:-1])))
            order = (0, *range(2, len(shape)), 1)
        operands = [image] if weight is None else [image, node.operand(weight)]
        return [_standard(node, op_type, operands, _dtype(node, dtype_of), order)]

    return function


# --- the operators -------------------------------------------------------------------------------------------------------


@_contrib(
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "FastGelu",
    "Gelu",
    "GroupNorm",
    "Inverse",
    "LayerNormalization",
    "QLinearLeakyRelu",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QuickGelu",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
    "Trilu",
)
@type_function("GroupNormalization", "LayerNormalization", "MeanVarianceNormalization", "SimplifiedLayerNormalization")
def _type_of_first_input(node: Node) -> Sequence[Result] | None:
    return [_same(node)] if sum(node.outputs) == 1 else None


@_contrib("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_normalized(node: Node) -> Sequence[Result]:
    """The normalised sum, its mean and inverse deviation along the last axis, and the sum, which has the first input's type."""
    same = _same(node)
    mean = TensorType(DType.FLOAT32, (*same.shape[:-1], 1) if same is not None and same.shape else None)
    return [same, mean, mean, same][: len(node.outputs)]


@_contrib("QuantizeLinear")
def _quantized(node: Node) -> Sequence[Result]:
    return [_same(node, 0, _dtype(node, 2) or DType.UINT8)]


@_contrib("DequantizeLinear")
def _dequantized(node: Node) -> Sequence[Result]:
    return [_same(node, 0, _dtype(node, 1))]


@_contrib("QLinearConcat")
def _joined(node: Node) -> Sequence[Result]:
    pieces = [node.operand(index) for index in range(2, len(node.operands), 3)]
    return [_standard(node, "Concat", pieces, _dtype(node, 2))]


@_contrib("MatMulNBits", "MatMulBnb4")
def _packed(node: Node) -> Sequence[Result] | None:
    """A product with a matrix of packed numbers, whose extents are attributes."""
    sides = [node.attributes.get(name) for name in "KN"]
    weight = Operand(TensorType(DType.FLOAT32, tuple(side for side in sides if isinstance(side, int))))
    return None if None in sides else [_standard(node, "MatMul", [node.operand(0), weight], _dtype(node, 0))]


@_contrib("FusedMatMul", "TransposeMatMul")
def _product(node: Node) -> Sequence[Result] | None:
    if any(node.attributes.get(name) for name in ("transBatchA", "transBatchB")):
        return None
    operands = [
        _transposed(node.operand(index)) if node.attributes.get(name) else node.operand(index)
        for index, name in enumerate(("transA", "transB"))
    ]
    return [_standard(node, "MatMul", operands, _dtype(node, 0))]


@type_function("GreaterOrEqual", "LessOrEqual")
def _comparison(node: Node) -> Sequence[Result]:
    return [_standard(node, "Add", [node.operand(0), node.operand(1)], DType.BOOL)]


_contrib("QLinearAdd", "QLinearMul")(_operator_on("Add", 0, 3, dtype_of=0))
_contrib("QLinearWhere")(_operator_on("Sum", 0, 1, 4, dtype_of=1))
_contrib("QLinearConv")(_windows("Conv", dtype_of=7, weight=3))
_contrib("QLinearAveragePool")(_windows("AveragePool"))
_contrib("QLinearGlobalAveragePool")(_windows("GlobalAveragePool"))
_contrib("NhwcMaxPool")(_windows("MaxPool", is_channels_last=True))
_contrib("FusedConv")(_windows("Conv", weight=1))
_contrib("NhwcFusedConv")(_windows("Conv", weight=1, is_channels_last=True))
_contrib("QGemm")(_operator_on("Gemm", 0, 3, dtype_of=8))
_contrib("DynamicQuantizeMatMul")(_operator_on("MatMul", 0, 1, dtype_of=0))
_contrib("MatMulIntegerToFloat")(_operator_on("MatMul", 0, 1, dtype_of=2))
_contrib("FusedGemm")(_operator_on("Gemm", 0, 1, dtype_of=0))

__all__ = ["FUNCTIONS", "Equivalent", "Result", "TypeFunction", "results_of", "type_function"]
