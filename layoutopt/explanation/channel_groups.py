"""Channel groups: axes of several tensors that are the same channels, and a graph in which they have another extent.

    x (N,17,H,W) -> Conv w (17,24,1,1) -> Relu -> Add        the 17 of w, of the results of Conv, Relu and Add are one group

A group can be resized if every op that reads or produces one of its tensors permits it: convolutions, ops along axes, matrix
products, Transposes. Axes of the model's inputs and outputs, and of all other ops, keep their extents.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import networkx as nx

from layoutopt.cost import CostModel
from layoutopt.inference.axis_letters import ValueAxis, by_iteration_axis, same_axes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Slot, TensorType, Value
from layoutopt.ops import Inapplicable, rule_of
from layoutopt.ops.axiswise import AxiswiseRule
from layoutopt.ops.contraction import Contraction
from layoutopt.ops.convolution import Convolution
from layoutopt.ops.view import Transpose

_DEPTHWISE = "depthwise"


@dataclass(frozen=True, slots=True)
class ChannelGroup:
    """Channels that do not fill the blocks of a kernel.

    Attributes:
        axes: the axes that have the extent.
        extent: the number of channels.
        block: the number of channels in a block of the kernel.
        op: the first op whose kernel has the block.
    """

    axes: tuple[ValueAxis, ...]
    extent: int
    block: int
    op: Op

    @property
    def next_extent(self) -> int:
        """The next number of channels that fills the blocks."""
        return -(-self.extent // self.block) * self.block


def unfilled_groups(graph: Graph, cost_model: CostModel) -> list[ChannelGroup]:
    """The groups that can be resized and that do not fill the blocks of a kernel of the target, in the order of the graph."""
    links, fixed = _links(graph)
    blocks: dict[ValueAxis, tuple[int, Op]] = {}
    for op in graph.ops:
        for axis, block in _blocks(op, cost_model):
            blocks.setdefault(axis, (block, op))
    groups = []
    seen: set[ValueAxis] = set()
    for axis, (block, op) in blocks.items():
        if axis in seen or axis not in links:
            continue
        axes = nx.node_connected_component(links, axis)
        seen |= axes
        extent = _extent(axis)
        if extent is not None and extent > 1 and extent % block and fixed.isdisjoint(axes):
            groups.append(ChannelGroup(tuple(axes), extent, block, op))
    return groups


def _blocks(op: Op, cost_model: CostModel) -> Iterator[tuple[ValueAxis, int]]:
    """The blocked axes of the computed operands of an op in the formats of the target's fastest kernel."""
    for slot, format in next(iter(cost_model.preferred_formats(op)), {}).items():
        value = op.operand(slot)
        if value is not None and not value.is_constant:
            yield from (
                ((value, axis), format.block(axis)) for axis in format.blocked_axes if not _is_odd(format.block(axis))
            )


def _is_odd(block: int) -> bool:
    return bool(block & (block - 1))


def _links(graph: Graph) -> tuple["nx.Graph", set[ValueAxis]]:
    """The axes of tensors, linked if they are the same; and the axes that keep their extents."""
    links = nx.Graph()
    fixed = {axis for value in (*graph.inputs, *graph.outputs) for axis in _axes(value)}
    for op in graph.ops:
        linked: set[ValueAxis] = set()
        for group in _linked(op):
            members = [axis for axis in group if _extent(axis) != 1]
            links.add_nodes_from(members)
            nx.add_path(links, members)
            linked.update(group)
            if len({_extent(axis) for axis in members}) > 1:
                fixed.update(members)
        operands = (value for value in (*op.inputs, *op.outputs) if value is not None)
        fixed.update(axis for value in operands for axis in _axes(value) if axis not in linked)
    return links, fixed


def _linked(op: Op) -> Iterable[Sequence[ValueAxis]]:
    """The sets of axes of the operands of an op that have to have one extent; other axes cannot change."""
    rule = rule_of(op)
    if isinstance(rule, Convolution):
        return [_of_slots(op, channels) for channels in rule.channels(op)]
    if isinstance(rule, AxiswiseRule | Transpose):
        return same_axes(op)
    if not isinstance(rule, Contraction):
        return ()
    axes = rule.iteration_axes(op)
    return () if isinstance(axes, Inapplicable) else by_iteration_axis(op, axes)


def _of_slots(op: Op, axes: Iterable[tuple[Slot, int]]) -> list[ValueAxis]:
    found = ((op.operand(slot), axis) for slot, axis in axes)
    return [
        (value, axis) for value, axis in found if value is not None and value.rank is not None and axis < value.rank
    ]


def _axes(value: Value) -> Iterator[ValueAxis]:
    yield from ((value, axis) for axis in range(value.rank or 0))


def _extent(axis: ValueAxis) -> int | None:
    value, number = axis
    dim = value.shape[number] if value.shape is not None else None
    return dim if isinstance(dim, int) else None


@contextmanager
def resized(graph: Graph, groups: Sequence[ChannelGroup]) -> Iterator[None]:
    """Context manager in which the types of the tensors of some groups have the next extents that fill the blocks.

    Only types, and the groups of depthwise convolutions, change, since prices depend on nothing else.
    """
    extents = {axis: group.next_extent for group in groups for axis in group.axes}
    types = {value: value.type for value, _ in extents}
    depthwise = [op for op in graph.ops if _is_resized_depthwise(op, extents)]
    counts = [op.attributes["group"] for op in depthwise]
    try:
        for value, type in types.items():
            assert isinstance(type, TensorType) and type.shape is not None
            shape = (extents.get((value, axis), dim) for axis, dim in enumerate(type.shape))
            value.type = TensorType(type.dtype, shape)
        for op in depthwise:
            x = op.inputs[0]
            assert x is not None
            op.attributes["group"] = extents[x, 1]
        yield
    finally:
        for value, type in types.items():
            value.type = type
        for op, count in zip(depthwise, counts, strict=True):
            op.attributes["group"] = count


def _is_resized_depthwise(op: Op, extents: dict[ValueAxis, int]) -> bool:
    rule, value = rule_of(op), op.inputs[0] if op.inputs else None
    is_depthwise = isinstance(rule, Convolution) and rule.variant(op) == _DEPTHWISE
    return is_depthwise and value is not None and (value, 1) in extents


__all__ = ["ChannelGroup", "resized", "unfilled_groups"]
