"""Relations between symbolic dimensions that the ops of a model require.

Concat, Add, Where ...        extents of two operands are equal            total = past + new
Conv, pooling                 the result is not empty                      (samples-400)//320+1 >= 1
Reshape                       the number of elements is preserved          N*H*W = 49*((N*H*W)//49)
Slice, Gather of a table      indices are within the table                 length <= 512
Gather, GatherND of an input  indices count up to its extent               total = past + new
GroupQueryAttention           the cache holds old and new tokens           total = past + new

Dimensions of inputs that follow from the indices at which the inputs are read.

Decoders of transformers 5 read element [b, k] of the attention mask for every b of the batch and every k of the cache:

    GatherND   mask                  indices [b, k], b and k from Ranges
    Gather     mask, flattened       indices b * total + k
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from layoutopt.formats import Dim, Extent, Shape, product
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import facts
from layoutopt.ops.axiswise import Elementwise
from layoutopt.ops.matrix_product import MatrixProduct
from layoutopt.ops.rearrangement import Concat
from layoutopt.ops.signatures import shape_of

Comparator: TypeAlias = Literal["=", ">=", "<="]

_WINDOWED = frozenset({"Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "FusedConv", "AveragePool", "MaxPool"})
_DOMAINS = ("", "com.microsoft")  # domains of the operators below


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation of two extents.

    Attributes:
        left: the left-hand side.
        comparator: the comparison.
        right: the right-hand side.
        op: the name of the op that requires the relation.
        is_conditional: whether the op is in a subgraph, which may not run.
    """

    left: Extent
    comparator: Comparator
    right: Extent
    op: str
    is_conditional: bool = False

    def holds(self, point: Mapping[str, int]) -> bool:
        """Whether the relation holds at the given sizes; True if a size is missing."""
        left, right = self.left.at(point), self.right.at(point)
        if left is None or right is None:
            return True
        return left == right if self.comparator == "=" else left >= right if self.comparator == ">=" else left <= right

    @property
    def names(self) -> frozenset[str]:
        """The dimensions in the relation."""
        return self.left.names | self.right.names

    def __str__(self) -> str:
        return f"{self.left} {self.comparator} {self.right}"


def relations_of(graph: Graph) -> list[Relation]:
    """The relations of all ops of a graph and its subgraphs without duplicates, those of the main graph first."""
    found: dict[str, Relation] = {}
    for each in graph.regions():
        for op in each.ops:
            for left, kind, right in _required(each, op):
                one, other = Extent.of(left), Extent.of(right)
                if one.number is None or other.number is None:
                    relation = Relation(one, kind, other, op.name or op.kind, each is not graph)
                    found.setdefault(str(relation), relation)
    return list(found.values())


def _required(graph: Graph, op: Op) -> Iterator[tuple[Dim, Comparator, Dim]]:
    shapes = [None if value is None else value.shape for value in op.inputs]
    yield from ((dim, ">=", 1) for dim in _computed(op))
    yield from _same_axes(op)
    if op.domain not in _DOMAINS:
        return
    match op.op_type:
        case "Conv" | "ConvTranspose" | "FusedConv":
            yield from _channels(op, shapes)
        case "Reshape":
            yield from _reshaped(op)
        case "Expand":
            target = op.elements(1)
            if shapes[0] is not None and target is not None:
                yield from _broadcast([shapes[0], tuple(1 if dim is None else dim for dim in target)])
        case "Squeeze":
            axes = op.integers("axes") or op.elements(1) or ()
            squeezed = [shapes[0][axis] for axis in axes if isinstance(axis, int)] if shapes[0] else []
            yield from ((dim, "=", 1) for dim in squeezed)
        case "Slice":
            yield from _sliced(op)
        case "Gather" | "GatherND":
            yield from _looked_up(graph, op)
            yield from ((extent, "=", read) for extent, read in extents_read(graph, op))
        case "GRU" | "LSTM" | "RNN":
            yield from _recurrent(op, shapes)
        case "GroupQueryAttention":
            yield from _cached(op, shapes)


