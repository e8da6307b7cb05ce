"""Global response normalisation: x + (x n scale + shift), n = |x| / mean(|x|), |x| the norm over the image.

Woo et al., ConvNeXt V2, arXiv:2301.00808. Exporters write it with ReduceL2, and with four passes over x.
"""

from math import prod

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops.base import facts
from layoutopt.patterns.base import Match, find, reshaped, tree

_RESPONSE = tree("Add", "x", tree("Add", tree("Mul", tree("Mul", "x", "norm"), "scale"), "shift"))


def factored_response(graph: Graph, op: Op) -> Value | None:
    """The result of the last Add of a global response normalisation, by new ops that scale x once.

    before: Add(x, Add(Mul(Mul(x, norm), scale), shift))
    after:  Add(Mul(x, Add(Mul(norm, scale), 1)), shift)        norm, scale and shift have fewer elements than x
    """
    found = find(graph, op.y, _RESPONSE)
    if found is None or Match(op.y, found.ops, ()).external_use(graph) is not None:
        return None
    x, norm, scale, shift = (found.values[name] for name in ("x", "norm", "scale", "shift"))
    if not all(_is_gate(each, x) for each in (norm, scale, shift)) or norm.rank != x.rank or op.y.shape != x.shape:
        return None
    if scale.rank == x.rank and scale.dims[0] not in (1, norm.dims[0]):  # their product has another shape than the norm
        return None
    stem, one = op.y.name, graph.new_constant(np.ones(1, np.float32), f"{op.y.name}/one")
    factor = graph.new_result("Mul", (norm, scale), norm.type, f"{stem}/scale", op)
    gate = graph.new_result("Add", (factor, one), norm.type, f"{stem}/gate", op)
    scaled = graph.new_result("Mul", (x, gate), x.type, f"{stem}/scaled", op)
    return graph.new_result("Add", (scaled, shift), x.type, f"{stem}/shifted", op)


def _is_gate(value: Value, x: Value) -> bool:
    """Whether a tensor has numbers along the last axis of x, of three axes or more, and along its first one alone."""
    if (
        value.shape is None
        or x.shape is None
        or x.dtype is not DType.FLOAT32
        or not 0 < len(value.shape) <= len(x.shape)
    ):
        return False
    *others, columns = value.shape
    return len(x.shape) > 2 and columns == x.shape[-1] and all(dim == 1 for dim in others[-(len(x.shape) - 2) :])


_MANY = 1 << 13  # elements; below, the product saves no more time than its further nodes take


def norm_by_product(graph: Graph, op: Op) -> Value | None:
    """The result of a ReduceL2 over all axes between the first and the last, by new ops, of which one is a product.

    before: x (N,H,W,C) -> ReduceL2 {axes = 1, 2}
    after:  x -> Mul(x, x) -> Reshape (N,H*W,C) -> MatMul(ones (1,H*W), .) -> Reshape -> Sqrt

    onnxruntime's ReduceL2 takes 3.4 ms for 3136 x 384 elements, the other ops 0.9 (1.32, one thread, AVX2).
    """
    x, y = op.x, op.y
    if x.dtype is not DType.FLOAT32 or x.shape is None or len(x.shape) < 3 or y.rank != x.rank:
        return None
    batch, *image, columns = x.shape
    numbers = [extent for extent in (*image, columns) if isinstance(extent, int)]
    if (
        facts(op).reduced_axes(op) != (*range(1, len(image) + 1),)
        or len(numbers) <= len(image)
        or prod(numbers) < _MANY
    ):
        return None
    rows, stem = prod(numbers[:-1]), f"{y.name}/squares"
    squares = graph.new_result("Mul", (x, x), x.type, stem, op)
    ones = graph.new_constant(np.ones((1, rows), np.float32), f"{stem}/ones")
    factors = (ones, reshaped(graph, op, squares, (batch, rows, columns)))
    total = graph.new_result("MatMul", factors, x.type_with((batch, 1, columns)), f"{stem}/sum", op)
    return graph.new_result("Sqrt", (reshaped(graph, op, total, y.dims),), y.type, f"{stem}/root", op)
