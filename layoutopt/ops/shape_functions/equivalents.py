"""Standard operators whose results have the extents of results of operators that onnx does not infer.

onnx has no schema for the domain com.microsoft, and models that a quantiser has written or that onnxruntime has saved are full
of it. Here such an operator is described by a standard one: QLinearConv has the extents of a Conv, and the element type of its
last zero point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.ir.types import DType, TensorType
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


Function: TypeAlias = Callable[[Node], Sequence[Equivalent | None] | None]
"""The equivalent of each output; None where there is none."""

FUNCTIONS: dict[str, Function] = {}
"""Functions by the kind of op, its domain in front unless that is ai.onnx."""


def equivalents_of(node: Node) -> list[Equivalent | None]:
    """The equivalent of every output of a node."""
    function = FUNCTIONS.get(node.kind)
    found = list(function(node) or ()) if function is not None else []
    return found + [None] * (len(node.outputs) - len(found))


def _register(function: Function, *op_types: str, domain: str = _CONTRIB) -> None:
    FUNCTIONS.update({f"{domain}::{op_type}" if domain else op_type: function for op_type in op_types})


# --- building blocks -----------------------------------------------------------------------------------------------------


def _as_float(operand: Operand | None) -> Operand | None:
    """The same tensor with elements of float32."""
    if operand is None or not isinstance(operand.type, TensorType):
        return None
    return Operand(TensorType(DType.FLOAT32, operand.type.shape))


def _dtype(node: Node, index: int) -> DType | None:
    operand = node.operand(index)
    return None if operand is None else operand.dtype


def _standard(
    node: Node, op_type: str, operands: Sequence[Operand | None], dtype: DType | None, order: tuple[int, ...] = ()
) -> Equivalent | None:
    """An equivalent of a node with its attributes, on operands as floats, all of which are there."""
    floats = [each for operand in operands if (each := _as_float(operand)) is not None]
    if len(floats) < len(operands):
        return None
    return Equivalent(Node(op_type, "", _OPSET, node.attributes, floats), dtype, order)


def _like(index: int, dtype_of: int | None = None) -> Function:
    """The extents of one input, and the element type of it or of another one; for operators with one output."""

    def function(node: Node) -> Sequence[Equivalent | None] | None:
        dtype = _dtype(node, index if dtype_of is None else dtype_of)
        return [_standard(node, "Identity", [node.operand(index)], dtype)] if sum(node.outputs) == 1 else None

    return function


def _on(op_type: str, *indices: int, dtype_of: int) -> Function:
    """An operator on some of the inputs; the result has the element type of one, or of the operator if that is absent."""

    def function(node: Node) -> Sequence[Equivalent | None]:
        return [_standard(node, op_type, [node.operand(index) for index in indices], _dtype(node, dtype_of))]

    return function


def _windows(op_type: str, *, dtype_of: int = 0, weight: int | None = None, is_last: bool = False) -> Function:
    """A window over an image, whose channels may be last."""

    def function(node: Node) -> Sequence[Equivalent | None] | None:
        image = _as_float(node.operand(0))
        order: tuple[int, ...] = ()
        if is_last or node.attributes.get("channels_last"):
            shape = image.type.shape if image is not None and isinstance(image.type, TensorType) else None
            if shape is None:
                return None
            image = Operand(TensorType(DType.FLOAT32, (shape[0], shape[-1], *shape[1:-1])))
            order = (0, *range(2, len(shape)), 1)
        operands = [image] if weight is None else [image, node.operand(weight)]
        return [_standard(node, op_type, operands, _dtype(node, dtype_of), order)]

    return function


# --- the operators -------------------------------------------------------------------------------------------------------


def _skip_normalized(node: Node) -> Sequence[Equivalent | None]:
    """The normalised sum, its mean and inverse deviation along the last axis, and the sum, which has the first input's type."""
    x = node.operand(0)
    shape = x.type.shape if x is not None and isinstance(x.type, TensorType) else None
    means = Operand(TensorType(DType.FLOAT32, (*shape[:-1], 1) if shape else None))
    same, mean = _standard(node, "Identity", [x], _dtype(node, 0)), _standard(node, "Identity", [means], None)
    return [same, mean, mean, same][: len(node.outputs)]


def _joined(node: Node) -> Sequence[Equivalent | None]:
    pieces = [node.operand(index) for index in range(2, len(node.operands), 3)]
    return [_standard(node, "Concat", pieces, _dtype(node, 2))]


def _packed(node: Node) -> Sequence[Equivalent | None] | None:
    """A product with a matrix of packed numbers, whose sides are attributes."""
    sides = [node.attributes.get(name) for name in "KN"]
    weight = Operand(TensorType(DType.FLOAT32, tuple(side for side in sides if isinstance(side, int))))
    return None if None in sides else [_standard(node, "MatMul", [node.operand(0), weight], _dtype(node, 0))]


def _quantized(node: Node) -> Sequence[Equivalent | None]:
    return [_standard(node, "Identity", [node.operand(0)], _dtype(node, 2) or DType.UINT8)]


def _product(node: Node) -> Sequence[Equivalent | None] | None:
    if any(node.attributes.get(name) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        return None
    return [_standard(node, "MatMul", [node.operand(0), node.operand(1)], _dtype(node, 0))]


def _comparison(node: Node) -> Sequence[Equivalent | None]:
    return [_standard(node, "Add", [node.operand(0), node.operand(1)], DType.BOOL)]


_register(
    _like(0),
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
_register(_on("Add", 0, 3, dtype_of=0), "QLinearAdd", "QLinearMul")
_register(_on("Sum", 0, 1, 4, dtype_of=1), "QLinearWhere")
_register(_joined, "QLinearConcat")
_register(_windows("Conv", dtype_of=7, weight=3), "QLinearConv")
_register(_windows("AveragePool"), "QLinearAveragePool")
_register(_windows("GlobalAveragePool"), "QLinearGlobalAveragePool")
_register(_windows("MaxPool", is_last=True), "NhwcMaxPool")
_register(_windows("Conv", weight=1), "FusedConv")
_register(_windows("Conv", weight=1, is_last=True), "NhwcFusedConv")
_register(_on("Gemm", 0, 3, dtype_of=8), "QGemm")
_register(_on("MatMul", 0, 1, dtype_of=0), "DynamicQuantizeMatMul")
_register(_on("MatMul", 0, 1, dtype_of=2), "MatMulIntegerToFloat")
_register(_on("Gemm", 0, 1, dtype_of=0), "FusedGemm")
_register(_product, "FusedMatMul", "TransposeMatMul")
_register(_packed, "MatMulNBits", "MatMulBnb4")
_register(_quantized, "QuantizeLinear")
_register(_like(0, dtype_of=1), "DequantizeLinear")
_register(_skip_normalized, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
_register(
    _like(0),
    "GroupNormalization",
    "LayerNormalization",
    "MeanVarianceNormalization",
    "SimplifiedLayerNormalization",
    domain="",
)
_register(_comparison, "GreaterOrEqual", "LessOrEqual", domain="")

__all__ = ["FUNCTIONS", "Equivalent", "Function", "equivalents_of"]
