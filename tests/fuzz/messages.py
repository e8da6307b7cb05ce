"""Damage to the contents of a message: other ops, types and shapes, dangling and cyclic names.

These mutants can be parsed, and so reach later stages than damaged bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import onnx
from onnx import AttributeProto, TensorProto, helper

from .choices import Choices, chance, pick

T = TypeVar("T")
Edit = Callable[[Choices, onnx.ModelProto], None]

_NUMBERS = (0, 1, -1, 2, 3, -2, 7, 100, -100, 1 << 20, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))
_DIMS = (0, 1, -1, 2, 3, 17, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1)
_FLOATS = (0.0, -1.0, 0.5, 1e30, -1e30, float("nan"), float("inf"))
_LOCATIONS = (
    "missing",
    "../weights",
    "/etc/hostname",
    "weights",
    "",
    ".",
    "weights/x",
    "a" * 300,
    "we\0ights",
    "link",
    "folder",
)


class NoSuchPart(Exception):  # noqa: N818  -- not an error
    """The model has no part of the required kind."""


def damage(choices: Choices, model: onnx.ModelProto) -> None:
    """Apply a few random edits."""
    for _ in range(pick(choices, (1, 1, 1, 2, 3))):
        try:
            pick(choices, EDITS)(choices, model)
        except NoSuchPart:
            continue


def graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph and all subgraphs."""
    found = [model.graph]
    for graph in found:
        found += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return found


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes, those of functions included."""
    found = [node for graph in graphs(model) for node in graph.node]
    return found + [node for function in model.functions for node in function.node]


def _one(choices: Choices, found: Sequence[T]) -> T:
    if not found:
        raise NoSuchPart
    return pick(choices, found)


def _names(model: onnx.ModelProto) -> list[str]:
    found = [each.name for graph in graphs(model) for each in (*graph.input, *graph.initializer, *graph.output)]
    return [*found, *(name for node in nodes(model) for name in node.output)]


def _attribute(choices: Choices, model: onnx.ModelProto) -> AttributeProto:
    return _one(choices, [attribute for node in nodes(model) for attribute in node.attribute])


def _drop_attribute(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, [node for node in nodes(model) if node.attribute])
    del node.attribute[choices.number(0, len(node.attribute) - 1)]


def _change_attribute(choices: Choices, model: onnx.ModelProto) -> None:
    """Other, more, fewer or no numbers."""
    attribute = _attribute(choices, model)
    if attribute.ints:
        _change_list(choices, attribute.ints, _NUMBERS)
    elif attribute.floats:
        _change_list(choices, attribute.floats, _FLOATS)
    elif attribute.HasField("i"):
        attribute.i = pick(choices, _NUMBERS)
    elif attribute.HasField("f"):
        attribute.f = pick(choices, _FLOATS)
    elif attribute.HasField("s"):
        attribute.s = pick(choices, (b"", b"SAME_UPPER", b"constant", b"nearest", b"\xff\xff", b"ij,jk->ik"))
    elif attribute.HasField("t"):
        _damage_tensor(choices, attribute.t)


def _change_list(choices: Choices, numbers: Any, options: Sequence[Any]) -> None:
    way = choices.number(0, 3)
    if way == 0:
        numbers[choices.number(0, len(numbers) - 1)] = pick(choices, options)
    elif way == 1:
        numbers.append(pick(choices, options))
    elif way == 2:
        del numbers[choices.number(0, len(numbers) - 1)]
    else:
        del numbers[:]


def _change_attribute_type(choices: Choices, model: onnx.ModelProto) -> None:
    attribute = _attribute(choices, model)
    way = choices.number(0, 3)
    if way == 0:
        attribute.type = choices.number(0, 14)  # type: ignore[assignment]
    elif way == 1:
        attribute.ref_attr_name = "nothing"
    else:
        name = attribute.name
        options: list[Any] = [
            1,
            1.5,
            "text",
            [1, 2],
            [1.5],
            ["a"],
            helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0]),
        ]
        attribute.CopyFrom(helper.make_attribute(name, pick(choices, options)))


def _rename_attribute(choices: Choices, model: onnx.ModelProto) -> None:
    attribute = _attribute(choices, model)
    attribute.name = pick(choices, ("", "axis", "axes", "pads", "kernel_shape", "value", "to", "perm", "nothing"))


def _add_attribute(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, nodes(model))
    schema = next((each for each in onnx.defs.get_all_schemas() if each.name == node.op_type), None)
    names = [*(schema.attributes if schema is not None else ()), "axis", "nothing"]
    value: Any = pick(choices, [pick(choices, _NUMBERS), [pick(choices, _NUMBERS), 1], 0.5, "text", [0, 1, 2, 3]])
    node.attribute.append(helper.make_attribute(pick(choices, names), value))


def _change_op(choices: Choices, model: onnx.ModelProto) -> None:
    """Replace an op by another one on the same operands, which the shape inference of that op may not support."""
    node = _one(choices, nodes(model))
    node.op_type = pick(choices, sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
    if chance(choices, 50):
        del node.attribute[:]


def _change_domain(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, nodes(model))
    node.domain = pick(
        choices, ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "layoutopt", "elsewhere")
    )


def _change_input(choices: Choices, model: onnx.ModelProto) -> None:
    """Another value of the model, the node's own output, an empty name, or an undefined name."""
    node = _one(choices, [node for node in nodes(model) if node.input])
    names = [*_names(model), *node.output, "", "nowhere"]
    node.input[choices.number(0, len(node.input) - 1)] = pick(choices, names)


