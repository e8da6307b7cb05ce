"""Mutations of a model's structure, valid and invalid ones, as by editors and exporters.

Few models run after the mutations of `messages.EDITS`; examples have mutations of both kinds.
"""

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .choices import Choices, chance, pick
from .messages import EDITS, Edit, NoSuchPart, graphs, nodes
from .parts import EXTENTS, a_graph, a_tensor, computed, one, rewire
from .wiring import WIRING


def mutate(choices: Choices, model: onnx.ModelProto) -> list[str]:
    """Mutate a model in place, and return the names of the mutations."""
    done = []
    for _ in range(pick(choices, (1, 1, 1, 2, 3))):
        edit = pick(choices, MUTATIONS) if chance(choices, 70) else pick(choices, EDITS)
        try:
            edit(choices, model)
        except (NoSuchPart, ValueError):  # an unusual name is not valid text
            continue
        done.append(edit.__name__.strip("_"))
    return done


def _declare_shape(choices: Choices, model: onnx.ModelProto) -> None:
    """Declare a shape of a computed value, probably a wrong one, sometimes in addition to another one."""
    graph = a_graph(choices, model)
    name = one(choices, [*computed(graph), *(each.name for each in (*graph.input, *graph.initializer))])
    kind = TensorProto.FLOAT if chance(choices, 90) else choices.number(1, 16)
    rank = choices.number(0, 5)
    shape = [pick(choices, EXTENTS) if chance(choices, 80) else "N" for _ in range(rank)]
    graph.value_info.append(helper.make_tensor_value_info(str(name), kind, shape))


def _wrong_output_shape(choices: Choices, model: onnx.ModelProto) -> None:
    graph = a_graph(choices, model)
    if not graph.output:
        raise NoSuchPart
    dims = pick(choices, graph.output).type.tensor_type.shape.dim
    way = choices.number(0, 2)
    if way == 0 or not dims:
        dims.add().dim_value = pick(choices, EXTENTS)
    elif way == 1:
        pick(choices, dims).dim_value = pick(choices, EXTENTS)
    else:
        del dims[choices.number(0, len(dims) - 1) :]


def _forget_declarations(choices: Choices, model: onnx.ModelProto) -> None:
    graph = a_graph(choices, model)
    if chance(choices, 50):
        del graph.value_info[:]
    for each in graph.output:
        if chance(choices, 60):
            each.type.tensor_type.ClearField("shape")
        elif chance(choices, 20):
            each.ClearField("type")


def _symbolic_input(choices: Choices, model: onnx.ModelProto) -> None:
    dims = [dim for each in model.graph.input for dim in each.type.tensor_type.shape.dim]
    if not dims:
        raise NoSuchPart
    for dim in dims:
        if chance(choices, 40):
            dim.dim_param = pick(choices, ("N", "M", "batch", "s10"))
    if chance(choices, 50):
        _forget_declarations(choices, model)


def _other_extent(choices: Choices, model: onnx.ModelProto) -> None:
    dims = [dim for each in model.graph.input for dim in each.type.tensor_type.shape.dim]
    if not dims:
        raise NoSuchPart
    pick(choices, dims).dim_value = pick(choices, EXTENTS)


def _repeat_initializer(choices: Choices, model: onnx.ModelProto) -> None:
    graph = a_graph(choices, model)
    copy = TensorProto.FromString(a_tensor(choices, graph).SerializeToString())
    if copy.raw_data and chance(choices, 60):
        copy.raw_data = bytes(len(copy.raw_data))
    graph.initializer.insert(choices.number(0, len(graph.initializer)), copy)


def _data_in_another_field(choices: Choices, model: onnx.ModelProto) -> None:
    tensor = a_tensor(choices, a_graph(choices, model))
    way = choices.number(0, 3)
    if way == 0:
        tensor.int32_data.append(3)
    elif way == 1:
        tensor.float_data.extend([1.0, 2.0])
    elif way == 2 and tensor.data_type == TensorProto.FLOAT and tensor.raw_data:
        values = numpy_helper.to_array(tensor).reshape(-1).tolist()
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values)
    else:
        tensor.double_data.append(0.5)


def _initializer_as_input(choices: Choices, model: onnx.ModelProto) -> None:
    """Add an initializer for an input, as before IR version 4, sometimes with another shape."""
    tensor = a_tensor(choices, model.graph)
    dims = list(tensor.dims)
    if chance(choices, 25):
        dims.append(1)
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))
    if chance(choices, 30):
        model.ir_version = 3


def _initializer_as_constant(choices: Choices, model: onnx.ModelProto) -> None:
    graph = a_graph(choices, model)
    tensor = TensorProto.FromString(a_tensor(choices, graph).SerializeToString())
    node = helper.make_node("Constant", [], [tensor.name], value=tensor)
    graph.node.insert(choices.number(0, len(graph.node)) if chance(choices, 20) else 0, node)
    if chance(choices, 80):
        kept = [
            TensorProto.FromString(each.SerializeToString()) for each in graph.initializer if each.name != tensor.name
        ]
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _initializer_in_bodies(choices: Choices, model: onnx.ModelProto) -> None:
    """Repeat a weight of the main graph in a body, which shadows it."""
    inner = graphs(model)[1:]
    if not inner:
        raise NoSuchPart
    pick(choices, inner).initializer.append(a_tensor(choices, model.graph))


