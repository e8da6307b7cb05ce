"""The elements of small integer tensors, as extents: the arithmetic of shapes.

    Shape(x) -> Slice(2, 4) -> Div(7) -> Concat(...)      is      [H, W] -> [H//7, W//7] -> ...

Integers in floating-point tensors are followed too, since float32 is exact below 2**24. Booleans are 0 and 1.
"""

import operator
from collections.abc import Callable
from functools import partial, reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.formats import Extent
from layoutopt.ir.types import Array
from layoutopt.ops.shape_functions.node import (
    ContradictionError,
    Elements,
    MaybeExtent,
    Node,
    as_elements,
    as_integers,
    axis_of,
    element_array,
    product_of,
    require,
)

ElementFunction: TypeAlias = Callable[[Node], Elements | list[Elements] | None]
"""Returns the elements of the only output of a node, or a list with those of each; None if they are unknown."""

_BOOL = 9  # TensorProto.BOOL

MAX_ELEMENTS = 64  # of a tensor in data propagation: shapes, pads and window counts are far smaller

FUNCTIONS: dict[str, ElementFunction] = {}


def elements_of(node: Node) -> list[Elements | None]:
    """The elements of every output of a node; None if they are unknown.

    Raises:
        ContradictionError: the operands or attributes contradict each other.
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


def _by_numpy(function: Callable[..., Any], *operands: Any, **attributes: Any) -> Any:
    """The result of a numpy function with the same conditions on its operands as the operator.

    Raises:
        ContradictionError: numpy refuses the operands.
    """
    try:
        return function(*operands, **attributes)
    except (ValueError, IndexError) as error:
        raise ContradictionError(str(error)) from error


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
    filler = np.zeros(1) if value is None else value.payload.numpy()
    require(filler.size == 1, "a value that is not one element")
    return as_elements(np.full(shape, filler.reshape(-1)[0]))


@_function_of("Range")
def _range(node: Node) -> Elements | None:
    numbers = [node.integers(index) for index in range(3)]
    start, limit, delta = (each[0] if each else None for each in numbers)
    if start is None or limit is None or not delta or abs(limit - start) > MAX_ELEMENTS * abs(delta):
        return None
    return as_elements(np.arange(start, limit, delta))


@_function_of("Constant")
def _constant(node: Node) -> Elements | None:
    """A Constant in a function, whose attribute may be an argument of the call."""
    for name in ("value_int", "value_ints", "value_float", "value_floats"):
        if name in node.attributes:
            return as_elements(np.asarray(node.attributes[name]))
    value = node.attributes.get("value")
    return None if value is None else as_elements(value.payload.numpy())


# --- data movement -----------------------------------------------------------------------------------------------------


@_function_of("Identity", "Cast", "Floor", "Ceil", "Round")
def _same(node: Node) -> Elements | None:
    """The elements, which are integers; None for a Cast to bool, which changes numbers other than 0 and 1."""
    to_bool = node.op_type == "Cast" and node.attributes.get("to") == _BOOL
    return None if to_bool else node.elements()


@_function_of("Squeeze", "Unsqueeze", "Reshape", "Flatten")
def _reshaped(node: Node) -> Elements | None:
    """The elements in the result's shape, as far as this function needs it; `shapes` infers the shape."""
    given = node.elements()
    if given is None:
        return None
    if node.op_type in ("Squeeze", "Unsqueeze"):
        axes = node.integers(1, "axes")
        if axes is None:
            return np.squeeze(given) if node.op_type == "Squeeze" and not node.has_input(1) else None
        function = np.squeeze if node.op_type == "Squeeze" else np.expand_dims
        return _by_numpy(function, given, tuple(axes))  # type: ignore[no-any-return]
    if node.op_type == "Flatten":
        return given.reshape(int(np.prod(given.shape[: node.attributes.get("axis", 1)])), -1) if given.size else None
    target = node.integers(1)
    if target is None:
        return None
    copied = not node.attributes.get("allowzero")
    shape = [given.shape[axis_of(axis, given.ndim)] if dim == 0 and copied else dim for axis, dim in enumerate(target)]
    return _by_numpy(given.reshape, shape)  # type: ignore[no-any-return]


