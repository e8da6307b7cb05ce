"""Merge two channel-wise linear maps that are separated only by metadata-only ops and affines.

before: x -> MatMul(a) -> Add(b) -> Transpose -> Conv 1x1(w) -> y
after:  x -> Transpose -> Conv 1x1(weight = w @ a.T, bias = w @ b) -> y

The pass merges two maps if the product takes fewer multiply-adds. A bottleneck, two maps with few channels between them, stays.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops import LinearMap
from layoutopt.ops.interfaces import affine_of, linear_map_of, mapped_axis_of, with_linear_map
from layoutopt.passes.base import Pass, PassContext
from layoutopt.passes.op_chains import TracedOp, apply_map, is_view, rebuild_chain, trace_backward

MIN_GAIN = 1.3  # two maps are merged if that divides the number of multiply-adds by at least this factor


@dataclass(frozen=True, slots=True)
class MergeMaps(Pass):
    """Merge consecutive channel-wise linear maps into one, where that takes fewer multiply-adds."""

    name = "merge-maps"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Merge in topological order, so that a chain of maps ends as one map, at the place of its last."""
        if context.mode == "training":
            return
        for op in graph.ops:
            axis = mapped_axis_of(op) if op in graph else None
            if axis is not None and (reason := _merge(graph, op, axis)):
                context.note(self, op.name or op.kind, reason)


def _merge(graph: Graph, op: Op, axis: int) -> str:
    """Merge a channel-wise linear map with the one that computes its input.

    Returns:
        The reason why the two are not merged; empty if they were merged, or if no map computes the input.
    """
    value, y = op.inputs[0], op.outputs[0]
    assert value is not None and y is not None and y.shape is not None
    views: list[TracedOp] = []
    affines: list[Op] = []
    value_axis = axis
    while True:
        first = graph.only_producer(value)
        if first is None:
            return ""
        if mapped_axis_of(first) == value_axis:
            break
        view = trace_backward(first, value_axis) if is_view(first) else None
        affine = affine_of(first)
        if view is not None:
            views.append(view)
            value, value_axis = view.source, view.input_axis
        elif (
            affine is not None
            and affine.axis in (None, value_axis)
            and (before := first.inputs[affine.index]) is not None
        ):
            affines.append(first)
            value = before
        else:
            return ""
    source = first.inputs[0]
    assert source is not None and source.shape is not None and value.shape is not None
    out_channels, between, in_channels = y.shape[axis], value.shape[value_axis], source.shape[value_axis]
    if not (isinstance(out_channels, int) and isinstance(between, int) and isinstance(in_channels, int)):
        return "an extent is unknown"
    if in_channels * out_channels * MIN_GAIN > between * (in_channels + out_channels):
        return "one map instead of two would not take much fewer multiply-adds"
    whole = _product(op, affines, first)
    if whole is None or with_linear_map(op, whole) is None:
        return f"no {op.kind} computes the product of the maps"
    result = apply_map(graph, op, whole, rebuild_chain(graph, views[::-1], source))
    if result is None:
        return "the weights of the product would overflow"
    graph.replace_value(y, result)
    return ""


def _product(op: Op, affines: list[Op], first: Op) -> LinearMap | None:
    """The composition of two maps and the affines between them."""
    last, start = linear_map_of(op), linear_map_of(first)
    if last is None or start is None:
        return None
    for each in affines:
        affine = affine_of(each)
        assert affine is not None
        _, in_channels = last.extents
        last = last.scaled(*affine.broadcast_to(in_channels))
    return last.after(start)
