"""Edits of a message that open a model up: inner values as further outputs, or as inputs, which cuts the model there.

Every function changes the message that it is given. Values are those that nodes of the main graph compute; others are left out.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnx.helper
from onnx import numpy_helper

from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.converter.vocabulary import TO_IR

LOWER, UPPER, MARGIN = "__lower", "__upper", "__margin"
"""Suffixes of the outputs that hold the lower bound, the upper bound and the perturbation of a rounded value."""

COMPUTED = "__computed"
"""Suffix of the output that holds what a model computes for a value at which it is cut."""


def computed_names(message: onnx.ModelProto) -> set[str]:
    """The names of the values that nodes of the main graph compute."""
    return {name for node in message.graph.node for name in node.output if name}


def expose(message: onnx.ModelProto, names: Iterable[str]) -> None:
    """Append values to the outputs; onnxruntime infers their types."""
    outputs = {info.name for info in message.graph.output}
    computed = computed_names(message)
    for name in dict.fromkeys(names):
        if name in computed and name not in outputs:
            message.graph.output.add().name = name


def expose_bounds(message: onnx.ModelProto, margins: Mapping[str, Array]) -> None:
    """Append what rounded values become if the floating-point values in front are a little smaller or larger.

    before: x -> QuantizeLinear -> q
    after:  m = margins[q] max |x|      x - m -> QuantizeLinear -> q__lower      x + m -> QuantizeLinear -> q__upper

    Args:
        message: the model; only values among its outputs are looked at.
        margins: for rounded values, a number of the type of the floating-point ones.
    """
    outputs = {info.name for info in message.graph.output}
    for node in tuple(message.graph.node):
        name = node.output[0] if node.output else ""
        if name in outputs and name in margins:
            _expose_bounds(message.graph, node, margins[name])


def _expose_bounds(graph: onnx.GraphProto, node: onnx.NodeProto, margin: Array) -> None:
    x, name = node.input[0], node.output[0]
    m = f"{name}{MARGIN}"
    size, largest, part = (f"{m}_{word}" for word in ("size", "largest", "part"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(margin), part))
    graph.node.extend(
        [
            onnx.helper.make_node("Abs", [x], [size]),
            onnx.helper.make_node("ReduceMax", [size], [largest], keepdims=0),
            onnx.helper.make_node("Mul", [largest, part], [m]),
        ]
    )
    graph.output.add().name = m
    for kind, suffix in (("Sub", LOWER), ("Add", UPPER)):
        moved, result = f"{name}{suffix}_before", f"{name}{suffix}"
        graph.node.append(onnx.helper.make_node(kind, [x, m], [moved]))
        rounding = graph.node.add()
        rounding.CopyFrom(node)
        rounding.name, rounding.input[0], rounding.output[0] = result, moved, result
        graph.output.add().name = result


def cut(message: onnx.ModelProto, values: Mapping[str, DType]) -> None:
    """Let a model read values from outside, under their names, and hand out what it computes for them as `NAME__computed`.

    Args:
        message: the model.
        values: the values to cut at, with their element types. Outputs stay as they are.
    """
    outputs = {info.name for info in message.graph.output}
    computed = computed_names(message)
    chosen = {name: dtype for name, dtype in values.items() if name in computed and name not in outputs}
    del message.graph.value_info[:]
    for node in message.graph.node:
        for index, name in enumerate(node.output):
            if name in chosen:
                node.output[index] = f"{name}{COMPUTED}"
    for name, dtype in chosen.items():
        element = int(TO_IR[dtype])
        message.graph.input.append(onnx.helper.make_tensor_value_info(name, element, None))
        message.graph.output.append(onnx.helper.make_tensor_value_info(f"{name}{COMPUTED}", element, None))


__all__ = ["COMPUTED", "LOWER", "MARGIN", "UPPER", "computed_names", "cut", "expose", "expose_bounds"]
