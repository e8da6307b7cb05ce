"""Dimensions of inputs that follow from the indices at which the inputs are read.

Decoders of transformers 5 read element [b, k] of the attention mask for every b of the batch and every k of the cache:

    GatherND   mask                  indices [b, k], b and k from Ranges
    Gather     mask, flattened       indices b * total + k
"""

from collections.abc import Iterator, Mapping

from layoutopt.formats import Dim, Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value

_DEPTH = 16  # ops between a Range and the indices
_VIEWS = frozenset({"Cast", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Identity", "Flatten"})
_ONE = Extent.of(1)


def extents_read(graph: Graph, op: Op) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions of a graph input that a Gather or GatherND reads by computed indices, and how many elements it reads.

    The dimension may be longer, but callers of a decoder give a mask of exactly the length that is read.
    """
    data, indices = op.inputs[0], op.inputs[1]
    if data is None or not data.shape or indices is None or not _is_input(graph, data):
        return
    columns: Mapping[int, Value]
    if op.op_type == "Gather":
        columns = {op.integer("axis") % len(data.shape): indices}
    else:
        columns = _columns(graph, indices, op.integer("batch_dims"))
    for axis, column in columns.items():
        largest = _largest_by_stride(graph, column) if axis < len(data.shape) else None
        if largest is not None and _ONE in largest:
            strides = [stride for stride in largest if stride != _ONE] or [Extent.of(data.shape[axis])]
            yield from ((stride, largest[_ONE] + 1) for stride in strides if stride.is_name and len(strides) == 1)


def _columns(graph: Graph, indices: Value, first: int) -> Mapping[int, Value]:
    """Per axis, the operand of the Concat that joins the coordinates of a GatherND."""
    joined, rank = graph.producer(indices), indices.rank or 0
    if joined is None or joined.op_type != "Concat" or rank == 0 or joined.integer("axis") % rank != rank - 1:
        return {}
    columns = [each for each in joined.inputs if each is not None and each.shape and each.shape[-1] == 1]
    return {first + axis: each for axis, each in enumerate(columns)} if len(columns) == len(joined.inputs) else {}


def _is_input(graph: Graph, value: Value) -> bool:
    """Whether a value is a graph input, possibly behind view ops."""
    for _ in range(_DEPTH):
        op = graph.producer(value)
        if op is None:
            return value in graph.inputs
        source = op.inputs[0] if op.op_type in _VIEWS else None
        if source is None:
            return False
        value = source
    return False


def _largest_by_stride(graph: Graph, value: Value, depth: int = _DEPTH) -> Mapping[Extent, Extent] | None:
    """For indices that are a sum of counters times strides: the largest value of the counters, by stride; else None."""
    known, op = _scalar(value), graph.producer(value)
    if known is not None:
        return {_ONE: known}
    if op is None or depth == 0 or None in op.inputs:
        return None
    if op.op_type == "Range":
        start, limit, step = (_scalar(each) for each in op.inputs if each is not None)
        is_counter = start is not None and start.number == 0 and step == _ONE
        return {_ONE: limit - 1} if is_counter and limit is not None else None
    if op.op_type in _VIEWS:
        return _largest_by_stride(graph, op.inputs[0], depth - 1) if op.inputs[0] is not None else None
    if op.op_type in ("Add", "Mul"):
        operands = [each for each in op.inputs if each is not None]
        left, right = (_largest_by_stride(graph, each, depth - 1) for each in operands)
        if left is None or right is None:
            return None
        if op.op_type == "Add":
            return {stride: left.get(stride, Extent.of(0)) + right.get(stride, 0) for stride in {**left, **right}}
        one, other = (_scalar(each) for each in operands)
        if one is not None or other is not None:
            factor, counters = (one, right) if one is not None else (other or _ONE, left)
            return {stride * factor: largest for stride, largest in counters.items()}
    return None


def _scalar(value: Value) -> Extent | None:
    """The only element of a tensor, if it is known."""
    elements = value.elements
    if value.data is not None and value.data.numpy().size == 1:
        elements = (int(value.data.numpy().reshape(-1)[0]),)
    return Extent.of(elements[0]) if elements is not None and len(elements) == 1 and elements[0] is not None else None


__all__ = ["extents_read"]
