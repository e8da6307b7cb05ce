"""Channel-wise linear maps: commuting with resampling, averages and Concat, and merging.

The passes trace one axis through chains of ops, and rebuild a chain on another value. Each value inside of a chain has one
use, so the chain can be replaced.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Array, Op, TensorType, Value
from layoutopt.ops import Affine, LinearMap, View, add_sum, estimated_extent, facts, rounded, rule_of
from layoutopt.ops.signatures import present
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record


class TracedOp(Record):
    """An op of a chain, with the index of the traced axis in its first input and in its output."""

    op: Op
    input_axis: int
    output_axis: int


def is_view(op: Op) -> bool:
    """Whether an op is a view op."""
    return isinstance(rule_of(op), View)


def is_average(op: Op) -> bool:
    """Whether an op averages elements along some axes."""
    return facts(op).averaged_axes(op) is not None


def trace_forward(op: Op, input_axis: int) -> TracedOp | None:
    """A view op or an average, with the axis of its output that an axis of its first input becomes.

    None for other ops, if the op changes that axis, or if it cannot be rebuilt for another extent of the axis.
    """
    rule, x = rule_of(op), op.inputs[0] if op.inputs else None
    if x is None or x.shape is None or len(op.outputs) != 1:
        return None
    averaged = facts(op).averaged_axes(op)
    if isinstance(rule, View):
        output_axis = rule.unmerged_axis(op, input_axis)
    else:
        output_axis = input_axis if averaged is not None and input_axis not in averaged else None
    channels = x.shape[input_axis]
    if output_axis is None or not isinstance(channels, int) or facts(op).shape_edits(op, input_axis, channels) is None:
        return None
    return TracedOp(op, input_axis, output_axis)


def trace_backward(op: Op, output_axis: int) -> TracedOp | None:
    """A view op or an average, with the axis of its first input that becomes an axis of its output; None if none does."""
    rank = op.inputs[0].rank if op.inputs and op.inputs[0] is not None else None
    traced = (trace_forward(op, axis) for axis in range(rank or 0))
    return next((each for each in traced if each is not None and each.output_axis == output_axis), None)


def trace_averages(graph: Graph, value: Value, axis: int) -> Iterator[TracedOp]:
    """The ops of the longest chain of averages to an axis of a value, last op first, whose results have one use."""
    while graph.has_one_use(value):
        producer = graph.producer(value)
        traced = trace_backward(producer, axis) if producer is not None and is_average(producer) else None
        if traced is None:
            return
        yield traced
        value, axis = traced.op.x, traced.input_axis


def rebuild_chain(graph: Graph, chain: Sequence[TracedOp], value: Value) -> Value:
    """The result of a copy of a chain, first op first, on a value whose traced axis may have another extent."""
    for traced in chain:
        channels = estimated_extent(value.dims[traced.input_axis])
        edits = facts(traced.op).shape_edits(traced.op, traced.input_axis, channels)
        assert edits is not None
        inputs = [value, *traced.op.inputs[1:]]
        for index, elements in edits.items():
            inputs[index] = _with_elements(graph, traced.op, index, elements)
        value = _copy(graph, traced.op, inputs, _with_extent(traced.op.y, traced.output_axis, channels))
    return value


def apply_map(graph: Graph, op: Op, map: LinearMap, value: Value) -> Value | None:
    """The result of a linear map on a value, by a copy of `op` with other constants.

    None if no constants give the copy that map, or if one of them overflows its element type.
    """
    weight, constants = op.inputs[1], facts(op).with_linear_map(op, map)
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
    whole = sum(estimated_extent(value.dims[axis]) for value in values)
    return _copy(graph, op, values, _with_extent(values[0], axis, whole))


def _with_extent(value: Value, axis: int, channels: int) -> TensorType:
    return value.type_with((*value.dims[:axis], channels, *value.dims[axis + 1 :]))


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
    old = op.input(index)
    stem = f"{old.name if old is not None else op.name or op.kind}__moved"
    return graph.new_constant(np.ascontiguousarray(array), stem)


def _copy(graph: Graph, op: Op, inputs: Sequence[Value | None], type: TensorType) -> Value:
    """The result of a copy of `op` on other inputs."""
    result = graph.new_value(f"{op.y.name}__moved", type)
    graph.add_copy(op, (result,), tuple(inputs), name=result.name)
    return result


MOVE_GAIN = 1.3  # a map is moved if that divides the number of operations, which only estimate time, by this factor
ACCESS_COST = 16.0  # operations in the time that one element is read or written: 5 on a CPU core, 80 on a GPU

_NOT_LESS_WORK = "before the op that enlarges its input it would not take much fewer operations"


class MapInput(Record):
    """A tensor that a map reads, whole or as a piece of a Concat, and the chain of ops to it, first op first.

    Attributes:
        value: the tensor.
        extent: its extent along the mapped axis.
        start: the index of its first channel among the channels of the map.
        chain: the ops that the map is moved across.
    """

    value: Value
    extent: int
    start: int
    chain: tuple[TracedOp, ...]

    @property
    def source(self) -> Value:
        """The tensor that the moved map reads."""
        return self.chain[0].op.x if self.chain else self.value

    @property
    def stop(self) -> int:
        """The index behind its last channel among the channels of the map."""
        return self.start + self.extent


class MoveMaps(Pass):
    """Move channel-wise linear maps across resampling along other axes, and into the inputs of a Concat.

    before: Concat(Resize(a), b) -> Conv 1x1 -> y                     x -> Conv 1x1 -> AveragePool -> y
    after:  Add(Resize(Conv 1x1(a)), Conv 1x1(b)) -> y                x -> AveragePool -> Conv 1x1 -> y

    Both are linear and act on different axes, so they commute: see `ops.interfaces.linear_map`. The pass moves a map if that
    takes fewer operations.
    """

    name = "move-maps"
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Move every map, then the maps that a move creates; it terminates, because each move takes fewer operations."""
        for op in graph.ops:
            _remove_identity(graph, op)
        seen: set[Op] = set()
        while new := [op for op in graph.ops if op not in seen]:
            seen.update(new)
            for op in new:
                axis = facts(op).mapped_axis(op) if op in graph else None
                if axis is None:
                    continue
                reason = _move_backward(graph, op, axis, context.sizes) or (
                    _move_forward(graph, op, axis, context.sizes) if op in graph else ""
                )
                if reason:
                    context.note(self, op.name or op.kind, reason)


