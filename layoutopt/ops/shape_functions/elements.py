"""The elements of small integer tensors, as extents: the arithmetic of shapes.

    Shape(x) -> Slice(2, 4) -> Div(7) -> Concat(...)      is      [H, W] -> [H//7, W//7] -> ...

Integers in floating-point tensors are followed too, since float32 is exact below 2**24. Booleans are 0 and 1.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.formats import Extent
from layoutopt.ir.types import Array, DType
from layoutopt.ops.shape_functions.node import (
    Elements,
    MaybeExtent,
    Node,
    as_elements,
    as_integers,
    element_array,
    product_of,
    require,
)

ElementFunction: TypeAlias = Callable[[Node], Elements | list[Elements] | None]
"""Returns the elements of the only output of a node, or a list with those of each; None if they are unknown."""

MAX_ELEMENTS = 64  # of a tensor in data propagation: shapes, pads and window counts are far smaller

FUNCTIONS: dict[str, ElementFunction] = {}


def elements_of(node: Node) -> list[Elements | None]:
    """The elements of every output of a node; None if they are unknown.

    Raises:
        ValueError: the operands or attributes contradict each other.
    """
    count = len(node.outputs)
    function = FUNCTIONS.get(node.op_type)
    found = function(node) if function is not None else None
    if found is None:
        return [None] * count
    outputs = found if isinstance(found, list) else [found]
    return [each if each.size <= MAX_ELEMENTS else None for each in outputs] + [None] * (count - len(outputs))


def _function_of(*op_types: str) -> Callable[[ElementFunction], ElementFunction]:
    def register(function: ElementFunction) -> ElementFunction:
        FUNCTIONS.update(dict.fromkeys(op_types, function))
        return function

    return register


# --- sources of extents ------------------------------------------------------------------------------------------------


@_function_of("Shape")
def _shape(node: Node) -> Elements | None:
    shape, attributes = node.shape(0), node.attributes
    if shape is None:
        return None
    dims = list(shape)[slice(attributes.get("start", 0), attributes.get("end"))]
    return element_array(dims, (len(dims),))


@_function_of("Size")
def _size(node: Node) -> Elements | None:
    shape = node.shape(0)
    return None if shape is None else element_array([product_of(shape)], ())


@_function_of("ConstantOfShape")
def _constant_of_shape(node: Node) -> Elements | None:
    shape = node.integers(0)
    if shape is None or min(shape, default=0) < 0 or np.prod(shape) > MAX_ELEMENTS:
        return None
    value = node.attributes.get("value")
    return as_elements(np.full(shape, 0 if value is None else value.payload.numpy().item()))


@_function_of("Range")
def _range(node: Node) -> Elements | None:
    numbers = [node.integers(index) for index in range(3)]
    start, limit, delta = (each[0] if each else None for each in numbers)
    if start is None or limit is None or not delta or abs(limit - start) > MAX_ELEMENTS * abs(delta):
        return None
    return as_elements(np.arange(start, limit, delta))


# --- data movement -----------------------------------------------------------------------------------------------------


@_function_of("Identity", "Cast", "Floor", "Ceil", "Round")
def _same(node: Node) -> Elements | None:
    """The elements, which are integers; None for a Cast to bool, which changes numbers other than 0 and 1."""
    to_bool = node.op_type == "Cast" and node.attributes.get("to") == DType.BOOL.number
    return None if to_bool else node.elements()


@_function_of("Concat", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
def _moved(node: Node) -> list[Elements] | None:
    """The elements where onnx's reference implementation moves their numbers to; its other operands have to be constant.

    A piece of a Concat of known length without known elements contributes unknown elements.
    """
    is_concat = node.op_type == "Concat"
    pieces = [_piece(node, index) if is_concat else node.elements(index) for index in range(len(node.operands))]
    moved, others = (pieces, []) if is_concat else (pieces[:1], range(1, len(pieces)))
    known = [each for each in moved if each is not None]
    constants = [node.constant(index) for index in others]
    if len(known) < len(moved) or any(
        node.has_input(i) and array is None for i, array in zip(others, constants, strict=True)
    ):
        return None
    if any(array is not None and array.size > MAX_ELEMENTS for array in constants):
        return None
    flat = np.concatenate([each.reshape(-1) for each in known])
    starts = np.cumsum([0, *(each.size for each in known)])
    numbers = [np.arange(each.size).reshape(each.shape) + start for each, start in zip(known, starts, strict=False)]
    results = moved_arrays(node.op_type, node.version, [*numbers, *constants], len(node.outputs), node.attributes)
    is_whole = len(results) == len(node.outputs) and sum(each.size for each in results) == flat.size
    require(node.op_type != "Split" or is_whole, "pieces of another total size")
    return [np.asarray(flat.take(each), dtype=object) for each in results]


def moved_arrays(
    op_type: str, version: int, inputs: Sequence[Array | None], count: int, attributes: Mapping[str, Any]
) -> list[Array]:
    """The outputs of an op that moves elements, by onnx's reference implementation.

    Raises:
        ValueError: the inputs or attributes contradict each other.
    """
    from onnx.reference.ops import load_op  # takes 0.15 s, only for models that compute shapes or move rows

    try:
        found = load_op("", op_type, version).eval(*inputs, n_outputs=count, **attributes)
    except (ArithmeticError, IndexError, RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    return list(found) if isinstance(found, tuple) else [found]


def _piece(node: Node, index: int) -> Elements | None:
    """The elements of a piece; unknown ones if only its extents are known."""
    sizes = as_integers(node.shape(index))
    if (given := node.elements(index)) is not None or sizes is None or prod(sizes) > MAX_ELEMENTS:
        return given
    return element_array([None] * prod(sizes), sizes)


@_function_of("Where")
def _chosen(node: Node) -> Elements | None:
    return _mapped(
        node, lambda truth, a, b: None if truth is None or truth.number is None else a if truth.number else b
    )


# --- arithmetic --------------------------------------------------------------------------------------------------------


def _mapped(node: Node, function: Callable[..., MaybeExtent]) -> Elements | None:
    """A function of extents applied element by element to all operands, with broadcasting."""
    given = [each for index in range(len(node.operands)) if (each := node.elements(index)) is not None]
    if len(given) < len(node.operands):
        return None
    return np.asarray(np.frompyfunc(function, len(given), 1)(*given), dtype=object)


def _elementwise(node: Node, function: Callable[..., MaybeExtent]) -> Elements | None:
    """As `_mapped`, for a function of known extents."""
    return _mapped(node, lambda *each: None if None in each else function(*each))


def _is_equal(a: Extent, b: Extent) -> MaybeExtent:
    """Whether two numbers are equal for all sizes of dimensions, 0 included."""
    lows = [low for low in ((a - b - 1).low(), (b - a - 1).low()) if low is not None]
    return Extent.of(1) if a == b else Extent.of(0) if max(lows, default=-1) >= 0 else None


_ARITHMETIC: dict[str, Callable[..., MaybeExtent]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Neg": operator.neg,
    "Equal": _is_equal,
}


@_function_of(*_ARITHMETIC)
def _computed(node: Node) -> Elements | None:
    return _elementwise(node, _ARITHMETIC[node.op_type])


@_function_of("ReduceProd")
def _product(node: Node) -> Elements | None:
    """The product of all elements of a list."""
    given = node.elements()
    is_copied = node.attributes.get("noop_with_empty_axes") and not node.has_input(1)
    if given is None or given.ndim > 1 or is_copied or any(each is None for each in given.flat):
        return None
    return element_array([product_of(given.flat)], (1,) * given.ndim if node.attributes.get("keepdims", 1) else ())


@_function_of("Div")
def _divided(node: Node) -> Elements | None:
    operand = node.operand(0)
    is_exact = operand is not None and operand.dtype is not None and operand.dtype.is_float
    return _elementwise(node, _exact if is_exact else partial(_truncated, node))


def _exact(dividend: Extent, divisor: Extent) -> MaybeExtent:
    """The quotient of floating-point numbers, if it is an integer."""
    if divisor.number == 0:
        return None
    quotient = dividend // divisor
    return quotient if quotient * divisor == dividend else None


def _truncated(node: Node, dividend: Extent, divisor: Extent) -> MaybeExtent:
    """The quotient of integers, rounded towards zero; for symbolic extents only if neither is negative."""
    low, least = node.low(dividend), node.low(divisor)
    if low is not None and low >= 0 and least is not None and least > 0:
        return dividend // divisor
    above, below_it = dividend.number, divisor.number
    if above is None or not below_it:
        return None
    return Extent.of(abs(above) // abs(below_it) * (1 if (above < 0) == (below_it < 0) else -1))


@_function_of("Mod")
def _remainder(node: Node) -> Elements | None:
    """The remainder of integers, which has the sign of the divisor; None with `fmod`."""
    if node.attributes.get("fmod"):
        return None
    return _elementwise(node, lambda a, b: a % b if (least := node.low(b)) is not None and least > 0 else None)


def array_of(elements: Elements | None, dtype: np.dtype[Any]) -> Array | None:
    """The elements as an array, if all are numbers."""
    if elements is None:
        return None
    found = as_integers(tuple(elements.flat))
    if found is None or any(abs(number) >> 62 for number in found):  # int64 would overflow
        return None
    return np.asarray(found, dtype=np.int64).astype(dtype).reshape(elements.shape)
