"""The argument of type functions: an op with its attributes, and the types and small constants of its operands."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.formats import Extent
from layoutopt.ir.types import Array, DType, OpaqueType, TensorType
from layoutopt.ops.base import EXTENSIONS

MaybeExtent: TypeAlias = Extent | None
"""An extent, or an element of an integer tensor; None if it is unknown."""

Extents: TypeAlias = tuple[Extent, ...]
"""The extents of an operand; an unknown extent has a unique name."""

Dims: TypeAlias = tuple[MaybeExtent, ...]
"""The extents of a result."""

Elements: TypeAlias = Array
"""The elements of a small integer tensor, of its shape: objects that are `MaybeExtent`."""


class ContradictionError(Exception):
    """The operands or attributes of a node contradict each other, so that the op fails when it runs."""


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ContradictionError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ContradictionError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def require(is_consistent: bool, fault: str) -> None:
    """Check a condition that holds for every op that can run.

    Raises:
        ContradictionError: it does not hold.
    """
    if not is_consistent:
        raise ContradictionError(fault)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An input of a node.

    Attributes:
        type: its type.
        symbolic_elements: the elements of a small tensor of whole numbers, as extents; None if they are unknown.
        constant: the elements of a small tensor of any type, if all are known numbers.
    """

    type: TensorType | OpaqueType
    symbolic_elements: Elements | None = None
    constant: Array | None = None

    @property
    def dims(self) -> Extents | None:
        """The extents; None if the rank is unknown."""
        shape = self.type.shape if isinstance(self.type, TensorType) else None
        return None if shape is None else tuple(map(Extent.of, shape))

    @property
    def dtype(self) -> DType | None:
        """The element type; None if the operand is no tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None


@dataclass(slots=True)
class Node:
    """An op with the types of its operands.

    Attributes:
        op_type: the operator.
        domain: its domain.
        version: the opset of the domain.
        attributes: attributes as python values.
        operands: the inputs, None where one is absent.
        outputs: for each output, whether it is present.
        bounds: lower bounds of named dimensions, where these are above 1.
    """

    op_type: str
    domain: str
    version: int
    attributes: Mapping[str, Any]
    operands: Sequence[Operand | None]
    outputs: tuple[bool, ...] = (True,)
    bounds: Mapping[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The op type, with its domain in front unless that is ai.onnx."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def operand(self, index: int) -> Operand | None:
        """An input; None if it is absent."""
        return self.operands[index] if index < len(self.operands) else None

    def has_input(self, index: int) -> bool:
        """Whether the input is present."""
        return self.operand(index) is not None

    def shape(self, index: int) -> Extents | None:
        """The extents of an input."""
        operand = self.operand(index)
        return None if operand is None else operand.dims

    def elements(self, index: int = 0) -> Elements | None:
        """The elements of an input, as extents."""
        operand = self.operand(index)
        return None if operand is None else operand.symbolic_elements

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a small constant."""
        operand = self.operand(index)
        return None if operand is None else operand.constant

    def vector(self, index: int, name: str = "") -> list[MaybeExtent] | None:
        """The elements of an input that is a list, or one number, or of the attribute that older opsets have for it."""
        if name in self.attributes:
            return [Extent.of(int(each)) for each in np.ravel(self.attributes[name])]
        found = self.elements(index)
        return None if found is None else list(found.reshape(-1))

    def integers(self, index: int, name: str = "") -> list[int] | None:
        """The elements of an input or attribute, as in `vector`, if all are known numbers."""
        vector = self.vector(index, name)
        found = as_integers(None if vector is None else tuple(vector))
        return None if found is None else list(found)

    def low(self, extent: Extent) -> int | None:
        """A lower bound of an extent, given that every tensor that the results depend on has elements."""
        return extent.low(self.bounds, 1)

    def is_at_most(self, one: Extent, other: Extent) -> bool:
        """Whether one extent is at most another for all sizes of dimensions."""
        low = self.low(other - one)
        return low is not None and low >= 0


def as_elements(array: Array) -> Elements | None:
    """The elements of a constant, if they are integers."""
    if array.dtype.kind not in "iubf":
        return None
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.array_equal(array, np.rint(array))):
        return None
    return element_array([Extent.of(int(each)) for each in array.reshape(-1)], array.shape)


def element_array(items: Sequence[MaybeExtent], shape: tuple[int, ...]) -> Elements:
    """An array of objects with these elements and this shape."""
    result = np.empty(len(items), dtype=object)
    result[:] = items
    return result.reshape(shape)


def as_integers(dims: Dims | None) -> tuple[int, ...] | None:
    """Extents as numbers; None if one is symbolic or unknown."""
    found = [None if dim is None else dim.number for dim in dims or ()]
    known = tuple(number for number in found if number is not None)
    return known if dims is not None and len(known) == len(found) else None


def product_of(dims: Iterable[Extent]) -> Extent:
    """The product of extents."""
    return prod(dims, start=Extent.of(1))


# --- Type functions: the types of results of operators that onnx does not infer ---
#
# onnx has no schema for the domain com.microsoft, which quantised models and models saved by onnxruntime use. A
# type function returns the types of the results, or describes the operator by a standard one with the same extents:
# QLinearConv has the extents of a Conv, and the element type of its last zero point.


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
