"""Scores of attention, products of queries and keys: fewer passes over them for a factor per head and constant addends.

before: MatMul(Div(q, |q|), k) -> Mul(s (H,1,1)) -> Add(bias (H,S,S)) -> Reshape -> Add(mask (W,1,S,S)) -> Reshape
after:  MatMul(Div(q, Div(|q|, s)), k) -> Add(bias + mask (W,H,S,S)) -> Reshape -> Reshape

Attention by cosines in windows: Liu et al., Swin Transformer V2, arXiv:2111.09883.
"""

from math import prod

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.ops.view import is_reshape
from layoutopt.patterns.base import Match, find, tree
from layoutopt.record import Record

_SCALED = tree("Mul", tree("MatMul", tree("Div", "queries", "norm"), "keys"), "scale")
_MAX_FACTOR = 1024.0
"""Norms are divided by factors between this number and its reciprocal: those from 1e-35 to 1e35 stay finite."""


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
    last = _addend(op)
    path = [] if last is None else [last[2]]
    first = graph.only_producer(path[0]) if path else None
    while first is not None and is_reshape(first):
        path.append(first.x)
        first = graph.only_producer(first.x)
    own = None if first is None else _addend(first)
    shape, y = path[-1].static_shape if path else None, op.y.static_shape
    if last is None or first is None or own is None or not shape or not y or not 0 < prod(shape) <= _MOST_ELEMENTS:
        return None
    other = last[1] if len(path) == 1 else np.broadcast_to(last[1], y).reshape(shape)
    with np.errstate(all="ignore"):  # a sum that is not finite is refused
        total = np.add(other, own[1], dtype=np.float64).astype(np.float32)
    for axis in range(total.ndim) if len(path) > 1 else ():
        one = total.take([0], axis)
        total = one if (total == one).all() else total
    return Addends(first, own[0], total, path) if np.isfinite(total).all() else None


def _addend(op: Op) -> tuple[int, Array, Value] | None:
    """The constant of a float32 Add, with its index, and the other input, which has the shape of the result.

    None for other ops, and for a sum of two constants.
    """
    if op.kind != "Add" or op.version < OLDEST_OPSET or op.y.dtype is not DType.FLOAT32:
        return None
    constants = [index for index, value in enumerate(op.inputs) if value is not None and value.data is not None]
    if len(constants) != 1:
        return None
    addend, value = op.inputs[constants[0]], op.inputs[1 - constants[0]]
    if addend is None or addend.data is None or value is None or value.shape != op.y.shape:
        return None
    return constants[0], addend.data.numpy(), value