def _same_axes(op: Op) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """Extents of one iteration axis of an element-wise op, a product or a Concat must be equal or 1."""
    rule = facts(op)
    values = map(op.operand, op.slots())
    is_untyped = any(value is None or value.rank is None for value in values)
    if is_untyped or not isinstance(rule, Elementwise | MatrixProduct | Concat):
        return
    dims: dict[int, list[Dim]] = {}
    for slot, numbers in rule.axes(op).items():
        for axis, dim in zip(numbers, shape_of(op.operand(slot)), strict=False):
            if dim != 1 and axis != rule.concatenated_axis(op):
                dims.setdefault(axis, []).append(dim)
    for each in dims.values():
        yield from _equal(each)


def _computed(op: Op) -> Iterator[Dim]:
    """Computed extents of results, which must be at least 1: a window fits, and no tensor is empty."""
    for value in op.outputs:
        for dim in (value.shape or ()) if value is not None else ():
            if isinstance(dim, Extent) and not dim.is_name and (op.op_type in _WINDOWED or len(dim.names) == 1):
                yield dim


def _broadcast(shapes: Sequence[Shape]) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """Extents of one axis, counted from the last, must be equal or 1."""
    for position in range(1, max(map(len, shapes), default=0) + 1):
        dims = [shape[-position] for shape in shapes if len(shape) >= position and shape[-position] != 1]
        yield from _equal(dims)


def _equal(dims: Iterable[Dim]) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """All dimensions must equal the first one; numbers are sorted first."""
    ordered = sorted(dict.fromkeys(dims), key=lambda dim: isinstance(dim, Extent))
    yield from ((ordered[0], "=", dim) for dim in ordered[1:])


def _channels(op: Op, shapes: Sequence[Shape | None]) -> Iterator[tuple[Dim, Comparator, Dim]]:
    x, weight = shapes[0], shapes[1]
    if x is not None and weight is not None and len(x) > 1 and len(weight) > 1:
        groups = op.integer("group", 1)
        in_channels = weight[0] if op.op_type == "ConvTranspose" else weight[1] * groups
        yield from _equal((in_channels, x[1]))


def _reshaped(op: Op) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """The number of elements must be preserved; the other extents of a target with -1 must divide it."""
    x, y = op.inputs[0], op.outputs[0]
    if x is not None and y is not None and x.shape is not None and y.shape is not None:
        before, after = product(x.shape), product(y.shape)
        if before != after:
            yield after, "=", before


def _sliced(op: Op) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """A constant that is sliced to a computed length is a table of positions, at least as long."""
    table = op.inputs[0]
    ends, axes = op.elements(2), op.elements(3)
    if table is None or not table.is_constant or table.static_shape is None or ends is None:
        return
    selected = range(len(ends)) if axes is None else axes
    for end, axis in zip(ends, selected, strict=False):
        if isinstance(end, Extent) and isinstance(axis, int):
            yield end, "<=", table.static_shape[axis]


def _looked_up(graph: Graph, op: Op) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """Indices that count up to a length must be within the constant table."""
    table, indices = op.inputs[0], op.inputs[1]
    is_table = op.op_type == "Gather" and table is not None and table.is_constant and bool(table.static_shape)
    largest = _largest_by_stride(graph, indices) if is_table and indices is not None else None
    if largest is not None and largest.keys() == {_ONE}:
        count, rows = largest[_ONE] + 1, op.x.dims[op.integer("axis") % len(op.x.dims)]
        constant = count.at(dict.fromkeys(count.names, 0)) or 0
        yield count - constant, "<=", rows - constant


