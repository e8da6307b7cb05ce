"""Random parts of a model for mutations."""

from collections.abc import Sequence
from typing import TypeVar

import onnx
from onnx import TensorProto

from .choices import Choices, pick
from .messages import NoSuchPart, graphs

T = TypeVar("T")

EXTENTS = (0, 1, 2, 3, 5, 7, 8, 12, 16, 31, -1)


def one(choices: Choices, found: Sequence[T]) -> T:
    if not found:
        raise NoSuchPart
    return pick(choices, found)


def a_graph(choices: Choices, model: onnx.ModelProto) -> onnx.GraphProto:
    return pick(choices, [graph for graph in graphs(model) if graph.node] or [model.graph])


def a_node(choices: Choices, graph: onnx.GraphProto) -> onnx.NodeProto:
    if not graph.node:
        raise NoSuchPart
    return pick(choices, graph.node)


def a_tensor(choices: Choices, graph: onnx.GraphProto) -> TensorProto:
    if not graph.initializer:
        raise NoSuchPart
    return pick(choices, graph.initializer)


def computed(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]


def rewire(graph: onnx.GraphProto, old: str, new: str, but: onnx.NodeProto | None = None) -> None:
    for node in graph.node:
        if but is None or node != but:
            node.input[:] = [new if name == old else name for name in node.input]
