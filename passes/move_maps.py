"""Commute channel-wise linear maps with resampling, averages and Concat, where that takes fewer operations.

before: a -> Resize -> \
        b -----------> Concat -> Conv 1x1 -> y              x -> Conv 1x1 -> AveragePool -> y
after:  a -> Conv 1x1 -> Resize -> \
        b -> Conv 1x1 ----------> Add -> y                  x -> AveragePool -> Conv 1x1 -> y

Both are linear and act on different axes, so they commute: see `ops.linear_map`. Decided by counting operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Value
from layoutopt.ops import LinearMap, rule_of, sum_of
from layoutopt.ops.interfaces.concatenation import ConcatenationOp
from layoutopt.ops.interfaces.linear_map import linear_map_of, mapped_axis_of
from layoutopt.ops.interfaces.resampling import averaged_axes_of
from layoutopt.passes.base import Pass, PassContext
from layoutopt.passes.paths import (
    Step,
    climb,
    is_average,
    is_rename,
    join,
    map_by,
    replay,
    step_from,
)

MARGIN = 1.3  # so many times less work, or it is left as it is: counts are not times
TOUCH = 16.0  # operations in the time that one element is read or written: 5 on a CPU core, 80 on a GPU


@dataclass(frozen=True, slots=True)
class Branch:
    """A piece of what a map reads, and the steps to it from the place with the fewest places, first step first."""

    value: Value
    extent: int
    start: int
    steps: tuple[Step, ...]

    @property
    def source(self) -> Value:
        """Where the map could work."""
        return self.steps[0].source if self.steps else self.value

    @property
    def stop(self) -> int:
        """Behind the last element of the mapped axis that is this piece's."""
        return self.start + self.extent


