"""The argument of type functions: an op with its attributes, and the types and small constants of its operands."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

from layoutopt.formats import Extent
from layoutopt.ir.types import Array, DType, OpaqueType, TensorType
from layoutopt.ops.base import EXTENSIONS
from layoutopt.record import Record

MaybeExtent: TypeAlias = Extent | None
"""An extent, or an element of an integer tensor; None if it is unknown."""

Extents: TypeAlias = tuple[Extent, ...]
"""The extents of an operand; an unknown extent has a unique name."""

Dims: TypeAlias = tuple[MaybeExtent, ...]
"""The extents of a result."""

Elements: TypeAlias = Array
"""The elements of a small integer tensor, of its shape: objects that are `MaybeExtent`."""


def require(is_consistent: bool, fault: str) -> None:
    """Check a condition that holds for every op that can run.

    Raises:
        ValueError: it does not hold.
    """
    if not is_consistent:
        raise ValueError(fault)


class Operand(Record, eq=False):
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


class Node(Struct):
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
# onnx has no schema for the domain com.microsoft, which quantised models and models saved by onnxruntime use. Where there is
# no function, the lift has asked onnxruntime for the type.


Result: TypeAlias = TensorType | OpaqueType | None
"""The type of a result; None if it is unknown."""

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


def _contrib(op_types: str) -> Callable[[TypeFunction], TypeFunction]:
    return type_function(*(f"com.microsoft::{op_type}" for op_type in op_types.split()))


def _same(node: Node, index: int = 0) -> TensorType | None:
    """The type of the first input, with the element type of input `index`."""
    x, other = node.operand(0), node.operand(index)
    if x is None or other is None or other.dtype is None or not isinstance(x.type, TensorType):
        return None
    return TensorType(other.dtype, x.type.shape)


@_contrib(
    "BiasAdd BiasGelu BiasSoftmax FastGelu Gelu GroupNorm Inverse LayerNormalization QLinearLeakyRelu QLinearSigmoid"
)
@_contrib("QLinearSoftmax QuickGelu RotaryEmbedding SimplifiedLayerNormalization Trilu")
@type_function("GroupNormalization", "LayerNormalization", "MeanVarianceNormalization", "SimplifiedLayerNormalization")
def _like_first_input(node: Node) -> Sequence[Result] | None:
    return [_same(node)] if sum(node.outputs) == 1 else None


@_contrib("QLinearAdd QLinearMul")
def _without_broadcast(node: Node) -> Sequence[Result] | None:
    return [_same(node)] if node.shape(0) == node.shape(3) else None


@_contrib("SkipLayerNormalization SkipSimplifiedLayerNormalization")
def _skip_normalized(node: Node) -> Sequence[Result]:
    """The normalised sum, its mean and inverse deviation along the last axis, and the sum, which has the first input's type."""
    same = _same(node)
    mean = TensorType(DType.FLOAT32, (*same.shape[:-1], 1) if same is not None and same.shape else None)
    return [same, mean, mean, same][: len(node.outputs)]


@_contrib("QuantizeLinear")
def _quantized(node: Node) -> Sequence[Result]:
    return [_same(node, 2)]  # without a zero point, onnxruntime knows the type


@_contrib("DequantizeLinear")
def _dequantized(node: Node) -> Sequence[Result]:
    return [_same(node, 1)]


@_contrib("MatMulNBits MatMulBnb4")
def _packed(node: Node) -> Sequence[Result] | None:
    """A product with a matrix of packed numbers, whose extents are attributes."""
    x, columns = node.operand(0), node.attributes.get("N")
    if x is None or not isinstance(x.type, TensorType) or not x.type.shape or columns is None:
        return None
    return [TensorType(x.type.dtype, (*x.type.shape[:-1], columns))]
