"""Commute channel-wise linear maps with resampling, averages and Concat, where that takes fewer operations.

before: a -> Resize -> \
        b -----------> Concat -> Conv 1x1 -> y              x -> Conv 1x1 -> AveragePool -> y
after:  a -> Conv 1x1 -> Resize -> \
        b -> Conv 1x1 ----------> Add -> y                  x -> AveragePool -> Conv 1x1 -> y

Both are linear and act on different axes, so they commute: see `ops.interfaces.linear_map`. The pass moves a map if that takes
fewer operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Value
from layoutopt.ops import LinearMap, add_sum, rule_of
from layoutopt.ops.interfaces import ConcatenationOp, averaged_axes_of, linear_map_of, mapped_axis_of
from layoutopt.passes.base import Pass, PassContext
from layoutopt.passes.op_chains import (
    TracedOp,
    apply_map,
    concatenate,
    is_average,
    is_view,
    rebuild_chain,
    trace_chain,
    trace_forward,
)

MIN_GAIN = (
    1.3  # a map is moved if that divides the number of operations by at least this factor: they only estimate time
)
ACCESS_COST = 16.0  # operations in the time that one element is read or written: 5 on a CPU core, 80 on a GPU

_NOT_LESS_WORK = "before the op that enlarges its input it would not take much fewer operations"


@dataclass(frozen=True, slots=True)
class MapInput:
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
        return self.chain[0].source if self.chain else self.value

    @property
    def stop(self) -> int:
        """The index behind its last channel among the channels of the map."""
        return self.start + self.extent


@dataclass(frozen=True, slots=True)
class MoveMaps(Pass):
    """Move channel-wise linear maps across resampling along other axes, and into the inputs of a Concat."""

    name = "move-maps"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Move every map, then the maps that a move creates; it terminates, because each move takes fewer operations."""
        if context.mode == "training":
            return
        for op in graph.ops:
            _remove_identity(graph, op)
        seen: set[Op] = set()
        while new := [op for op in graph.ops if op not in seen]:
            seen.update(new)
            for op in new:
                axis = mapped_axis_of(op) if op in graph else None
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
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None and x.rank is not None
    views = list(trace_chain(graph, x, axis, is_view))
    top, at = (views[-1].source, views[-1].input_axis) if views else (x, axis)
    concat = graph.only_producer(top)
    rule = rule_of(concat) if concat is not None else None
    if concat is None or not isinstance(rule, ConcatenationOp) or rule.concatenated_axis(concat) != at:
        concat, views, top, at = None, [], x, axis
    map_inputs = _map_inputs(graph, (top,) if concat is None else concat.inputs, at, (x.rank, axis), sizes)
    moved = [each for each in map_inputs if each.chain]
    rest = [each for each in map_inputs if not each.chain]
    if not moved:
        return ""
    map = linear_map_of(op)
    if map is None:
        return _NOT_LESS_WORK
    split_work, one_work = (
        _work_of_split_map(map, x, moved, rest, sizes),
        _work_of_one_map(map, x, moved, concat, sizes),
    )
    if split_work * MIN_GAIN > one_work:
        return _NOT_LESS_WORK
    summands = []
    for each in moved:
        part = apply_map(graph, op, map.of_ranges([(each.start, each.stop)]), each.source)
        assert part is not None, "a piece of a map is a map"
        summands.append(rebuild_chain(graph, (*each.chain, *reversed(views)), part))
    if rest:
        values = [each.value for each in rest]
        value = values[0] if concat is None or len(values) == 1 else concatenate(graph, concat, values, at)
        ranges = [(each.start, each.stop) for each in rest]
        part = apply_map(graph, op, map.of_ranges(ranges), rebuild_chain(graph, views[::-1], value))
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
    x, value, at = op.inputs[0], op.outputs[0], axis
    assert x is not None and value is not None
    chain: list[TracedOp] = []
    while not (chain and is_average(chain[-1].op)):
        use = graph.uses(value)[0] if graph.has_one_use(value) else None
        if use is None or use.index or not (is_view(use.op) or is_average(use.op)):
            return ""
        traced = trace_forward(use.op, at)
        value = use.op.outputs[0]
        if traced is None or value is None:
            return ""
        chain.append(traced)
        at = traced.output_axis
    if at != axis or value.rank != x.rank or _channel_size(value, at, sizes) >= _channel_size(x, axis, sizes):
        return ""
    map = linear_map_of(op)
    if map is None:
        return ""
    out_channels, in_channels = map.extents
    before = _map_work(map.extents, _channel_size(x, axis, sizes)) + _work_of(chain, out_channels, sizes)
    after = _map_work(map.extents, _channel_size(value, at, sizes)) + _work_of(chain, in_channels, sizes)
    if after * MIN_GAIN > before:
        return "behind the average of its result it would not take much fewer operations"
    moved = apply_map(graph, op, map, rebuild_chain(graph, chain, x))
    assert moved is not None, "the op has this map already"
    graph.replace_value(value, moved)
    return ""


def _map_inputs(
    graph: Graph, pieces: Sequence[Value | None], axis: int, rank_and_axis: tuple[int, int], sizes: Sizes
) -> list[MapInput]:
    """The pieces along an axis, each with the chain from its smallest ancestor that has the rank and the mapped axis."""
    map_inputs, start = [], 0
    for piece in pieces:
        extent = piece.shape[axis] if piece is not None and piece.shape is not None else None
        if piece is None or not isinstance(extent, int):
            return []
        chain = list(trace_chain(graph, piece, axis, lambda op: is_view(op) or is_average(op)))
        best, fewest = 0, _channel_size(piece, axis, sizes)
        for count, traced in enumerate(chain, 1):
            size = _channel_size(traced.source, traced.input_axis, sizes)
            if (traced.source.rank, traced.input_axis) == rank_and_axis and size < fewest:
                best, fewest = count, size
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
    """The operations of the averages of a chain at so many channels; view ops take none."""
    work = 0.0
    for traced in chain:
        rule, result = rule_of(traced.op), traced.op.outputs[0]
        if is_average(traced.op) and rule is not None and result is not None and traced.source.shape is not None:
            own = traced.source.shape[traced.input_axis]
            assert isinstance(own, int)
            touched = _channel_size(traced.source, traced.input_axis, sizes)
            touched += _channel_size(result, traced.output_axis, sizes)
            specialized = sizes.specialize(traced.op)
            flops = sum(rule.flops(each) for each in specialized) / len(specialized)
            work += extent * (flops / own + ACCESS_COST * touched)
    return work


def _channel_size(value: Value, axis: int, sizes: Sizes) -> float:
    """The number of elements along all axes but one."""
    assert value.shape is not None
    return sizes.elements((*value.shape[:axis], *value.shape[axis + 1 :]))


def _remove_identity(graph: Graph, op: Op) -> None:
    """Remove an average over no axes."""
    x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
    if x is None or y is None or averaged_axes_of(op) != frozenset() or x.shape != y.shape:
        return
    if not graph.is_output(y):
        graph.bypass(op)
