"""Edits of a ModelProto: further outputs, cuts at inner values, float32 in place of 16-bit types.

Outputs and cuts are edited in place. Only values that nodes of the main graph compute are edited; other names are ignored.
"""

from collections.abc import Collection, Iterable, Mapping
from os import PathLike

import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto, numpy_helper

from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.messages import graphs, inner_graphs, nested, nodes
from layoutopt.onnx_io.tensors import tensors
from layoutopt.onnx_io.vocabulary import TO_IR

NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The floating-point types of 16 bits."""

LOWER, UPPER, PERTURBATION = "__lower", "__upper", "__perturbation"
"""Suffixes of the outputs that hold the bounds of a rounded value, and the absolute perturbation of its operand."""

COMPUTED = "__computed"
"""Suffix of the output that holds the computed value at a cut; the value's own name becomes an input."""

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "softmax_precision"})
_WIDE = "__wide"
_LIMIT = 1_900_000_000  # bytes; protobuf's limit is 2 GiB


def computed_names(message: onnx.ModelProto) -> set[str]:
    """The names of the values that nodes of the main graph compute."""
    return {name for node in message.graph.node for name in node.output if name}


def tensors_between(message: onnx.ModelProto, names: Iterable[str], cuts: Collection[str]) -> frozenset[str]:
    """The tensors that a model computes for `names`, those of bodies included, from its inputs and from `cuts`."""
    producers = {name: node for node in message.graph.node for name in node.output if name}
    found, pending = set[str](), [name for name in names if name in producers]
    while pending:
        node = producers[pending.pop()]
        if not found.isdisjoint(filter(None, node.output)):
            continue
        inside = [inner for graph in nested(inner_graphs([node])) for inner in graph.node]
        found.update(name for each in (node, *inside) for name in each.output if name)
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


def upcast_to_float32(model: bytes | str | PathLike[str]) -> bytes | None:
    """The serialised model with float32 computations; None if it would be too large for one file.

    before: x: float16 -> Conv (w: float16) -> y: float16
    after:  x: float16 -> Cast -> Conv (w: float32) -> y: float32

    Constants keep their values. Inputs keep their types, so that the model takes the same feed. An op that depends on the width
    of a type, such as BitCast, changes its result or makes the model invalid.
    """
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    if 2 * proto.ByteSize() > _LIMIT:
        return None
    for _, tensor in tensors(proto):
        if tensor.data_type in NARROW:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for node in nodes(proto):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in NARROW:
                attribute.i = TensorProto.FLOAT
    for graph in graphs(proto):
        del graph.value_info[:]
        for info in (*(graph.input if graph is not proto.graph else ()), *graph.output):
            if info.type.tensor_type.elem_type in NARROW:
                info.type.tensor_type.elem_type = TensorProto.FLOAT
    for function in proto.functions:
        del function.value_info[:]
    _cast_inputs(proto)
    return bytes(proto.SerializeToString(deterministic=True))


def has_float16(proto: onnx.ModelProto) -> bool:
    """Whether a model has a float16 tensor: an input, a constant, or the result of a Cast."""
    given = (info.type.tensor_type.elem_type for graph in graphs(proto) for info in graph.input)
    initializers = (tensor.data_type for _, tensor in tensors(proto))
    made = (attr.i for node in nodes(proto) for attr in node.attribute if attr.name in _TYPE_ATTRIBUTES)
    return any(TensorProto.FLOAT16 in types for types in (given, initializers, made))


def _cast_inputs(proto: onnx.ModelProto) -> None:
    """Cast the 16-bit inputs to float32 for all their uses; an input with an initializer becomes float32 with it."""
    graph = proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    narrow = [info for info in graph.input if info.type.tensor_type.elem_type in NARROW]
    names = [info.name for info in narrow if info.name not in constants]
    for info in narrow:
        if info.name in constants:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    inside = [node for each in graphs(proto) for node in each.node]
    for node in inside:
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = f"{name}{_WIDE}"
    casts = [onnx.helper.make_node("Cast", [name], [f"{name}{_WIDE}"], to=TensorProto.FLOAT) for name in names]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *rest])