def _recurrent(op: Op, shapes: Sequence[Shape | None]) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """X[time, batch, features]; W[directions, gates, features]; the initial states [directions, batch, hidden]."""
    x, weight, recurrence = shapes[:3]
    if x is None or op.integer("layout"):
        return
    if weight is not None:
        yield from _equal((weight[2], x[2]))
    for state in shapes[5:7]:
        if state is not None:
            yield from _equal((state[1], x[1]))
            if recurrence is not None:
                yield from _equal((recurrence[2], state[2]))


def _cached(op: Op, shapes: Sequence[Shape | None]) -> Iterator[tuple[Dim, Comparator, Dim]]:
    """Query [batch, new, heads * size], also with keys and values; cache [batch, heads, past, size]; length past + new."""
    query, key, _, past = shapes[:4]
    total = op.elements(6)
    if query is None or past is None or len(query) != 3 or len(past) != 4:
        return
    heads = op.integer("num_heads") + (2 * op.integer("kv_num_heads") if key is None else 0)
    if isinstance(query[2], int) and heads and query[2] % heads == 0:
        yield past[3], "=", query[2] // heads
    yield past[0], "=", query[0]
    if total and total[0] is not None:
        yield total[0], "=", Extent.of(past[2]) + query[1]


_DEPTH = 16  # ops between a Range and the indices
VIEWS = frozenset(
    {"Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Ops whose result has elements of their first input."""
_ONE = Extent.of(1)


def extents_read(graph: Graph, op: Op) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions of a graph input that a Gather or GatherND reads by computed indices, and how many elements it reads.

    The dimension may be longer, but callers of a decoder give a mask of exactly the length that is read.
    """
    data, indices = op.inputs[0], op.inputs[1]
    if data is None or not data.shape or indices is None or not is_input(graph, data):
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


def is_input(graph: Graph, value: Value) -> bool:
    """Whether a value is a graph input, possibly behind ops that keep or select elements."""
    producer = graph.producer(value)
    while producer is not None and producer.op_type in VIEWS and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = graph.producer(value)
    return value in graph.inputs


def _largest_by_stride(graph: Graph, value: Value, depth: int = _DEPTH) -> Mapping[Extent, Extent] | None:
    """For indices that are a sum of counters times strides: the largest value of the counters, by stride; else None."""
    known, op = _scalar(value), graph.producer(value)
    if known is not None:
        return {_ONE: known}
    if op is None or depth == 0:
        return None
    operands = [each for each in op.inputs if each is not None]
    if op.op_type == "Range":
        limit = _scalar(operands[1])
        return {_ONE: limit - 1} if limit is not None and _scalar(operands[2]) == _ONE else None
    if op.op_type == "CumSum":
        shape, axis = value.shape, op.elements(1)
        return {_ONE: Extent.of(shape[axis[0]])} if shape and axis and isinstance(axis[0], int) else None
    if op.op_type in VIEWS:
        return _largest_by_stride(graph, operands[0], depth - 1)
    if op.op_type not in ("Add", "Sub", "Mul", "Where"):
        return None
    left, right = (_largest_by_stride(graph, each, depth - 1) for each in operands[-2:])
    one, other = (_scalar(each) for each in operands[-2:])
    if op.op_type == "Where" or left is None or right is None:  # a mask, or another value for masked positions
        is_masked = op.op_type in ("Where", "Mul")
        return (right if left is None or one is not None else left) if is_masked else None
    if op.op_type == "Mul":
        factor, counters = (one, right) if one is not None else (other, left)
        return None if factor is None else {stride * factor: largest for stride, largest in counters.items()}
    sign = -1 if op.op_type == "Sub" else 1
    return {stride: left.get(stride, Extent.of(0)) + right.get(stride, 0) * sign for stride in {**left, **right}}


def _scalar(value: Value) -> Extent | None:
    """The only element of a tensor, if it is known."""
    elements = value.elements
    if value.data is not None and value.data.numpy().size == 1:
        elements = (int(value.data.numpy().reshape(-1)[0]),)
    return Extent.of(elements[0]) if elements is not None and len(elements) == 1 and elements[0] is not None else None