def _move_backward(graph: Graph, op: Op, axis: int, sizes: Sizes) -> str:
    """Move a map in front of the resampling of its input, and split it into one map per input of a Concat.

    Returns:
        The reason why the map stays; empty if it was moved, or if there is nothing to move it across.
    """
    x, y, concat = op.x, op.y, graph.only_producer(op.x)
    if concat is not None and facts(concat).concatenated_axis(concat) != axis:
        concat = None
    map_inputs = _map_inputs(graph, (x,) if concat is None else concat.inputs, axis, sizes)
    moved = [each for each in map_inputs if each.chain]
    rest = [each for each in map_inputs if not each.chain]
    if not moved:
        return ""
    map = facts(op).linear_map(op)
    if map is None:
        return _NOT_LESS_WORK
    split_work = _work_of_split_map(map, x, moved, rest, sizes)
    if split_work * MOVE_GAIN > _work_of_one_map(map, x, moved, concat, sizes):
        return _NOT_LESS_WORK
    summands = []
    for each in moved:
        part = apply_map(graph, op, map.of_ranges([(each.start, each.stop)]), each.source)
        assert part is not None, "a piece of a map is a map"
        summands.append(rebuild_chain(graph, each.chain, part))
    if rest:
        values = [each.value for each in rest]
        value = values[0] if concat is None or len(values) == 1 else concatenate(graph, concat, values, axis)
        part = apply_map(graph, op, map.of_ranges([(each.start, each.stop) for each in rest]), value)
        assert part is not None, "pieces of a map are a map"
        # Last, because the kernel of this map may add the sum of the other maps to its result.
        summands.append(part)
    total = summands[0]
    for summand in summands[1:]:
        total = add_sum(graph, total, summand, y.type, f"{y.name}__sum", op)
    graph.replace_value(y, total)
    return ""


