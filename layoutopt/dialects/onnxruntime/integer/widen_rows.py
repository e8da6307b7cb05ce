"""Merges image columns and channels, so that an integer op runs over a few long broadcast rows in place of many short ones.

before: QLinearMul((N, 112, 112, 16), (1, 1, 1, 16))                                12544 rows of 16 elements
after:  QLinearMul((N, 112, 112 * 16), (1, 1, 112 * 16))                            112 rows of 1792 elements

onnxruntime calls the vector kernel once per row. The broadcast operand is repeated for the columns: ahead of time if it is a
constant, else by a Tile. The kernel combines the same integers, so the results are equal.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.cost.size_growth import PassBudget
from layoutopt.dialects.data_movement import add_reshape
from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.passes.base import Pass, PassContext

_OPS = {"com.microsoft::QLinearAdd": (0, 3), "com.microsoft::QLinearMul": (0, 3)}
"""The inputs that are tensors."""


@dataclass(frozen=True, slots=True)
class ChannelBroadcast:
    """An op with an operand that has one number per channel.

    Attributes:
        op: the op.
        image: the index of the operand of the result's shape (..., columns, channels).
        channels: the index of the operand of shape (..., 1, channels).
        shape: the shape of the result.
    """

    op: Op
    image: int
    channels: int
    shape: tuple[int, ...]

    @property
    def merged(self) -> tuple[int, ...]:
        """The shape of the result with columns and channels as one axis."""
        return (*self.shape[:-2], self.shape[-2] * self.shape[-1])

    @property
    def added_bytes(self) -> int:
        """The growth of a constant operand that is repeated for every column."""
        other = self.op.inputs[self.channels]
        return other.data.nbytes * (self.shape[-2] - 1) if other is not None and other.data is not None else 0


@dataclass(frozen=True, slots=True)
class WidenRows(Pass):
    """Merge columns and channels of images where an operand per channel is broadcast over them."""

    name = "widen-rows"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ops in order, so that a chain of them has Reshapes at its ends only."""
        budget = PassBudget(context.growth, self.name, context.growth.limit - stored_bytes(graph.regions()))
        for op in graph.ops:
            broadcast = _broadcast_of(op)
            seconds = 0.0 if broadcast is None else _saved_seconds(graph, broadcast)
            if (
                broadcast is not None
                and seconds > 0
                and budget.request(op.name or op.kind, broadcast.added_bytes, seconds)
            ):
                _rewrite(graph, broadcast)


def _broadcast_of(op: Op) -> ChannelBroadcast | None:
    y = op.outputs[0] if op.kind in _OPS else None
    shape = y.static_shape if y is not None else None
    if shape is None or len(shape) < 3 or shape[-2] == 1:
        return None
    for image, channels in (_OPS[op.kind], _OPS[op.kind][::-1]):
        x, other = op.inputs[image], op.inputs[channels]
        if x is None or other is None or x.static_shape != shape or other.static_shape is None:
            continue
        # A shape of fewer axes is one with extents of 1 in front.
        if (1, *other.static_shape)[-2:] == (1, shape[-1]) and shape[-1] > 1:
            return ChannelBroadcast(op, image, channels, shape)
    return None


def _saved_seconds(graph: Graph, broadcast: ChannelBroadcast) -> float:
    """The estimated time that fewer rows save, minus that of the Reshapes and the Tile that it takes."""
    costs = kernel_costs()
    other, x = broadcast.op.inputs[broadcast.channels], broadcast.op.inputs[broadcast.image]
    assert other is not None and x is not None
    saved = costs[broadcast.op.op_type].row * prod(broadcast.shape[:-2]) * (broadcast.shape[-2] - 1)
    reshapes = 1 if _merged_source(graph, x, broadcast) is not None else 2
    added = reshapes * costs["Reshape"].seconds()
    if not other.is_constant:
        added += costs["Tile"].seconds() + costs["Reshape"].seconds()
    return saved - added


def _merged_source(graph: Graph, x: Value, broadcast: ChannelBroadcast) -> Value | None:
    """The value of merged shape that a Reshape of an earlier rewrite splits."""
    producer = graph.producer(x)
    source = producer.inputs[0] if producer is not None and producer.kind == "Reshape" else None
    return source if source is not None and source.static_shape == broadcast.merged else None


def _rewrite(graph: Graph, broadcast: ChannelBroadcast) -> None:
    op = broadcast.op
    x, other, y = op.inputs[broadcast.image], op.inputs[broadcast.channels], op.outputs[0]
    assert x is not None and other is not None and y is not None and isinstance(y.type, TensorType)
    merged = _merged_source(graph, x, broadcast) or add_reshape(graph, x, broadcast.merged, graph.producer(x))
    inputs = list(op.inputs)
    inputs[broadcast.image], inputs[broadcast.channels] = merged, _repeated(graph, other, broadcast)
    result = graph.new_value(f"{y.name}/merged", TensorType(y.type.dtype, broadcast.merged))
    copy = graph.add_copy(op, (result,), tuple(inputs), name=op.name)
    graph.replace_value(y, add_reshape(graph, result, broadcast.shape, copy))


def _repeated(graph: Graph, other: Value, broadcast: ChannelBroadcast) -> Value:
    """The operand per channel, repeated for every column."""
    columns, channels = broadcast.shape[-2:]
    assert isinstance(other.type, TensorType) and other.static_shape is not None
    if other.data is not None:
        array = other.data.numpy()
        repeated = np.tile(array.reshape(*array.shape[:-2], channels), columns)
        return graph.new_constant(repeated, f"{other.name}/columns")
    shape = (*(1,) * (len(broadcast.shape) - len(other.static_shape)), *other.static_shape)
    source = other if shape == other.static_shape else add_reshape(graph, other, shape, graph.producer(other))
    repeats = graph.new_constant(np.array([*(1,) * (len(shape) - 2), columns, 1]), f"{other.name}/repeats")
    type = TensorType(other.type.dtype, (*shape[:-2], columns, channels))
    tiled = graph.new_result("Tile", (source, repeats), type, f"{other.name}/columns", graph.producer(source))
    return add_reshape(graph, tiled, (*shape[:-2], columns * channels), graph.producer(tiled))