@_function_of("Transpose")
def _transposed(node: Node) -> Elements | None:
    given = node.elements()
    return None if given is None else _by_numpy(given.transpose, node.attributes.get("perm"))


@_function_of("Gather")
def _gathered(node: Node) -> Elements | None:
    given, indices = node.elements(), node.constant(1)
    if given is None or indices is None or np.size(indices) > MAX_ELEMENTS:
        return None
    taken = _by_numpy(np.take, given, indices.astype(np.int64), axis=node.attributes.get("axis", 0))
    return element_array(list(np.reshape(taken, -1)), np.shape(indices)) if given.ndim == 1 else np.asarray(taken)


@_function_of("Slice")
def _sliced(node: Node) -> Elements | None:
    given = node.elements()
    starts, ends = node.integers(1, "starts"), node.integers(2, "ends")
    if given is None or starts is None or ends is None:
        return None
    axes = node.integers(3, "axes") if node.has_input(3) or "axes" in node.attributes else list(range(len(starts)))
    steps = node.integers(4) if node.has_input(4) else [1] * len(starts)
    if axes is None or steps is None:
        return None
    require(len(axes) == len(starts) == len(ends) == len(steps), "starts, ends, axes and steps of different lengths")
    require(0 not in steps, "a step of zero")
    where = [slice(None)] * given.ndim
    for given_axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis_of(given_axis, given.ndim)
        size = given.shape[axis]
        stop = None if step < 0 and end < -size else end  # from the back, -1 is before the first
        where[axis] = slice(start, stop, step)
    return given[tuple(where)]


