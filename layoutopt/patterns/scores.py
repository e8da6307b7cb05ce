"""Scores of attention, products of queries and keys: fewer passes over them for a factor per head and constant addends.

before: MatMul(Div(q, |q|), k) -> Mul(s (H,1,1)) -> Add(bias (H,S,S)) -> Reshape -> Add(mask (W,1,S,S)) -> Reshape
after:  MatMul(Div(q, Div(|q|, s)), k) -> Add(bias + mask (W,H,S,S)) -> Reshape -> Reshape

Attention by cosines in windows: Liu et al., Swin Transformer V2, arXiv:2111.09883.
"""

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET, rule_of
from layoutopt.ops.view import View
from layoutopt.patterns.base import Match, find, tree
from layoutopt.record import Record

_SCALED = tree("Mul", tree("MatMul", tree("Div", "queries", "norm"), "keys"), "scale")
_MAX_FACTOR = 1024.0
"""Norms are divided by factors between this number and its reciprocal, so that none becomes zero or infinite."""


def factor_in_divisor(graph: Graph, op: Op) -> Value | None:
    """The result of a constant factor per head of the scores of divided queries, by new ops that scale the divisor.

    before: Mul(MatMul(Div(q, norm (B,H,S,1)), k), scale (H,1,1))
    after:  MatMul(Div(q, Div(norm, scale)), k)
    """
    found = find(graph, op.y, _SCALED) if op.kind == "Mul" and op.version >= OLDEST_OPSET else None
    if found is None or Match(op.y, found.ops, ()).external_use(graph) is not None:
        return None
    queries, norm, keys, scale = (found.values[name] for name in ("queries", "norm", "keys", "scale"))
    shape, factors = scale.static_shape, scale.data.numpy() if scale.data is not None else None
    if shape is None or factors is None or factors.dtype != np.float32 or norm.shape is None:
        return None
    rank = len(norm.shape)
    shape = (1,) * (rank - len(shape)) + shape
    is_per_head = len(shape) == rank == op.y.rank and shape[-2:] == (1, 1) == (shape[-2], norm.shape[-1])
    if not is_per_head or any(extent not in (1, dim) for extent, dim in zip(shape, norm.shape, strict=True)):
        return None
    if not ((np.abs(factors) <= _MAX_FACTOR) & (np.abs(factors) >= 1 / _MAX_FACTOR)).all():
        return None
    stem = op.y.name
    divisor = graph.new_result("Div", (norm, scale), norm.type, f"{stem}/norm", op)
    scaled = graph.new_result("Div", (queries, divisor), found.op("Div").y.type, f"{stem}/queries", op)
    return graph.new_result("MatMul", (scaled, keys), op.y.type, f"{stem}/product", op)


class Addends(Record, eq=False):
    """The sum of the constants of two Adds, with Reshapes between them.

    Attributes:
        first: the first Add.
        index: the index of its constant.
        total: the sum of both constants, in the shape of the first result, with one element for an axis of equal ones.
        path: the values from the input of the second Add back to the result of the first one.
    """

    first: Op
    index: int
    total: Array
    path: list[Value]


_MOST_ELEMENTS = 1 << 24  # of the tensor; the sum is computed in its shape


def joint_addends(graph: Graph, op: Op) -> Addends | None:
    """The constant that the first of two Adds may add for both; None unless `op` is the second one.

    before: Add(Reshape(Add(x, a)), b)
    after:  Reshape(Add(x, a + b))
    """
    other, value = _addend(op)
    if other is None or value is None:
        return None
    path = [value]
    while (first := graph.only_producer(value)) is not None and _is_reshape(first):
        value = first.x
        path.append(value)
    own, _ = _addend(first) if first is not None else (None, None)
    shape, last = value.static_shape, op.y.static_shape
    if first is None or own is None or shape is None or last is None or np.prod(shape, dtype=float) > _MOST_ELEMENTS:
        return None
    total = np.add(np.broadcast_to(other, last).reshape(shape), own, dtype=np.float64).astype(np.float32)
    for axis in range(total.ndim):
        one = total.take([0], axis)
        total = one if (total == one).all() else total
    index = 1 if first.inputs[1] is not None and first.inputs[1].is_constant else 0
    return Addends(first, index, total, path) if np.isfinite(total).all() else None


def _addend(op: Op) -> tuple[Array | None, Value | None]:
    """The constant of a float32 Add, and the other input, which has the shape of the result; None for other ops."""
    if op.kind == "Add" and op.version >= OLDEST_OPSET and op.y.dtype is DType.FLOAT32:
        for addend, value in (op.inputs, op.inputs[::-1]):
            if addend is not None and value is not None and addend.data is not None and value.shape == op.y.shape:
                return addend.data.numpy(), value
    return None, None


def _is_reshape(op: Op) -> bool:
    """Whether an op gives a tensor another shape without moving elements."""
    return isinstance(rule_of(op), View) and op.kind != "Transpose"