def _odd_names(choices: Choices, model: onnx.ModelProto) -> None:
    """Rename a value, or remove or equate the names of nodes."""
    graph = a_graph(choices, model)
    way = choices.number(0, 3)
    if way == 0:
        for node in graph.node:
            node.name = "" if chance(choices, 80) else "same"
        return
    if way == 1:
        graph.name = ""
        return
    old = str(one(choices, computed(model.graph)))
    new = pick(choices, ("a b", "é", "x/y:0", "名", "y", "?1", "con", "a" * 300, "\x1b[31m", "0"))
    for each in graphs(model):
        rewire(each, old, new)
        for node in each.node:
            node.output[:] = [new if name == old else name for name in node.output]
        for info in (*each.value_info, *each.output):
            info.name = new if info.name == old else info.name


def _retype(choices: Choices, model: onnx.ModelProto) -> None:
    """Change the type of all floating-point values of a model, or of one weight."""
    kind = pick(choices, (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32))
    tensors = [each for graph in graphs(model) for each in graph.initializer if each.data_type == TensorProto.FLOAT]
    if not tensors or sum(len(each.raw_data) for each in tensors) > 1 << 20:
        raise NoSuchPart
    is_whole = chance(choices, 70)
    for tensor in tensors if is_whole else [pick(choices, tensors)]:
        if tensor.data_location != TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for graph in graphs(model) if is_whole else ():
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = kind


def _another_shape_operand(choices: Choices, model: onnx.ModelProto) -> None:
    """Change an element of an integer list: the target of a Reshape, axes, pads."""
    tensors = [each for graph in graphs(model) for each in graph.initializer if each.data_type == TensorProto.INT64]
    here = [each for each in tensors if each.data_location != TensorProto.EXTERNAL]
    tensor = one(choices, [each for each in here if 0 < np.prod(each.dims) <= 16])
    assert isinstance(tensor, TensorProto)
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[choices.number(0, array.size - 1)] = pick(choices, (-1, 0, 1, 2, 3, 7, -2, 16))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _another_weight(choices: Choices, model: onnx.ModelProto) -> None:
    """Permute the axes of a weight, remove its first element, or set it to zero."""
    tensor = a_tensor(choices, a_graph(choices, model))
    if tensor.data_type != TensorProto.FLOAT or not tensor.raw_data or not tensor.dims:
        raise NoSuchPart
    array = numpy_helper.to_array(tensor)
    way = choices.number(0, 3)
    changed = (array.T, array[1:], np.zeros_like(array), array.reshape(-1))[way]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))


def _near_version(choices: Choices, model: onnx.ModelProto) -> None:
    way = choices.number(0, 3)
    if way == 0:
        model.ir_version = pick(choices, (1, 2, 3, 4, 6, 8, 9, 11, 12, 13))
    elif way == 1 and model.opset_import:
        model.opset_import[0].version = pick(choices, (11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24))
    elif way == 2:
        model.opset_import.add(domain=pick(choices, ("", "ai.onnx")), version=pick(choices, (13, 17, 18, 19)))
    else:
        domain = pick(choices, ("unused", "com.microsoft", "ai.onnx.ml", "ai.onnx.training"))
        model.opset_import.add(domain=domain, version=pick(choices, (1, 2, 3, 99, 1 << 40, 0)))


def _drop_names(choices: Choices, model: onnx.ModelProto) -> None:
    """Add attributes with their default values."""
    node = one(choices, [each for each in nodes(model) if each.attribute])
    assert isinstance(node, onnx.NodeProto)
    attribute = pick(choices, node.attribute)
    if chance(choices, 50):
        node.attribute.append(AttributeProto.FromString(attribute.SerializeToString()))
    else:
        attribute.doc_string = "a"


def _metadata(choices: Choices, model: onnx.ModelProto) -> None:
    for _ in range(choices.number(1, 2)):
        model.metadata_props.add(key=pick(choices, ("a", "b", "layoutopt")), value=pick(choices, ("1", "{}", "é")))
    if chance(choices, 40):
        for _ in range(choices.number(1, 2)):
            note = model.graph.quantization_annotation.add(tensor_name=str(one(choices, computed(model.graph))))
            note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="nowhere")
    if chance(choices, 30) and model.graph.node:
        model.graph.node[0].MergeFromString(bytes([0xFA, 0x7F, 1, 65]))


def _broken_but_unused(choices: Choices, model: onnx.ModelProto) -> None:
    """Add an unused, possibly invalid weight or function."""
    if chance(choices, 50):
        model.graph.initializer.add(name="unused weight", dims=[5], data_type=1, float_data=[1.0])
        return
    node = helper.make_node("Nope", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("made.up", "unused", ["a"], ["b"], [node], opsets))
    model.ir_version = max(model.ir_version, 8)


MUTATIONS: tuple[Edit, ...] = (
    *WIRING,
    *(_declare_shape, _declare_shape, _wrong_output_shape, _wrong_output_shape, _forget_declarations),
    *(_symbolic_input, _other_extent, _repeat_initializer, _data_in_another_field, _initializer_as_input),
    *(_initializer_as_constant, _initializer_in_bodies, _odd_names, _retype, _another_shape_operand),
    *(_another_weight, _near_version, _drop_names, _metadata, _broken_but_unused),
)
