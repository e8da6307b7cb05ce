"""Partitions of a graph that is placed on several devices: ops of one device, which run one partition after the other.

A partition reads results of earlier partitions only. Nodes are written in their order, with the device of each as ONNX's
`device_configurations` (IR version 11), whose pipeline stage is the number of the partition, and as metadata.
"""

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op

DEVICE = "layoutopt.device"
"""The key of a node's device in its metadata."""

CONFIGURATION = "layoutopt"
"""The name of the device configuration of a plan."""

WITH_DEVICES = 11
"""The IR version since which nodes have device configurations."""


def device_of(node: onnx.NodeProto) -> str:
    """The device of a node; empty if it has none."""
    return next((each.value for each in node.metadata_props if each.key == DEVICE), "")


def assign_partitions(graph: Graph) -> list[list[Op]]:
    """Assign the device of an operand to ops without one, which passes after planning have added.

    Returns:
        The ops of the graph in partitions, as few as found; one partition if the ops have no devices.
    """
    ops = graph.ops
    devices = [op.device for op in ops if op.device] or [""]
    for op in ops:
        before = [each.device for each in graph.producers(op)]
        op.device = op.device or (before[-1] if before else devices[0])
    found = [_partitions(graph, ops, first) for first in dict.fromkeys(op.device for op in ops)]
    return min(found, key=len, default=[])


def _partitions(graph: Graph, ops: Sequence[Op], device: str) -> list[list[Op]]:
    """The partitions if the first one is on a device: each has all ops of its device that can run."""
    found, done = list[list[Op]](), set[Op]()
    left = list(ops)
    while left:
        partition, rest = list[Op](), list[Op]()
        for op in left:
            is_next = op.device == device and done.issuperset(graph.producers(op))
            (partition if is_next else rest).append(op)
            if is_next:
                done.add(op)
        if partition:
            found.append(partition)
        left = rest
        device = next((op.device for op in left if done.issuperset(graph.producers(op))), "")
    return found


def annotate(model: ir.Model, stages: Sequence[Sequence[Op]]) -> None:
    """Declare the device and the partition of every node of a model, whose nodes are in the order of partitions."""
    names = tuple(dict.fromkeys(stage[0].device for stage in stages))
    configuration = ir.ModelConfiguration(CONFIGURATION, len(names), names)
    nodes = iter(model.graph)
    for number, stage in enumerate(stages):
        index = names.index(stage[0].device)
        for _, node in zip(stage, nodes, strict=False):
            specs = tuple(ir.ShardingSpec(value, (index,)) for value in node.outputs if value.name)
            node.device_configurations = (ir.NodeDeviceConfiguration(configuration, specs, number),)
            node.metadata_props[DEVICE] = names[index]
    model.device_configurations = (configuration,)
    model.ir_version = max(model.ir_version, WITH_DEVICES)
