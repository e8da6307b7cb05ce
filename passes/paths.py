"""Chains of ops from one value to another: found backwards from the end, and rebuilt with other values.

An axis is followed along the way. Values on a chain are private: nobody else reads them, so they may become others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, TensorType, Value
from layoutopt.ops import LinearMap, View, estimated_extent, rounded, rule_of, sum_of
from layoutopt.ops.interfaces.linear_map import with_linear_map
from layoutopt.ops.interfaces.resampling import averaged_axes_of, shape_edits_of


@dataclass(frozen=True, slots=True)
class Step:
    """An op on a chain, and the axis that is followed, of its first input and of its output."""

    op: Op
    before: int
    after: int

    @property
    def source(self) -> Value:
        """The first input of the op."""
        value = self.op.inputs[0]
        assert value is not None
        return value


def is_rename(op: Op) -> bool:
    """Whether an op only gives other names to axes."""
    return isinstance(rule_of(op), View)


def is_average(op: Op) -> bool:
    """Whether an op makes means of elements along some axes."""
    return averaged_axes_of(op) is not None


def step_from(op: Op, before: int) -> Step | None:
    """An op as a step from an axis of its first input; None if it does not leave that axis alone."""
    rule, x = rule_of(op), op.inputs[0] if op.inputs else None
    if x is None or x.shape is None or len(op.outputs) != 1:
        return None
    averaged = averaged_axes_of(op)
    if isinstance(rule, View):
        after = rule.same_axis(op, before)
    else:
        after = before if averaged is not None and before not in averaged else None
    channels = x.shape[before]
    if after is None or not isinstance(channels, int) or shape_edits_of(op, before, channels) is None:
        return None
    return Step(op, before, after)


def step_to(op: Op, after: int) -> Step | None:
    """An op as a step to an axis of its output; None if that is not an axis of its first input."""
    rank = op.inputs[0].rank if op.inputs and op.inputs[0] is not None else None
    steps = (step_from(op, before) for before in range(rank or 0))
    return next((step for step in steps if step is not None and step.after == after), None)


def climb(graph: Graph, value: Value, axis: int, wanted: Callable[[Op], bool]) -> Iterator[Step]:
    """The steps that lead to an axis of a value, the last one first, as far as ops are wanted and values private."""
    while graph.is_private(value):
        producer = graph.producer(value)
        step = step_to(producer, axis) if producer is not None and wanted(producer) else None
        if step is None:
            return
        yield step
        value, axis = step.source, step.before


def replay(graph: Graph, steps: Sequence[Step], value: Value) -> Value:
    """The same steps, the first one first, from a value that may have another extent of the axis."""
    for step in steps:
        old = step.op.outputs[0]
        assert old is not None and value.shape is not None
        channels = estimated_extent(value.shape[step.before])
        changed = shape_edits_of(step.op, step.before, channels)
        assert changed is not None
        inputs = [value, *step.op.inputs[1:]]
        for index, numbers in changed.items():
            inputs[index] = _with_numbers(graph, step.op, index, numbers)
        value = _copy(graph, step.op, inputs, _with_extent(old, step.after, channels))
    return value


def map_by(graph: Graph, op: Op, map: LinearMap, value: Value) -> Value | None:
    """Another map of a value, by an op like `op`; None if it cannot be that map, or the numbers are too large."""
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


def join(graph: Graph, op: Op, values: Sequence[Value], axis: int) -> Value:
    """Some of the inputs of an op that puts tensors together along an axis, put together."""
    shapes = [value.shape for value in values if value.shape is not None]
    whole = sum(estimated_extent(shape[axis]) for shape in shapes)
    return _copy(graph, op, values, _with_extent(values[0], axis, whole))


def _with_extent(value: Value, axis: int, channels: int) -> TensorType:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    shape = value.type.shape
    return TensorType(value.type.dtype, (*shape[:axis], channels, *shape[axis + 1 :]))


def _with_numbers(graph: Graph, op: Op, index: int, numbers: Mapping[int, int]) -> Value:
    """The list of integers that is input `index` of `op`, with other numbers in some places where it has numbers."""
    old, known, array = op.inputs[index], op.elements(index), op.constant(index)
    assert old is not None and old.dtype is not None and known is not None
    elements = tuple(numbers.get(place, element) for place, element in enumerate(known))
    if array is not None:
        return _constant(graph, op, index, np.asarray(elements, array.dtype))
    pairs = zip(known, elements, strict=True)
    more = [new - now if isinstance(now, int) and isinstance(new, int) else 0 for now, new in pairs]
    difference = ArrayData(np.asarray(more, old.dtype.numpy))
    change = graph.new_value(f"{old.name}__change", TensorType(old.dtype, (len(more),)), data=difference)
    result = graph.new_value(f"{old.name}__moved", old.type)
    result.elements = elements
    graph.add_op(sum_of(old, change, result, op.version), op)
    return result


def _constant(graph: Graph, op: Op, index: int, array: Array) -> Value:
    """A constant that replaces an input of `op` in a copy of the op."""
    old = op.inputs[index] if index < len(op.inputs) else None
    stem = f"{old.name if old is not None else op.name or op.kind}__moved"
    return graph.new_value(stem, TensorType(DType.of(array), array.shape), data=ArrayData(np.ascontiguousarray(array)))


def _copy(graph: Graph, op: Op, inputs: Sequence[Value | None], type: TensorType) -> Value:
    """An op of the same kind right behind `op`, and its result."""
    (old,) = (value for value in op.outputs if value is not None)
    result = graph.new_value(f"{old.name}__moved", type)
    graph.add_copy(op, (result,), tuple(inputs), name=result.name)
    return result