def _more_inputs(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, nodes(model))
    node.input.extend(pick(choices, [*_names(model), ""]) for _ in range(pick(choices, (1, 2, 9))))


def _fewer_inputs(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, [node for node in nodes(model) if node.input])
    del node.input[choices.number(0, len(node.input) - 1) :]


def _change_outputs(choices: Choices, model: onnx.ModelProto) -> None:
    node = _one(choices, [node for node in nodes(model) if node.output])
    way = choices.number(0, 3)
    if way == 0:
        node.output.append("more")
    elif way == 1:
        del node.output[-1]
    elif way == 2:
        node.output[0] = pick(choices, [*_names(model), ""])
    else:
        node.output[0] = ""


def _drop_node(choices: Choices, model: onnx.ModelProto) -> None:
    graph = _one(choices, [graph for graph in graphs(model) if graph.node])
    del graph.node[choices.number(0, len(graph.node) - 1)]


def _repeat_node(choices: Choices, model: onnx.ModelProto) -> None:
    graph = _one(choices, [graph for graph in graphs(model) if graph.node])
    copy = onnx.NodeProto()
    copy.CopyFrom(pick(choices, graph.node))
    if chance(choices, 60):
        for place in range(len(copy.output)):
            copy.output[place] += "_again"
    graph.node.append(copy)


def _move_node(choices: Choices, model: onnx.ModelProto) -> None:
    graph = _one(choices, [graph for graph in graphs(model) if graph.node])
    copy = onnx.NodeProto()
    copy.CopyFrom(graph.node[0])
    del graph.node[0]
    graph.node.append(copy)


def _nest(choices: Choices, model: onnx.ModelProto) -> None:
    """A graph attribute where none belongs, or a graph that contains itself."""
    graph, node = onnx.GraphProto(), _one(choices, nodes(model))
    graph.CopyFrom(_one(choices, graphs(model)))
    if graph.ByteSize() > 20_000:
        raise NoSuchPart
    node.attribute.append(helper.make_attribute(pick(choices, ("body", "then_branch", "else_branch")), graph))
    if chance(choices, 50):
        node.op_type = pick(choices, ("If", "Loop", "Scan", "SequenceMap"))


