"""Multiply rows of several heads by the keys that they share, instead of repeating the keys for each head.

before: k (B,G,T,D) -> Unsqueeze (B,G,1,T,D) -> Expand (B,G,R,T,D) -> Reshape (B,G*R,T,D) -> MatMul(q (B,G*R,S,D'), .)
after:  q -> Reshape (B,G,R*S,D') -> MatMul(., k) (B,G,R*S,N) -> Reshape (B,G*R,S,N)

Heads of a group are adjacent in q, so both Reshapes move no bytes. Decoders with grouped queries repeat their whole cache in
this way, twice a layer. Transposes of the last two axes and scaling by a number may be between the Reshape and the product.
"""

import numpy as np

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Value
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.patterns.base import find, tree

_RANK = 4
_MAX_ROWS = 512
"""Rows of one product above which repeats stay. Measured with onnxruntime 1.32.0, AVX2, one thread, groups of 4 queries:
products of 2048 rows take 1.35 times as long as those of 512 rows per query; with up to 256 rows no network was slower."""
_LAST_TWO = (0, 1, 3, 2)


_REPEATED = tree("Reshape", tree("Expand", tree("Unsqueeze", "source")))


def fold_repeated_operand(graph: Graph, op: Op, sizes: Sizes) -> None:
    """Let a matrix product of four axes read its right operand before heads are repeated, if its rows stay few."""
    if op.kind != "MatMul" or op.version < OLDEST_OPSET or op.x.rank != _RANK:
        return
    steps: list[Op] = []
    value = op.inputs[1]
    while value is not None and value.rank == _RANK and graph.has_one_use(value):
        if (source := _unrepeated(graph, value)) is not None:
            break
        step = graph.producer(value)
        if step is None or not _is_step(step):
            return
        steps.append(step)
        value = step.x
    else:
        return
    groups, heads = _heads(source), _heads(op.x)
    if not isinstance(groups, int) or not isinstance(heads, int) or heads != _heads(op.inputs[1] or op.x):
        return
    times, rows = heads // groups, op.x.dims[2]
    rows = rows * times if isinstance(rows, int) else Extent.of(rows) * times
    if all(sizes.at(rows, point) <= _MAX_ROWS for point in (*sizes.points, *sizes.guards)):
        _fold(graph, op, source, steps[::-1], rows)


def _is_step(op: Op) -> bool:
    """Whether an op exchanges the last two axes of four, or multiplies by a number."""
    is_transposed = op.kind == "Transpose" and op.integers("perm") == _LAST_TWO
    return is_transposed or (op.kind in ("Mul", "Div") and _is_number(op.inputs[1]))


def _unrepeated(graph: Graph, value: Value) -> Value | None:
    """The tensor (B, G, T, D) that an Expand repeats to (B, G, R, T, D), and a Reshape to (B, G * R, T, D), the value."""
    found = find(graph, value, _REPEATED)
    source = found.values["source"] if found is not None else None
    if found is None or source is None or source.rank != _RANK or not graph.has_one_use(found.op("Expand").y):
        return None
    batch, groups, rows, columns = source.dims
    repeated = found.op("Expand").y.shape or ()
    times = repeated[2] if len(repeated) > _RANK else None
    if not isinstance(groups, int) or not isinstance(times, int) or repeated != (batch, groups, times, rows, columns):
        return None
    is_single = found.op("Unsqueeze").y.shape == (batch, groups, 1, rows, columns)
    return source if is_single and value.shape == (batch, groups * times, rows, columns) else None


def _fold(graph: Graph, product: Op, source: Value, steps: list[Op], rows: Dim) -> None:
    left, result, right, groups = product.x, product.y, source, _heads(source)
    for step in steps:
        shape = tuple(right.dims[axis] for axis in _LAST_TWO) if step.kind == "Transpose" else right.dims
        right = graph.new_copy(step, (right, *step.inputs[1:]), step.y.type_with(shape), f"{step.y.name}__grouped")
    grouped = (left.dims[0], groups, rows, left.dims[3])
    queries = _reshaped(graph, left, grouped, (0, groups, -1, 0))
    type = result.type_with((left.dims[0], groups, rows, result.dims[3]))
    scores = graph.new_copy(product, (queries, right), type, f"{result.name}__grouped", name=product.name)
    graph.replace_value(result, _reshaped(graph, scores, result.dims, (0, _heads(left), -1, 0)))


def _reshaped(graph: Graph, x: Value, shape: Shape, target: tuple[Dim, ...]) -> Value:
    """The result of a Reshape, whose target has 0 for the extents that it keeps."""
    constant, producer = graph.new_constant(np.array(target, np.int64), f"{x.name}__target"), graph.producer(x)
    inputs, type, is_first = (x, constant), x.type_with(shape), producer is None
    return graph.new_result("Reshape", inputs, type, f"{x.name}__rows", producer, first=is_first)


def _heads(value: Value) -> Dim:
    return value.dims[1]


def _is_number(value: Value | None) -> bool:
    """Whether a value is a constant of one element that keeps the rank of what it scales."""
    shape = value.static_shape if value is not None and value.is_constant else None
    return shape is not None and len(shape) <= _RANK and all(extent == 1 for extent in shape)
