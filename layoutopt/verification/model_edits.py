"""Edits of a ModelProto in place: exposes inner values as outputs; replaces them by inputs, to cut the model into segments.

Only values that nodes of the main graph compute are edited; other names are ignored.
"""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx
import onnx.helper
from onnx import numpy_helper

from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.messages import inner_graphs, nested
from layoutopt.onnx_io.vocabulary import TO_IR

LOWER, UPPER, PERTURBATION = "__lower", "__upper", "__perturbation"
"""Suffixes of the outputs that hold the bounds of a rounded value, and the absolute perturbation of its operand."""

COMPUTED = "__computed"
"""Suffix of the output that holds the computed value at a cut; the value's own name becomes an input."""


def computed_names(message: onnx.ModelProto) -> set[str]:
    """The names of the values that nodes of the main graph compute."""
    return {name for node in message.graph.node for name in node.output if name}


def tensors_between(message: onnx.ModelProto, names: Iterable[str], cuts: Collection[str]) -> frozenset[str]:
    """The tensors that a model computes for some of them, those of bodies included, from its inputs and from `cuts`."""
    producers = {name: node for node in message.graph.node for name in node.output if name}
    found, pending = set[str](), [name for name in names if name in producers]
    while pending:
        node = producers[pending.pop()]
        if not found.isdisjoint(node.output):
            continue
        inside = [inner for graph in nested(inner_graphs([node])) for inner in graph.node]
        found.update(name for each in (node, *inside) for name in each.output)
        read = (name for each in (node, *inside) for name in each.input)
        pending += [name for name in read if name in producers and name not in cuts]
    return frozenset(found)


def add_outputs(message: onnx.ModelProto, names: Iterable[str]) -> None:
    """Append values to the graph outputs; onnxruntime infers their types."""
    outputs = {info.name for info in message.graph.output}
    computed = computed_names(message)
    for name in dict.fromkeys(names):
        if name in computed and name not in outputs:
            message.graph.output.add().name = name


def add_bound_outputs(message: onnx.ModelProto, relative_margins: Mapping[str, Array]) -> None:
    """For each rounded value, append the results of rounding its operand minus and plus a perturbation, and the perturbation.

    before: x -> QuantizeLinear -> q
    after:  m = relative_margins[q] max |x|      x - m -> QuantizeLinear -> q__lower      x + m -> QuantizeLinear -> q__upper

    Args:
        message: the model; only values among its outputs are edited.
        relative_margins: for each rounded value, the perturbation of its floating-point operand relative to the largest
            magnitude, as a scalar of the operand's element type.
    """
    outputs = {info.name for info in message.graph.output}
    for node in tuple(message.graph.node):
        name = node.output[0] if node.output else ""
        if name in outputs and name in relative_margins:
            _add_bound_outputs(message.graph, node, relative_margins[name])


def _add_bound_outputs(graph: onnx.GraphProto, node: onnx.NodeProto, relative_margin: Array) -> None:
    x, name = node.input[0], node.output[0]
    perturbation = f"{name}{PERTURBATION}"
    magnitudes, largest, relative = (f"{perturbation}_{word}" for word in ("magnitudes", "largest", "relative"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(relative_margin), relative))
    graph.node.extend(
        [
            onnx.helper.make_node("Abs", [x], [magnitudes]),
            onnx.helper.make_node("ReduceMax", [magnitudes], [largest], keepdims=0),
            onnx.helper.make_node("Mul", [largest, relative], [perturbation]),
        ]
    )
    graph.output.add().name = perturbation
    for kind, suffix in (("Sub", LOWER), ("Add", UPPER)):
        perturbed, result = f"{name}{suffix}_operand", f"{name}{suffix}"
        graph.node.append(onnx.helper.make_node(kind, [x, perturbation], [perturbed]))
        rounding = graph.node.add()
        rounding.CopyFrom(node)
        rounding.name, rounding.input[0], rounding.output[0] = result, perturbed, result
        graph.output.add().name = result


def cut_at(message: onnx.ModelProto, values: Mapping[str, DType]) -> None:
    """Turn values into inputs of the same name, and expose what the model computes for them as outputs `NAME__computed`.

    Args:
        message: the model.
        values: the element types of the values to cut at, by name; graph outputs are not cut.
    """
    outputs = {info.name for info in message.graph.output}
    computed = computed_names(message)
    cut_types = {name: dtype for name, dtype in values.items() if name in computed and name not in outputs}
    del message.graph.value_info[:]
    for node in message.graph.node:
        for index, name in enumerate(node.output):
            if name in cut_types:
                node.output[index] = f"{name}{COMPUTED}"
    for name, dtype in cut_types.items():
        element = int(TO_IR[dtype])
        message.graph.input.append(onnx.helper.make_tensor_value_info(name, element, None))
        message.graph.output.append(onnx.helper.make_tensor_value_info(f"{name}{COMPUTED}", element, None))


__all__ = [
    "COMPUTED",
    "LOWER",
    "PERTURBATION",
    "UPPER",
    "add_bound_outputs",
    "add_outputs",
    "computed_names",
    "cut_at",
    "tensors_between",
]