@dataclass(frozen=True, slots=True)
class MoveMaps(Pass):
    """Move channel-wise linear maps across resampling along other axes, and into the inputs of a Concat."""

    name = "move-maps"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Every map, then those that were made on the way; a move makes the work less, so there is an end."""
        if context.mode == "training":
            return
        for op in graph.ops:
            _take_out_identity(graph, op)
        seen: set[Op] = set()
        while new := [op for op in graph.ops if op not in seen]:
            seen.update(new)
            for op in new:
                axis = mapped_axis_of(op) if op in graph else None
                if axis is None:
                    continue
                reason = _move_back(graph, op, axis, context.sizes) or (
                    _move_on(graph, op, axis, context.sizes) if op in graph else ""
                )
                if reason:
                    context.note(self, op.name or op.kind, reason)


def _move_back(graph: Graph, op: Op, axis: int, sizes: Sizes) -> str:
    """To the sources of what it reads, apart if these are put together. Returns why not; empty if done or never."""
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None and x.rank is not None
    tail = list(climb(graph, x, axis, is_rename))
    top, at = (tail[-1].source, tail[-1].before) if tail else (x, axis)
    joiner = graph.producer(top) if graph.is_private(top) else None
    rule = rule_of(joiner) if joiner is not None else None
    if joiner is None or not isinstance(rule, ConcatenationOp) or rule.concatenated_axis(joiner) != at:
        joiner, tail, top, at = None, [], x, axis
    branches = _branches(graph, (top,) if joiner is None else joiner.inputs, at, (x.rank, axis), sizes)
    moved = [branch for branch in branches if branch.steps]
    rest = [branch for branch in branches if not branch.steps]
    if not moved:
        return ""
    map = linear_map_of(op)
    if map is None or _work_apart(map, x, moved, rest, sizes) * MARGIN > _work_together(map, x, moved, joiner, sizes):
        return "to move it before what enlarges its input would not be much less work"
    summands = []
    for branch in moved:
        part = map_by(graph, op, map.of_pieces([(branch.start, branch.stop)]), branch.source)
        assert part is not None, "a piece of a map is a map"
        summands.append(replay(graph, (*branch.steps, *reversed(tail)), part))
    if rest:
        values = [branch.value for branch in rest]
        value = values[0] if joiner is None or len(values) == 1 else join(graph, joiner, values, at)
        ranges = [(branch.start, branch.stop) for branch in rest]
        part = map_by(graph, op, map.of_pieces(ranges), replay(graph, tail[::-1], value))
        assert part is not None, "some pieces of a map are a map"
        # Last: what is computed in full can take the sum of the others in, where a kernel adds on the way.
        summands.append(part)
    total, version = summands[0], graph.opsets.get("", 0)
    for each in summands[1:]:
        assert y.shape is not None
        result = graph.new_value(f"{y.name}__sum", y.type)
        graph.add_op(sum_of(total, each, result, version), op)
        total = result
    graph.replace_value(y, total)
    return ""


def _move_on(graph: Graph, op: Op, axis: int, sizes: Sizes) -> str:
    """Behind the average that reads the result. Returns why not; empty if done or never."""
    x, value, at = op.inputs[0], op.outputs[0], axis
    assert x is not None and value is not None
    steps: list[Step] = []
    while not (steps and is_average(steps[-1].op)):
        use = graph.uses(value)[0] if graph.is_private(value) else None
        if use is None or use.index or not (is_rename(use.op) or is_average(use.op)):
            return ""
        step = step_from(use.op, at)
        value = use.op.outputs[0]
        if step is None or value is None:
            return ""
        steps.append(step)
        at = step.after
    if at != axis or value.rank != x.rank or _places(value, at, sizes) >= _places(x, axis, sizes):
        return ""
    map = linear_map_of(op)
    if map is None:
        return ""
    outside, inside = map.extents
    now = _map_work(map.extents, _places(x, axis, sizes)) + _work_of(steps, outside, sizes)
    if (_map_work(map.extents, _places(value, at, sizes)) + _work_of(steps, inside, sizes)) * MARGIN > now:
        return "to move it behind the average of its result would not be much less work"
    moved = map_by(graph, op, map, replay(graph, steps, x))
    assert moved is not None, "it was this map before"
    graph.replace_value(value, moved)
    return ""


def _branches(
    graph: Graph, pieces: Sequence[Value | None], axis: int, wanted: tuple[int, int], sizes: Sizes
) -> list[Branch]:
    """The pieces along an axis, each climbed to where a map of the wanted rank and axis has the fewest places."""
    branches, start = [], 0
    for piece in pieces:
        extent = piece.shape[axis] if piece is not None and piece.shape is not None else None
        if piece is None or not isinstance(extent, int):
            return []
        steps = list(climb(graph, piece, axis, lambda op: is_rename(op) or is_average(op)))
        best, fewest = 0, _places(piece, axis, sizes)
        for count, step in enumerate(steps, 1):
            if (step.source.rank, step.before) == wanted and _places(step.source, step.before, sizes) < fewest:
                best, fewest = count, _places(step.source, step.before, sizes)
        branches.append(Branch(piece, extent, start, tuple(reversed(steps[:best]))))
        start += extent
    return branches


def _work_together(map: LinearMap, x: Value, moved: Sequence[Branch], joiner: Op | None, sizes: Sizes) -> float:
    """One map of all pieces, put together."""
    copied = 0.0 if joiner is None else 2.0 * map.extents[1] * _places(x, map.axis, sizes)
    resampled = sum(_work_of(branch.steps, branch.extent, sizes) for branch in moved)
    return _map_work(map.extents, _places(x, map.axis, sizes)) + TOUCH * copied + resampled


def _work_apart(map: LinearMap, x: Value, moved: Sequence[Branch], rest: Sequence[Branch], sizes: Sizes) -> float:
    """A map of every piece that can be moved, one of all others, and a sum."""
    outside, places = map.extents[0], _places(x, map.axis, sizes)
    work = TOUCH * 3.0 * outside * places * (len(moved) + bool(rest) - 1)
    for branch in moved:
        fewer = _places(branch.source, map.axis, sizes)
        work += _map_work((outside, branch.extent), fewer) + _work_of(branch.steps, outside, sizes)
    if rest:
        inside = sum(branch.extent for branch in rest)
        work += _map_work((outside, inside), places) + TOUCH * 2.0 * inside * places * (len(rest) > 1)
    return work


def _map_work(extents: tuple[int, int], places: float) -> float:
    """Operations of a map at so many places, and what it reads and writes."""
    outside, inside = extents
    return places * (2.0 * outside * inside + TOUCH * (outside + inside))


def _work_of(steps: Sequence[Step], extent: int, sizes: Sizes) -> float:
    """The same for averages of so many channels; renames are no work."""
    work = 0.0
    for step in steps:
        rule, result = rule_of(step.op), step.op.outputs[0]
        if is_average(step.op) and rule is not None and result is not None and step.source.shape is not None:
            own = step.source.shape[step.before]
            assert isinstance(own, int)
            touched = _places(step.source, step.before, sizes) + _places(result, step.after, sizes)
            bound = sizes.bound(step.op)
            flops = sum(rule.flops(each) for each in bound) / len(bound)
            work += extent * (flops / own + TOUCH * touched)
    return work


def _places(value: Value, axis: int, sizes: Sizes) -> float:
    """How many elements there are along the other axes."""
    assert value.shape is not None
    return sizes.elements((*value.shape[:axis], *value.shape[axis + 1 :]))


def _take_out_identity(graph: Graph, op: Op) -> None:
    """Let what reads the average over no axes read what it was made from."""
    x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
    if x is None or y is None or averaged_axes_of(op) != frozenset() or x.shape != y.shape:
        return
    if not graph.is_output(y):
        graph.bypass(op)
