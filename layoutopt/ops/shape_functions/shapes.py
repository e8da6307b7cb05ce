"""The extents of results that onnx does not infer because extents of the operands are symbolic.

    Conv        (x + pads - window) // stride + 1          Reshape      the elements of its target, -1 as the quotient
    Concat      the sum                                    Slice        end - start, if both are inside for all sizes
    Resize      the sizes, or integer multiples            ...

A shape function returns an extent only if it holds for all sizes that the node can run with.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from layoutopt.formats import Extent
from layoutopt.ops.shape_functions.node import (
    Dims,
    Extents,
    MaybeExtent,
    Node,
    as_integers,
    product_of,
    require,
)

ShapeFunction: TypeAlias = Callable[[Node, Extents], Dims | list[Dims] | None]
"""Returns the shape of all outputs, or a list with the shape of each, for that of the first operand; None if it is unknown."""

FUNCTIONS: dict[str, ShapeFunction] = {}

_FAR = (1 << 31) - 1  # an end of a Slice that is this large is the extent


def shapes_of(node: Node) -> list[Dims | None]:
    """The extents of every output of a node of ai.onnx, as far as there is a shape function; None for unknown ranks.

    Raises:
        ValueError: the operands or attributes contradict each other.
    """
    function, x = FUNCTIONS.get(node.op_type), node.shape(0)
    is_known = x is not None or node.op_type == "Reshape"  # whose target alone may determine the shape
    found = function(node, x or ()) if function is not None and is_known else None
    return [*found] if isinstance(found, list) else [found] * len(node.outputs)


def _function_of(*op_types: str) -> Callable[[ShapeFunction], ShapeFunction]:
    def register(function: ShapeFunction) -> ShapeFunction:
        FUNCTIONS.update(dict.fromkeys(op_types, function))
        return function

    return register


# --- windows -----------------------------------------------------------------------------------------------------------


@_function_of("Conv", "ConvInteger", "QLinearConv", "DeformConv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose")
def _windows(node: Node, x: Extents) -> Dims | None:
    """The number of windows along each axis of the image; for ConvTranspose the extents that have as many windows."""
    attributes, image = node.attributes, x[2:]
    is_pool, is_transposed = "Pool" in node.op_type, node.op_type == "ConvTranspose"
    w = None if is_pool else node.shape(3 if node.op_type == "QLinearConv" else 1)
    kernel = attributes.get("kernel_shape") or as_integers(w and w[2:])
    if kernel is None or (w is None and not is_pool) or attributes.get("ceil_mode") or attributes.get("output_shape"):
        return None
    require(len(x) > 1 and (w is None or len(w) == len(x)), "a filter of another rank than the image")
    auto, zeros = str(attributes.get("auto_pad", "NOTSET")), [0] * len(image)
    strides, dilations = (attributes.get(name, [1] * len(image)) for name in ("strides", "dilations"))
    more, pads = attributes.get("output_padding", zeros), attributes.get("pads", zeros * 2)
    require(all(stride > 0 for stride in strides), "a stride that is not positive")
    half, sizes = len(pads) // 2, []
    rows = zip(image, strides, kernel, dilations, more, pads[:half], pads[half:], strict=True)
    for size, stride, side, dilation, extra, before, after in rows:
        inside = (side - 1) * dilation + 1 - (before + after if auto == "NOTSET" else 0)
        if auto.startswith("SAME"):
            sizes.append(size * stride if is_transposed else (size + (stride - 1)) // stride)
        elif is_transposed:
            sizes.append((size - 1) * stride + (extra + inside))
        else:
            sizes.append((size - inside) // stride + 1)
    channels = x[1] if w is None else w[1] * attributes.get("group", 1) if is_transposed else w[0]
    return (x[0], channels, *sizes)


@_function_of("DepthToSpace", "SpaceToDepth")
def _depth_and_space(node: Node, x: Extents) -> Dims | None:
    block = node.attributes.get("blocksize", 1)
    if len(x) != 4:
        return None
    require(block > 0, "a block without elements")
    n, c, h, w = x
    if node.op_type == "DepthToSpace":
        return n, c // (block * block), h * block, w * block
    return n, c * (block * block), h // block, w // block


# --- reshapes ----------------------------------------------------------------------------------------------------------


@_function_of("Reshape")
def _reshaped(node: Node, _: Extents) -> Dims | None:
    """The target shape; at most one extent, -1 or an unknown one, is the quotient of the elements by the other extents."""
    x, target, length = node.shape(0), node.vector(1), node.shape(1)
    if target is None:
        rank = length[0].number if length is not None and len(length) == 1 else None
        return None if rank is None else (None,) * rank  # onnx's inference finds the rank from opset 13 on
    copied = not node.attributes.get("allowzero")
    dims: list[MaybeExtent] = []
    for axis, dim in enumerate(target):
        if dim is not None and dim.number == 0 and copied:
            dims.append(x[axis] if x is not None and axis < len(x) else None)
        else:
            dims.append(dim if dim is not None and node.is_at_most(Extent.of(0), dim) else None)
    return tuple(dims) if x is None else _completed(x, dims)


def _completed(x: Extents, dims: list[MaybeExtent]) -> Dims:
    """The extents with a single missing one computed from the number of elements."""
    rest = product_of(dim for dim in dims if dim is not None)
    if dims.count(None) == 1 and rest.number != 0:
        dims[dims.index(None)] = product_of(x) // rest
    return tuple(dims)


@_function_of("Flatten")
def _flattened(node: Node, x: Extents) -> Dims:
    axis = node.attributes.get("axis", 1)
    return product_of(x[:axis]), product_of(x[axis:])


# --- selection and repetition ------------------------------------------------------------------------------------------


@_function_of("Expand")
def _expanded(node: Node, x: Extents) -> Dims | None:
    target = node.vector(1)
    pairs = zip_longest(reversed(x), reversed(target or ()), fillvalue=Extent.of(1))
    return None if target is None else tuple(_broadcast(a, b) for a, b in pairs)[::-1]


def _broadcast(a: MaybeExtent, b: MaybeExtent) -> MaybeExtent:
    """The broadcast extent: two extents are equal or one is 1, so a number other than 1 is the result."""
    for this, other in ((a, b), (b, a)):
        if this is not None and this.number == 1:
            return other
    for this in (a, b):
        if this is not None and this.number is not None:
            return this
    return a if a == b else None


@_function_of("Tile")
def _tiled(node: Node, x: Extents) -> Dims | None:
    repeats = node.vector(1)
    if repeats is None or len(x) != len(repeats):
        return None
    return tuple(None if count is None else dim * count for dim, count in zip(x, repeats, strict=True))


@_function_of("Pad")
def _padded(node: Node, x: Extents) -> Dims | None:
    pads = node.vector(1, "pads")
    axes = node.integers(3) if node.has_input(3) else list(range(len(x)))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    dims: list[MaybeExtent] = list(x)
    for given, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        axis = normalize_axis_index(given, len(x))
        dims[axis] = None if before is None or after is None else x[axis] + before + after
    return tuple(dims)


@_function_of("Slice")
def _sliced(node: Node, x: Extents) -> Dims | None:
    starts, ends = node.vector(1, "starts"), node.vector(2, "ends")
    given, counted = starts if starts is not None else ends, as_integers(node.shape(1))
    if given is None and not counted:
        return None
    count = len(given) if given is not None else counted[0] if counted else 0
    axes = node.integers(3, "axes") if node.has_input(3) or "axes" in node.attributes else list(range(count))
    steps = node.integers(4) if node.has_input(4) else [1] * count
    if axes is None:
        return None
    dims: list[MaybeExtent] = list(x)
    lists = [each for each in (starts, ends, steps) if each is not None]
    require(all(len(each) == len(axes) for each in lists), "starts, ends, axes and steps of different lengths")
    require(steps is None or 0 not in steps, "a step of zero")
    for position, given_axis in enumerate(axes):
        axis = normalize_axis_index(given_axis, len(x))
        dims[axis] = None
        if starts is not None and ends is not None and steps is not None:
            dims[axis] = _length(node, x[axis], starts[position], ends[position], steps[position])
    return tuple(dims)


def _length(node: Node, dim: Extent, start: MaybeExtent, end: MaybeExtent, step: int) -> MaybeExtent:
    """The number of elements of a range; None if it is unknown."""
    if start is None or end is None:
        return None
    if step < 0:
        is_reversed = start.number == -1 and end.number is not None and end.number <= -_FAR
        return (dim - step - 1) // -step if is_reversed else None
    first, last = _position(node, dim, start), _position(node, dim, end)
    if first is None or last is None:
        return None
    ordered = first.number == 0 or last == dim or node.is_at_most(first, last)
    return (last - first + (step - 1)) // step if ordered else None


def _position(node: Node, dim: Extent, position: Extent) -> MaybeExtent:
    """A position counted from the front and limited to the extent; None unless it is known whether it is inside.

    The extent of a tensor that has elements is at least the number that it is a multiple of.
    """
    number = position.number
    if number is not None and number >= _FAR:
        return dim
    if number is not None and abs(number) <= dim.factors[0]:
        return position if number >= 0 else dim + number
    if number is not None and number < 0:
        return dim + number if node.is_at_most(Extent.of(-number), dim) else None
    if not node.is_at_most(Extent.of(0), position):
        return None
    return position if node.is_at_most(position, dim) else dim if node.is_at_most(dim, position) else None


@_function_of("Concat")
def _joined(node: Node, x: Extents) -> Dims | None:
    shapes = [shape for index in range(len(node.operands)) if (shape := node.shape(index)) is not None]
    if len(shapes) < len(node.operands) or not x or any(len(shape) != len(x) for shape in shapes):
        return None
    along = normalize_axis_index(node.attributes.get("axis", 1), len(x))
    positions = enumerate(zip(*shapes, strict=True))
    return tuple(sum(dims, Extent.of(0)) if axis == along else min(dims, key=_text_order) for axis, dims in positions)


def _text_order(dim: Extent) -> tuple[bool, int]:
    """The sort key of equal extents: numbers first, then short texts."""
    return dim.number is None, len(str(dim))


@_function_of("Split")
def _split(node: Node, x: Extents) -> list[Dims]:
    count = len(node.outputs)
    axis = normalize_axis_index(node.attributes.get("axis", 0), len(x))
    sizes: list[MaybeExtent] = [None] * count
    dim = x[axis]
    if "split" in node.attributes or node.has_input(1):
        given = node.vector(1, "split")
        sizes = given if given is not None and len(given) == count else sizes
    else:
        chunk = (dim + (count - 1)) // count if node.version >= 18 else dim // count
        sizes = [*[chunk] * (count - 1), dim - chunk * (count - 1)]
    return [tuple(size if position == axis else old for position, old in enumerate(x)) for size in sizes]


@_function_of("Resize", "Upsample")
def _resized(node: Node, x: Extents) -> Dims | None:
    attributes, dims = node.attributes, list[MaybeExtent](x)
    axes = [normalize_axis_index(axis, len(x)) for axis in attributes.get("axes", range(len(x)))]
    sizes: list[MaybeExtent] | None
    if node.has_input(3):
        is_stretched = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        sizes = node.vector(3) if is_stretched else None
        sizes = sizes if sizes is not None and len(sizes) == len(axes) else [None] * len(axes)
    else:
        scales = attributes.get("scales") or node.constant(1 if node.op_type == "Upsample" or node.version < 11 else 2)
        if scales is None or np.size(scales) != len(axes):
            return None
        crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        factors = np.reshape(scales, -1).tolist()
        sizes = [None if crops else _scaled(x[axis], factor) for axis, factor in zip(axes, factors, strict=True)]
    for axis, size in zip(axes, sizes, strict=True):
        dims[axis] = size
    return tuple(dims)


def _scaled(dim: Extent, scale: float) -> MaybeExtent:
    """The scaled extent, rounded down; known for integer scales and for inverse powers of two, which are exact."""
    if scale <= 0:
        return None
    if scale == int(scale):
        return dim * int(scale)
    inverse = 1 / scale
    return dim // int(inverse) if inverse == int(inverse) and int(inverse).bit_count() == 1 else None


# --- sources -----------------------------------------------------------------------------------------------------------


@_function_of("Range")
def _range(node: Node, _: Extents) -> Dims | None:
    first, last, step = (node.vector(index) for index in range(3))
    delta = node.integers(2)
    if not first or not last or not step or not delta or delta[0] <= 0 or first[0] is None or last[0] is None:
        return None
    return ((last[0] - first[0] + (delta[0] - 1)) // delta[0],) if node.is_at_most(first[0], last[0]) else None


@_function_of("ConstantOfShape")
def _filled(node: Node, _: Extents) -> Dims | None:
    target = node.vector(0)
    return None if target is None else tuple(target)