@_function_of("Split")
def _split(node: Node) -> list[Elements] | None:
    given = node.elements()
    if given is None:
        return None
    axis, count = axis_of(node.attributes.get("axis", 0), given.ndim), len(node.outputs)
    sizes = node.integers(1, "split") if node.has_input(1) or "split" in node.attributes else None
    if sizes is None:
        if node.has_input(1):
            return None
        chunk = -(-given.shape[axis] // count)
        sizes = [min(chunk, given.shape[axis] - chunk * index) for index in range(count)]
    require(len(sizes) == count and min(sizes) >= 0 and sum(sizes) == given.shape[axis], "pieces of another total size")
    return list(np.split(given, np.cumsum(sizes)[:-1], axis=axis))


@_function_of("Concat")
def _joined(node: Node) -> Elements | None:
    """The concatenated elements; a piece of known length without known elements contributes unknown elements."""
    pieces = []
    for index in range(len(node.operands)):
        given = node.elements(index)
        if given is None:
            sizes = as_integers(node.shape(index))
            if sizes is None or prod(sizes) > MAX_ELEMENTS:
                return None
            given = element_array([None] * prod(sizes), sizes)
        pieces.append(given)
    return _by_numpy(np.concatenate, pieces, axis=node.attributes.get("axis", 0))  # type: ignore[no-any-return]


@_function_of("Expand")
def _expanded(node: Node) -> Elements | None:
    given, target = node.elements(), node.integers(1)
    if given is None or target is None:
        return None
    shape = _by_numpy(np.broadcast_shapes, given.shape, tuple(target))
    return np.broadcast_to(given, shape) if np.prod(shape) <= MAX_ELEMENTS else None


@_function_of("Tile")
def _tiled(node: Node) -> Elements | None:
    given, repeats = node.elements(), node.integers(1)
    if given is None or repeats is None or given.size * np.prod(repeats) > MAX_ELEMENTS:
        return None
    return _by_numpy(np.tile, given, repeats)  # type: ignore[no-any-return]


@_function_of("Where")
def _chosen(node: Node) -> Elements | None:
    given = [each for index in range(3) if (each := node.elements(index)) is not None]
    if len(given) != 3:
        return None
    condition, one, other = _by_numpy(np.broadcast_arrays, *given)
    chosen = [
        None if truth is None or truth.number is None else a if truth.number else b
        for truth, a, b in zip(condition.flat, one.flat, other.flat, strict=True)
    ]
    return element_array(chosen, condition.shape)


# --- arithmetic --------------------------------------------------------------------------------------------------------


def _elementwise(node: Node, function: Callable[[Extent, Extent], MaybeExtent]) -> Elements | None:
    """A function of two extents applied element by element to all operands, from the first on."""
    result = node.elements()
    for index in range(1, len(node.operands)):
        other = node.elements(index)
        if result is None or other is None:
            return None
        one, two = _by_numpy(np.broadcast_arrays, result, other)
        pairs = zip(one.flat, two.flat, strict=True)
        result = element_array([None if a is None or b is None else function(a, b) for a, b in pairs], one.shape)
    return result


def _is_at_most(one: Extent, other: Extent) -> bool:
    """Whether one number is at most another for all sizes of dimensions, 0 included."""
    low = (other - one).low()
    return low is not None and low >= 0


def _largest(a: Extent, b: Extent) -> MaybeExtent:
    return a if _is_at_most(b, a) else b if _is_at_most(a, b) else None


def _smallest(a: Extent, b: Extent) -> MaybeExtent:
    return b if _is_at_most(b, a) else a if _is_at_most(a, b) else None


def _is_less(a: Extent, b: Extent) -> MaybeExtent:
    return Extent.of(1) if _is_at_most(a + 1, b) else Extent.of(0) if _is_at_most(b, a) else None


def _is_equal(a: Extent, b: Extent) -> MaybeExtent:
    differ = _is_at_most(a + 1, b) or _is_at_most(b + 1, a)
    return Extent.of(1) if a == b else Extent.of(0) if differ else None


def _not(truth: MaybeExtent) -> MaybeExtent:
    return None if truth is None or truth.number is None else Extent.of(1 - truth.number)


_PAIRWISE: dict[str, Callable[[Extent, Extent], MaybeExtent]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Max": _largest,
    "Min": _smallest,
    "Equal": _is_equal,
    "Less": _is_less,
    "Greater": lambda a, b: _is_less(b, a),
    "LessOrEqual": lambda a, b: _not(_is_less(b, a)),
    "GreaterOrEqual": lambda a, b: _not(_is_less(a, b)),
}
_REDUCTIONS = {"ReduceProd": "Mul", "ReduceSum": "Add", "ReduceMax": "Max", "ReduceMin": "Min"}


@_function_of(*_PAIRWISE)
def _computed(node: Node) -> Elements | None:
    return _elementwise(node, _PAIRWISE[node.op_type])


@_function_of("Neg", "Not")
def _inverted(node: Node) -> Elements | None:
    given = node.elements()
    if given is None:
        return None
    invert: Callable[[MaybeExtent], MaybeExtent] = (
        _not if node.op_type == "Not" else lambda each: None if each is None else -each
    )
    return element_array([invert(each) for each in given.flat], given.shape)


@_function_of(*_REDUCTIONS)
def _reduced(node: Node) -> Elements | None:
    """The reduction of all elements of a list."""
    given = node.elements()
    if given is None or given.ndim > 1 or not given.size:
        return None
    if node.attributes.get("noop_with_empty_axes") and not node.has_input(1):
        return None
    function = _PAIRWISE[_REDUCTIONS[node.op_type]]
    total = reduce(lambda a, b: None if a is None or b is None else function(a, b), given.flat)
    return (
        None
        if total is None
        else element_array([total], (1,) * given.ndim if node.attributes.get("keepdims", 1) else ())
    )


@_function_of("Div")
def _divided(node: Node) -> Elements | None:
    return _elementwise(node, _exact if _is_floating_point(node) else partial(_truncated, node))


def _is_floating_point(node: Node) -> bool:
    """Whether a Div computes floating-point numbers."""
    operand = node.operand(0)
    return operand is not None and operand.dtype is not None and operand.dtype.is_float


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