def _move_forward(graph: Graph, op: Op, axis: int, sizes: Sizes) -> str:
    """Move a map behind the average of its result.

    Returns:
        The reason why the map stays; empty if it was moved, or if there is nothing to move it across.
    """
    x, reader = op.x, graph.only_reader(op.y)
    average = trace_forward(reader, axis) if reader is not None and is_average(reader) else None
    if average is None or average.op.x is not op.y:
        return ""
    value, chain = average.op.y, [average]
    map = facts(op).linear_map(op) if _channel_size(value, axis, sizes) < _channel_size(x, axis, sizes) else None
    if map is None:
        return ""
    out_channels, in_channels = map.extents
    before = _map_work(map.extents, _channel_size(x, axis, sizes)) + _work_of(chain, out_channels, sizes)
    after = _map_work(map.extents, _channel_size(value, axis, sizes)) + _work_of(chain, in_channels, sizes)
    if after * MOVE_GAIN > before:
        return "behind the average of its result it would not take much fewer operations"
    moved = apply_map(graph, op, map, rebuild_chain(graph, chain, x))
    assert moved is not None, "the op has this map already"
    graph.replace_value(value, moved)
    return ""


def _map_inputs(graph: Graph, pieces: Sequence[Value | None], axis: int, sizes: Sizes) -> list[MapInput]:
    """The pieces along an axis, each with the chain of averages from its smallest ancestor."""
    map_inputs, start = [], 0
    for piece in pieces:
        extent = piece.shape[axis] if piece is not None and piece.shape is not None else None
        if piece is None or not isinstance(extent, int):
            return []
        chain = list(trace_averages(graph, piece, axis))
        sources = [piece, *(traced.op.x for traced in chain)]
        best = min(range(len(sources)), key=lambda count: _channel_size(sources[count], axis, sizes))
        map_inputs.append(MapInput(piece, extent, start, tuple(reversed(chain[:best]))))
        start += extent
    return map_inputs


def _work_of_one_map(map: LinearMap, x: Value, moved: Sequence[MapInput], concat: Op | None, sizes: Sizes) -> float:
    """The operations of one map of the concatenated pieces."""
    copied = 0.0 if concat is None else 2.0 * map.extents[1] * _channel_size(x, map.axis, sizes)
    resampled = sum(_work_of(each.chain, each.extent, sizes) for each in moved)
    return _map_work(map.extents, _channel_size(x, map.axis, sizes)) + ACCESS_COST * copied + resampled


def _work_of_split_map(
    map: LinearMap, x: Value, moved: Sequence[MapInput], rest: Sequence[MapInput], sizes: Sizes
) -> float:
    """The operations of a map per moved piece, of one map of the other pieces, and of their sum."""
    out_channels, channel_size = map.extents[0], _channel_size(x, map.axis, sizes)
    work = ACCESS_COST * 3.0 * out_channels * channel_size * (len(moved) + bool(rest) - 1)
    for each in moved:
        fewer = _channel_size(each.source, map.axis, sizes)
        work += _map_work((out_channels, each.extent), fewer) + _work_of(each.chain, out_channels, sizes)
    if rest:
        in_channels = sum(each.extent for each in rest)
        work += _map_work((out_channels, in_channels), channel_size)
        work += ACCESS_COST * 2.0 * in_channels * channel_size * (len(rest) > 1)
    return work


