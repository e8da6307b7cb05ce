"""Edits of a ModelProto in place: inner values become outputs, or inputs, which cuts the model into segments.

Only values that nodes of the main graph compute are edited; other names are ignored.
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
"""Suffix of the output that holds the computed value at a cut; the value's own name becomes an input."""


def computed_names(message: onnx.ModelProto) -> set[str]:
    """The names of the values that nodes of the main graph compute."""
    return {name for node in message.graph.node for name in node.output if name}


def add_outputs(message: onnx.ModelProto, names: Iterable[str]) -> None:
    """Append values to the graph outputs; onnxruntime infers their types."""
    outputs = {info.name for info in message.graph.output}
    computed = computed_names(message)
    for name in dict.fromkeys(names):
        if name in computed and name not in outputs:
            message.graph.output.add().name = name


def add_bound_outputs(message: onnx.ModelProto, margins: Mapping[str, Array]) -> None:
    """Append outputs for the rounded values of slightly smaller and slightly larger floating-point operands.

    before: x -> QuantizeLinear -> q
    after:  m = margins[q] max |x|      x - m -> QuantizeLinear -> q__lower      x + m -> QuantizeLinear -> q__upper

    Args:
        message: the model; only values among its outputs are edited.
        margins: the relative perturbation for each rounded value, in the type of the floating-point operand.
    """
    outputs = {info.name for info in message.graph.output}
    for node in tuple(message.graph.node):
        name = node.output[0] if node.output else ""
        if name in outputs and name in margins:
            _add_bound_outputs(message.graph, node, margins[name])


def _add_bound_outputs(graph: onnx.GraphProto, node: onnx.NodeProto, margin: Array) -> None:
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


def cut_at(message: onnx.ModelProto, values: Mapping[str, DType]) -> None:
    """Turn values into inputs of the same name, and return the computed values as outputs `NAME__computed`.

    Args:
        message: the model.
        values: the element types of the values to cut at; graph outputs are not cut.
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


__all__ = ["COMPUTED", "LOWER", "MARGIN", "UPPER", "add_bound_outputs", "add_outputs", "computed_names", "cut_at"]
