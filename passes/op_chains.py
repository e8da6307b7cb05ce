"""Chains of ops from one value to another: traced backwards from their end, and rebuilt on another value.

One axis is traced through the ops of a chain. Each value inside of a chain has one use, so the chain can be replaced.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, TensorType, Value
from layoutopt.ops import LinearMap, View, add_sum, estimated_extent, rounded, rule_of
from layoutopt.ops.interfaces import averaged_axes_of, shape_edits_of, with_linear_map


@dataclass(frozen=True, slots=True)
class TracedOp:
    """An op of a chain, with the index of the traced axis in its first input and in its output."""

    op: Op
    input_axis: int
    output_axis: int

    @property
    def source(self) -> Value:
        """The first input of the op."""
        value = self.op.inputs[0]
        assert value is not None
        return value


def is_view(op: Op) -> bool:
    """Whether an op is a view op."""
    return isinstance(rule_of(op), View)


def is_average(op: Op) -> bool:
    """Whether an op averages elements along some axes."""
    return averaged_axes_of(op) is not None


def trace_forward(op: Op, input_axis: int) -> TracedOp | None:
    """A view op or an average, with the axis of its output that an axis of its first input becomes.

    None for other ops, if the op changes that axis, or if it cannot be rebuilt for another extent of the axis.
    """
    rule, x = rule_of(op), op.inputs[0] if op.inputs else None
    if x is None or x.shape is None or len(op.outputs) != 1:
        return None
    averaged = averaged_axes_of(op)
    if isinstance(rule, View):
        output_axis = rule.unmerged_axis(op, input_axis)
    else:
        output_axis = input_axis if averaged is not None and input_axis not in averaged else None
    channels = x.shape[input_axis]
    if output_axis is None or not isinstance(channels, int) or shape_edits_of(op, input_axis, channels) is None:
        return None
    return TracedOp(op, input_axis, output_axis)


def trace_backward(op: Op, output_axis: int) -> TracedOp | None:
    """A view op or an average, with the axis of its first input that becomes an axis of its output; None if none does."""
    rank = op.inputs[0].rank if op.inputs and op.inputs[0] is not None else None
    traced = (trace_forward(op, axis) for axis in range(rank or 0))
    return next((each for each in traced if each is not None and each.output_axis == output_axis), None)


def trace_chain(graph: Graph, value: Value, axis: int, is_accepted: Callable[[Op], bool]) -> Iterator[TracedOp]:
    """The ops of the longest chain to an axis of a value, last op first, of accepted ops whose results have one use."""
    while graph.has_one_use(value):
        producer = graph.producer(value)
        traced = trace_backward(producer, axis) if producer is not None and is_accepted(producer) else None
        if traced is None:
            return
        yield traced
        value, axis = traced.source, traced.input_axis


def rebuild_chain(graph: Graph, chain: Sequence[TracedOp], value: Value) -> Value:
    """The result of a copy of a chain, first op first, on a value whose traced axis may have another extent."""
    for traced in chain:
        old = traced.op.outputs[0]
        assert old is not None and value.shape is not None
        channels = estimated_extent(value.shape[traced.input_axis])
        edits = shape_edits_of(traced.op, traced.input_axis, channels)
        assert edits is not None
        inputs = [value, *traced.op.inputs[1:]]
        for index, elements in edits.items():
            inputs[index] = _with_elements(graph, traced.op, index, elements)
        value = _copy(graph, traced.op, inputs, _with_extent(old, traced.output_axis, channels))
    return value


def apply_map(graph: Graph, op: Op, map: LinearMap, value: Value) -> Value | None:
    """The result of a linear map on a value, by a copy of `op` with other constants.

    None if no constants give the copy that map, or if one of them overflows its element type.
    """
    weight, constants = op.inputs[1], with_linear_map(op, map)
    if constants is None or weight is None or weight.dtype is None:
        return None
    numbers = rounded(constants, weight.dtype)
    if numbers is None:
        return None
    inputs: list[Value | None] = [value, *op.inputs[1:], *(None,) * (max(constants) + 1 - len(op.inputs))]
    for index, array in numbers.items():
        inputs[index] = _constant(graph, op, index, array)
    return _copy(graph, op, inputs, _with_extent(value, map.axis, map.extents[0]))


def concatenate(graph: Graph, op: Op, values: Sequence[Value], axis: int) -> Value:
    """The concatenation of `values`, inputs of an op that concatenates along an axis."""
    shapes = [value.shape for value in values if value.shape is not None]
    whole = sum(estimated_extent(shape[axis]) for shape in shapes)
    return _copy(graph, op, values, _with_extent(values[0], axis, whole))


def _with_extent(value: Value, axis: int, channels: int) -> TensorType:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    shape = value.type.shape
    return TensorType(value.type.dtype, (*shape[:axis], channels, *shape[axis + 1 :]))


def _with_elements(graph: Graph, op: Op, index: int, edits: Mapping[int, int]) -> Value:
    """Input `index` of `op`, a vector of integers, with the elements at some positions replaced."""
    old, known, array = op.inputs[index], op.elements(index), op.constant(index)
    assert old is not None and old.dtype is not None and known is not None
    elements = tuple(edits.get(position, element) for position, element in enumerate(known))
    if array is not None:
        return _constant(graph, op, index, np.asarray(elements, array.dtype))
    pairs = zip(known, elements, strict=True)
    differences = [new - now if isinstance(now, int) and isinstance(new, int) else 0 for now, new in pairs]
    change = graph.new_constant(np.asarray(differences, old.dtype.numpy), f"{old.name}__change")
    result = add_sum(graph, old, change, old.type, f"{old.name}__moved", op)
    result.elements = elements
    return result


def _constant(graph: Graph, op: Op, index: int, array: Array) -> Value:
    """A constant for input `index` of a copy of `op`."""
    old = op.inputs[index] if index < len(op.inputs) else None
    stem = f"{old.name if old is not None else op.name or op.kind}__moved"
    return graph.new_constant(np.ascontiguousarray(array), stem)


def _copy(graph: Graph, op: Op, inputs: Sequence[Value | None], type: TensorType) -> Value:
    """The result of a copy of `op` on other inputs."""
    (old,) = (value for value in op.outputs if value is not None)
    result = graph.new_value(f"{old.name}__moved", type)
    graph.add_copy(op, (result,), tuple(inputs), name=result.name)
    return result