def _map_work(extents: tuple[int, int], channel_size: float) -> float:
    """The operations of a map of so many elements per channel, with the time of its reads and writes as operations."""
    out_channels, in_channels = extents
    return channel_size * (2.0 * out_channels * in_channels + ACCESS_COST * (out_channels + in_channels))


def _work_of(chain: Sequence[TracedOp], extent: int, sizes: Sizes) -> float:
    """The operations of a chain of averages at so many channels."""
    work = 0.0
    for traced in chain:
        own = traced.op.x.dims[traced.input_axis]
        assert isinstance(own, int)
        touched = _channel_size(traced.op.x, traced.input_axis, sizes)
        touched += _channel_size(traced.op.y, traced.output_axis, sizes)
        specialized = sizes.specialize(traced.op)
        flops = sum(facts(each).flops(each) for each in specialized) / len(specialized)
        work += extent * (flops / own + ACCESS_COST * touched)
    return work


def _channel_size(value: Value, axis: int, sizes: Sizes) -> float:
    """The number of elements along all axes but one."""
    return sizes.elements((*value.dims[:axis], *value.dims[axis + 1 :]))


def _remove_identity(graph: Graph, op: Op) -> None:
    """Remove an average over no axes."""
    if facts(op).averaged_axes(op) == frozenset() and op.x.shape == op.y.shape and not graph.is_output(op.y):
        graph.bypass(op)


MERGE_GAIN = 1.3  # two maps are merged if that divides the number of multiply-adds by at least this factor


class MergeMaps(Pass):
    """Merge consecutive channel-wise linear maps into one, where that takes fewer multiply-adds.

    before: x -> MatMul(a) -> Add(b) -> Transpose -> Conv 1x1(w) -> y
    after:  x -> Transpose -> Conv 1x1(weight = w @ a.T, bias = w @ b) -> y

    The pass merges two maps if the product takes fewer multiply-adds. A bottleneck, two maps with few channels between them,
    stays.
    """

    name = "merge-maps"
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Merge in topological order, so that a chain of maps ends as one map, at the place of its last."""
        for op in graph.ops:
            axis = facts(op).mapped_axis(op) if op in graph else None
            if axis is not None and (reason := _merge(graph, op, axis)):
                context.note(self, op.name or op.kind, reason)


def _merge(graph: Graph, op: Op, axis: int) -> str:
    """Merge a channel-wise linear map with the one that computes its input.

    Returns:
        The reason why the two are not merged; empty if they were merged, or if no map computes the input.
    """
    y, value, value_axis = op.y, op.x, axis
    views: list[TracedOp] = []
    affines: list[Affine] = []
    while True:
        first = graph.only_producer(value)
        if first is None:
            return ""
        if facts(first).mapped_axis(first) == value_axis:
            break
        view = trace_backward(first, value_axis) if is_view(first) else None
        affine = facts(first).affine(first)
        if view is not None:
            views.append(view)
            value, value_axis = view.op.x, view.input_axis
        elif affine is not None and affine.axis in (None, value_axis):
            affines.append(affine)
            value = present(first.inputs[affine.index])
        else:
            return ""
    source = first.x
    out_channels, between, in_channels = y.dims[axis], value.dims[value_axis], source.dims[value_axis]
    if not (isinstance(out_channels, int) and isinstance(between, int) and isinstance(in_channels, int)):
        return "an extent is unknown"
    if in_channels * out_channels * MERGE_GAIN > between * (in_channels + out_channels):
        return "one map instead of two would not take much fewer multiply-adds"
    last, start = facts(op).linear_map(op), facts(first).linear_map(first)
    whole = last.scaled(affines).after(start) if last is not None and start is not None else None
    if whole is None or facts(op).with_linear_map(op, whole) is None:
        return f"no {op.kind} computes the product of the maps"
    result = apply_map(graph, op, whole, rebuild_chain(graph, views[::-1], source))
    if result is None:
        return "the weights of the product would overflow"
    graph.replace_value(y, result)
    return ""