def _infos(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return [each for graph in graphs(model) for each in (*graph.input, *graph.output, *graph.value_info)]


def _change_shape(choices: Choices, model: onnx.ModelProto) -> None:
    tensor = _one(choices, _infos(model)).type.tensor_type
    dims = tensor.shape.dim
    way = choices.number(0, 4)
    if way == 0 or not dims:
        dims.add().dim_value = pick(choices, _DIMS)
    elif way == 1:
        del dims[choices.number(0, len(dims) - 1)]
    elif way == 2:
        pick(choices, dims).dim_param = pick(choices, ("N", "", "N+1", "unk__0", "?1", "-1", "é"))
    elif way == 3:
        tensor.ClearField("shape")
    else:
        pick(choices, dims).dim_value = pick(choices, _DIMS)


def _change_type(choices: Choices, model: onnx.ModelProto) -> None:
    each = _one(choices, _infos(model))
    way = choices.number(0, 5)
    if way <= 2:
        each.type.tensor_type.elem_type = choices.number(0, 28)
    elif way == 3:
        each.ClearField("type")
    else:
        inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
        kinds = [helper.make_sequence_type_proto(inner), helper.make_optional_type_proto(inner), onnx.TypeProto()]
        each.type.CopyFrom(pick(choices, kinds))


def _rename(choices: Choices, model: onnx.ModelProto) -> None:
    """A declared value, or an initializer."""
    found: list[Any] = [*_infos(model), *(each for graph in graphs(model) for each in graph.initializer)]
    _one(choices, found).name = pick(choices, [*_names(model), "", "other", "x\ny", "\0"])


def _change_interface(choices: Choices, model: onnx.ModelProto) -> None:
    graph = _one(choices, graphs(model))
    side = pick(choices, (graph.input, graph.output))
    if side and chance(choices, 50):
        del side[choices.number(0, len(side) - 1)]
    else:
        side.extend(
            [helper.make_tensor_value_info(pick(choices, [*_names(model), "new"]), choices.number(0, 16), [1, 2])]
        )


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    found = [each for graph in graphs(model) for each in graph.initializer]
    return found + [attribute.t for node in nodes(model) for attribute in node.attribute if attribute.HasField("t")]


def _change_tensor(choices: Choices, model: onnx.ModelProto) -> None:
    _damage_tensor(choices, _one(choices, _tensors(model)))


def _damage_tensor(choices: Choices, tensor: TensorProto) -> None:
    """The shape, type, elements or location of a tensor."""
    way = choices.number(0, 7)
    if way == 0:
        tensor.dims.append(pick(choices, _DIMS))
    elif way == 1 and tensor.dims:
        tensor.dims[choices.number(0, len(tensor.dims) - 1)] = pick(choices, _DIMS)
    elif way == 2:
        tensor.data_type = choices.number(0, 28)
    elif way == 3:
        tensor.raw_data = tensor.raw_data[: choices.number(0, 40)]
    elif way == 4 and tensor.data_type == TensorProto.INT64 and tensor.raw_data:
        count = len(tensor.raw_data) // 8
        numbers = [pick(choices, _NUMBERS) for _ in range(count)]
        tensor.raw_data = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    elif way == 5:
        tensor.raw_data = bytes(choices.number(0, 255) for _ in range(min(len(tensor.raw_data), 64)))
    elif way == 6:
        tensor.float_data.append(1.0)
    else:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entries = {
            "location": pick(choices, _LOCATIONS),
            "offset": str(pick(choices, _NUMBERS)),
            "length": str(pick(choices, _NUMBERS)),
        }
        for key in pick(choices, (["location"], ["location", "offset"], ["location", "offset", "length"], ["length"])):
            tensor.external_data.add(key=key, value=entries[key])


def _change_version(choices: Choices, model: onnx.ModelProto) -> None:
    way = choices.number(0, 3)
    if way == 0:
        model.ir_version = pick(choices, (0, 1, 3, 4, 7, 10, 13, 99, -1))
    elif way == 1 and model.opset_import:
        pick(choices, model.opset_import).version = pick(choices, (0, 1, 6, 7, 9, 11, 13, 17, 21, 25, 99, -1))
    elif way == 2:
        model.opset_import.add(
            domain=pick(choices, ("", "ai.onnx", "ai.onnx.ml", "x")), version=pick(choices, (1, 9, 17))
        )
    elif model.opset_import:
        del model.opset_import[0]


def _change_functions(choices: Choices, model: onnx.ModelProto) -> None:
    """Recursive calls, other parameters, a function with the name of a standard op."""
    function = _one(choices, model.functions)
    way = choices.number(0, 4)
    if way == 0:
        call = helper.make_node(function.name, list(function.input), ["round"], domain=function.domain)
        function.node.append(call)
    elif way == 1:
        function.input.append(pick(choices, ("more", *function.input)))
    elif way == 2:
        function.output.append(pick(choices, ("nowhere", *function.output)))
    elif way == 3:
        function.domain, function.name = "", pick(choices, ("Relu", "Conv", "Add"))
    else:
        del function.opset_import[:]


def _empty(choices: Choices, model: onnx.ModelProto) -> None:
    graph = _one(choices, graphs(model))
    graph.ClearField(pick(choices, ("node", "input", "output", "initializer", "name")))


def _add_rare_fields(choices: Choices, model: onnx.ModelProto) -> None:
    """Rarely used fields."""
    way = choices.number(0, 3)
    if way == 0:
        model.training_info.add().initialization.CopyFrom(model.graph)
    elif way == 1:
        values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor("at", TensorProto.INT64, [1], [pick(choices, _NUMBERS)])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [pick(choices, _DIMS)]))
    elif way == 2:
        model.metadata_props.add(
            key=pick(choices, ("layoutopt", "a", "")), value=pick(choices, ("{", "null", "[1]", "{}", "x"))
        )
    else:
        annotation = model.graph.quantization_annotation.add(tensor_name=pick(choices, _names(model) or ["x"]))
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="nowhere")


EDITS: tuple[Edit, ...] = (
    *(_drop_attribute, _change_attribute, _change_attribute, _change_attribute_type, _rename_attribute, _add_attribute),
    *(
        _change_op,
        _change_op,
        _change_domain,
        _change_input,
        _change_input,
        _more_inputs,
        _fewer_inputs,
        _change_outputs,
    ),
    *(
        _drop_node,
        _repeat_node,
        _move_node,
        _nest,
        _change_shape,
        _change_shape,
        _change_type,
        _rename,
        _change_interface,
    ),
    *(_change_tensor, _change_tensor, _change_version, _change_functions, _empty, _add_rare_fields),
)
