"""Multiply rows of several heads by the keys that they share, instead of repeating the keys for each head.

before: k (B,G,T,D) -> Unsqueeze (B,G,1,T,D) -> Expand (B,G,R,T,D) -> Reshape (B,G*R,T,D) -> MatMul(q (B,G*R,S,D'), .)
after:  q -> Reshape (B,G,R*S,D') -> MatMul(., k) (B,G,R*S,N) -> Reshape (B,G*R,S,N)

Heads of a group are adjacent in q, so both Reshapes move no bytes. Decoders with grouped queries repeat their whole cache in
this way, twice a layer. Transposes of the last two axes and scaling by a number may be between the Reshape and the product.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops.base import OLDEST_OPSET

_RANK = 4
_MAX_ROWS = 512
"""Rows of one product above which repeats stay. Measured with onnxruntime 1.32.0, AVX2, one thread, groups of 4 queries:
products of 2048 rows take 1.35 times as long as those of 512 rows per query; with up to 256 rows no network was slower."""
_DEPTH = 8  # ops behind a value that are followed to find out whether they are dead
_LAST_TWO = (0, 1, 3, 2)


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A repeated operand of a product.

    Attributes:
        source: the tensor (B, G, T, D) before it is repeated.
        groups: G.
        steps: the ops between the Reshape and the product, in the order in which they run.
    """

    source: Value
    groups: int
    steps: tuple[Op, ...]


def fold_repeated_operand(graph: Graph, op: Op, sizes: Sizes) -> None:
    """Let a matrix product of four axes read its right operand before heads are repeated, if its rows stay few."""
    repeat = _repeat(graph, op) if op.kind == "MatMul" and op.version >= OLDEST_OPSET else None
    left = op.inputs[0] if repeat is not None else None
    if repeat is not None and left is not None and left.shape:
        rows = _scaled(left.shape[2], left.shape[1], repeat.groups)
        if all(sizes.at(rows, point) <= _MAX_ROWS for point in (*sizes.points, *sizes.guards)):
            _fold(graph, op, repeat)


def _repeat(graph: Graph, product: Op) -> _Repeat | None:
    """The repeated right operand of a product, if nothing else reads it."""
    left, right = product.inputs
    if left is None or right is None or not _has_rank(left) or not _has_rank(right):
        return None
    steps: list[Op] = []
    value = right
    while (op := graph.producer(value)) is not None and _is_alone(graph, value) and op.inputs[0] is not None:
        x = op.inputs[0]
        if op.kind == "Reshape":
            source = _unrepeated(graph, op)
            alike = source is not None and left.shape is not None and right.shape is not None
            if source is None or not alike or _heads(left) != _heads(right) or not source.shape:
                return None
            groups = source.shape[1]
            return _Repeat(source, groups, tuple(reversed(steps))) if isinstance(groups, int) else None
        is_transposed = op.kind == "Transpose" and op.integers("perm") == _LAST_TWO
        is_scaled = op.kind in ("Mul", "Div") and _is_number(op.inputs[1])
        if not (is_transposed or is_scaled) or not _has_rank(x):
            return None
        steps.append(op)
        value = x
    return None


def _unrepeated(graph: Graph, reshape: Op) -> Value | None:
    """The tensor (B, G, T, D) that an Expand repeats to (B, G, R, T, D), and a Reshape to (B, G * R, T, D)."""
    repeated, result = reshape.inputs[0], reshape.outputs[0]
    expand = graph.producer(repeated)
    if (
        repeated is None
        or result is None
        or expand is None
        or expand.kind != "Expand"
        or not _is_alone(graph, repeated)
    ):
        return None
    single = expand.inputs[0]
    unsqueeze = graph.producer(single)
    source = unsqueeze.inputs[0] if unsqueeze is not None and unsqueeze.kind == "Unsqueeze" else None
    if single is None or source is None or not source.shape or not _has_rank(source):
        return None
    batch, groups, rows, columns = source.shape
    if single.shape != (batch, groups, 1, rows, columns) or not repeated.shape or not isinstance(groups, int):
        return None
    times = repeated.shape[2]
    if repeated.shape != (batch, groups, times, rows, columns) or not isinstance(times, int):
        return None
    return source if result.shape == (batch, groups * times, rows, columns) else None


def _fold(graph: Graph, product: Op, repeat: _Repeat) -> None:
    left, result = product.inputs[0], product.outputs[0]
    assert left is not None and result is not None and left.shape and result.shape and repeat.source.shape
    right = repeat.source
    for step in repeat.steps:
        right = _copied(graph, step, right)
    rows = _scaled(left.shape[2], left.shape[1], repeat.groups)
    grouped = (left.shape[0], repeat.groups, rows, left.shape[3])
    queries = _reshaped(graph, left, grouped, (0, repeat.groups, -1, 0), product)
    type = _typed(result, (left.shape[0], repeat.groups, rows, result.shape[3]))
    scores = graph.new_value(f"{result.name}__grouped", type)
    inner = graph.add_copy(product, (scores,), (queries, right), name=product.name)
    split = _reshaped(graph, scores, result.shape, (0, _heads(left), -1, 0), inner)
    graph.replace_value(result, split)


def _copied(graph: Graph, step: Op, x: Value) -> Value:
    """The result of a copy of a step that reads `x`."""
    assert x.shape
    shape = tuple(x.shape[axis] for axis in _LAST_TWO) if step.kind == "Transpose" else x.shape
    old = step.outputs[0]
    assert old is not None
    result = graph.new_value(f"{old.name}__grouped", _typed(old, shape))
    graph.add_copy(step, (result,), (x, *step.inputs[1:]))
    return result


def _reshaped(graph: Graph, x: Value, shape: Shape, target: tuple[Dim, ...], near: Op) -> Value:
    """The result of a Reshape, whose target has 0 for the extents that it keeps."""
    numbers = np.array(target, np.int64)
    constant = graph.new_constant(numbers, f"{x.name}__target")
    result = graph.new_value(f"{x.name}__rows", _typed(x, shape))
    producer = graph.producer(x)
    graph.add_op(
        Op("Reshape", (x, constant), (result,), version=near.version), producer or near, first=producer is None
    )
    return result


def _typed(like: Value, shape: Shape) -> TensorType:
    assert like.dtype is not None
    return TensorType(like.dtype, shape)


def _scaled(rows: Dim, heads: Dim, groups: int) -> Dim:
    assert isinstance(heads, int)
    return rows * (heads // groups) if isinstance(rows, int) else Extent.of(rows) * (heads // groups)


def _heads(value: Value) -> Dim:
    assert value.shape
    return value.shape[1]


def _has_rank(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == _RANK


def _is_number(value: Value | None) -> bool:
    """Whether a value is a constant of one element that keeps the rank of what it scales."""
    shape = value.static_shape if value is not None and value.is_constant else None
    return shape is not None and len(shape) <= _RANK and all(extent == 1 for extent in shape)


def _is_alone(graph: Graph, value: Value) -> bool:
    """Whether at most one op that is not dead reads a value, and it is no output."""
    return not graph.is_output(value) and sum(not _is_dead(graph, reader) for reader in graph.readers(value)) <= 1


def _is_dead(graph: Graph, op: Op, depth: int = _DEPTH) -> bool:
    """Whether no output of an op is used, but by ops of which the same is true."""
    values = [value for value in op.outputs if value is not None]
    if depth == 0 or any(graph.is_output(value) for value in values):
        return False
    return all(_is_dead(graph, reader, depth - 1) for value in values for reader in graph.readers(value))


__all__ = ["fold_repeated_operand"]
