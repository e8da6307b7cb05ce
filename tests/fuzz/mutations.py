"""Mutations of a model's structure, valid and invalid ones, as by editors and exporters.

Few models run after the mutations of `messages.EDITS`; examples have mutations of both kinds.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .choices import Choices, chance, pick, shuffled
from .messages import EDITS, Edit, NoSuchPart, graphs, nodes

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


# --- how nodes are connected ---


_SAME_KIND = (
    ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Identity", "Softplus"),
    ("Add", "Mul", "Sub", "Max", "Min", "Sum"),
    ("MaxPool", "AveragePool", "LpPool"),
    ("GlobalAveragePool", "GlobalMaxPool"),
    ("ReduceMean", "ReduceMax", "ReduceSum"),
)


def _shuffle(choices: Choices, model: onnx.ModelProto) -> None:
    graph = a_graph(choices, model)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    graph.node.extend(shuffled(choices, copies))


def _bypass(choices: Choices, model: onnx.ModelProto) -> None:
    """Remove a node; readers of its result read its input."""
    graph = a_graph(choices, model)
    place = choices.number(0, len(graph.node) - 1) if graph.node else -1
    if place < 0 or not graph.node[place].input or not graph.node[place].output:
        raise NoSuchPart
    node = graph.node[place]
    source, result = node.input[0], node.output[0]
    del graph.node[place]
    rewire(graph, result, source)
    if any(each.name == result for each in graph.output):
        graph.node.append(helper.make_node("Identity", [source], [result]))


def _insert(choices: Choices, model: onnx.ModelProto) -> None:
    """Insert a shape-preserving op behind a value."""
    graph = a_graph(choices, model)
    name = str(one(choices, computed(graph)))
    new = f"{name}_mutated"
    kind = pick(choices, ("Identity", "Relu", "Neg", "Dropout", "Cast", "Transpose", "Flatten", "Squeeze"))
    rewire(graph, name, new)
    attributes = {"to": TensorProto.FLOAT} if kind == "Cast" else {}
    node = helper.make_node(kind, [name], [new], **attributes)
    places = [at for at, each in enumerate(graph.node) if name in each.output]
    graph.node.insert(places[0] + 1, node)


def _another_op(choices: Choices, model: onnx.ModelProto) -> None:
    """Replace an op by another one of the same operands."""
    alike = {op: kind for kind in _SAME_KIND for op in kind}
    node = one(choices, [each for each in nodes(model) if each.op_type in alike])
    assert isinstance(node, onnx.NodeProto)
    node.op_type = pick(choices, alike[node.op_type])


def _copy_branch(choices: Choices, model: onnx.ModelProto) -> None:
    """Duplicate a node; one reader or a graph output uses the copy."""
    graph = a_graph(choices, model)
    node = a_node(choices, graph)
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.name = f"{node.name}_again" if node.name else ""
    copy.output[:] = [f"{name}_again" if name else "" for name in node.output]
    if not node.output or not node.output[0]:
        raise NoSuchPart
    readers = [each for each in graph.node if node.output[0] in each.input]
    graph.node.insert(next(at for at, each in enumerate(graph.node) if each == node) + 1, copy)
    if readers and chance(choices, 70):
        reader = pick(choices, readers)
        reader.input[:] = [copy.output[0] if name == node.output[0] else name for name in reader.input]
    else:
        graph.output.append(helper.make_empty_tensor_value_info(copy.output[0]))


def _swap_inputs(choices: Choices, model: onnx.ModelProto) -> None:
    node = one(choices, [each for each in nodes(model) if len(each.input) > 1])
    assert isinstance(node, onnx.NodeProto)
    node.input[:] = shuffled(choices, list(node.input))


def _read_another(choices: Choices, model: onnx.ModelProto) -> None:
    """Connect a node to another value of the same declared shape, or to any value."""
    graph = a_graph(choices, model)
    node = a_node(choices, graph)
    if not node.input:
        raise NoSuchPart
    names = [*computed(graph), *(each.name for each in (*graph.input, *graph.initializer))]
    node.input[choices.number(0, len(node.input) - 1)] = pick(choices, names)


def _absent_input(choices: Choices, model: onnx.ModelProto) -> None:
    node = one(choices, [each for each in nodes(model) if each.input])
    assert isinstance(node, onnx.NodeProto)
    if chance(choices, 50):
        node.input.append("")
    else:
        node.output.append("")


def _more_outputs(choices: Choices, model: onnx.ModelProto) -> None:
    """Add a graph output for an inner value, an input, an initializer or an existing output."""
    graph = a_graph(choices, model)
    names = [*computed(graph), *(each.name for each in (*graph.input, *graph.initializer))]
    name = str(one(choices, names))
    known = {each.name: each for each in (*graph.input, *graph.value_info, *graph.output)}
    if name in known and chance(choices, 60):
        graph.output.append(known[name])
    elif chance(choices, 80):
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    else:
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [pick(choices, EXTENTS)]))


def _fewer_outputs(choices: Choices, model: onnx.ModelProto) -> None:
    if not model.graph.output:
        raise NoSuchPart
    del model.graph.output[choices.number(0, len(model.graph.output) - 1)]


def _more_inputs(choices: Choices, model: onnx.ModelProto) -> None:
    name = pick(choices, ("unused", "other input"))  # ONNX Runtime takes an unnamed one, too; layoutopt refuses it
    kind = pick(choices, (TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT16))
    shape = [pick(choices, EXTENTS[1:8]) for _ in range(choices.number(0, 3))]
    model.graph.input.append(helper.make_tensor_value_info(name, kind, shape if chance(choices, 80) else None))


def _sequence_output(choices: Choices, model: onnx.ModelProto) -> None:
    name = str(one(choices, computed(model.graph)))
    model.graph.node.append(helper.make_node("SequenceConstruct", [name], ["list of it"]))
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    type_ = helper.make_sequence_type_proto(inner)
    model.graph.output.append(helper.make_value_info("list of it", type_))


def _into_function(choices: Choices, model: onnx.ModelProto) -> None:
    """Move a node into a function, which may have unusual declarations."""
    graph = a_graph(choices, model)
    node = a_node(choices, graph)
    if any(attribute.HasField("g") for attribute in node.attribute) or not all((*node.input, *node.output)):
        raise NoSuchPart
    name = f"f{len(model.functions)}"
    inputs = [f"i{place}" for place in range(len(node.input))]
    outputs = [f"o{place}" for place in range(len(node.output))]
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    inner.input[:], inner.output[:] = inputs, outputs
    opsets = [onnx.OperatorSetIdProto.FromString(each.SerializeToString()) for each in model.opset_import]
    if chance(choices, 25) and opsets:
        opsets[0].version = pick(choices, (13, 15, 17, 18, 19, 21))
    function = helper.make_function("made.up", name, inputs, outputs, [inner], opsets)
    if chance(choices, 30):
        function.value_info.append(helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, [7]))
    if chance(choices, 15):
        function.input.append("extra")
    if chance(choices, 10):
        function.doc_string = "unused"
    model.functions.append(function)
    if all(each.domain != "made.up" for each in model.opset_import) and chance(choices, 90):
        model.opset_import.add(domain="made.up", version=1)
    model.ir_version = max(model.ir_version, 8)
    if chance(choices, 85):
        node.op_type, node.domain = name, "made.up"
        del node.attribute[:]


def _into_branch(choices: Choices, model: onnx.ModelProto) -> None:
    """Move a node into both branches of an If that captures its operands."""
    graph = model.graph
    node = a_node(choices, graph)
    if not node.output or not all(node.output) or any(attribute.HasField("g") for attribute in node.attribute):
        raise NoSuchPart
    branches = []
    for label in ("then", "else"):
        inner = onnx.NodeProto.FromString(node.SerializeToString())
        inner.name = f"{node.name}_{label}" if node.name else ""
        inner.output[:] = [f"{name}_{label}" for name in node.output]
        infos = [helper.make_empty_tensor_value_info(name) for name in inner.output]
        if chance(choices, 20):
            infos[0] = helper.make_tensor_value_info(inner.output[0], TensorProto.FLOAT, [pick(choices, EXTENTS)])
        branches.append(helper.make_graph([inner], label, [], infos))
    if all(tensor.name != "condition" for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(np.array(chance(choices, 50)), "condition"))
        if chance(choices, 50):
            del graph.initializer[-1]
            graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
    place = next(at for at, each in enumerate(graph.node) if each == node)
    outputs = list(node.output)
    del graph.node[place]
    graph.node.insert(
        place, helper.make_node("If", ["condition"], outputs, then_branch=branches[0], else_branch=branches[1])
    )


WIRING: tuple[Edit, ...] = (
    *(
        _shuffle,
        _bypass,
        _bypass,
        _insert,
        _insert,
        _another_op,
        _copy_branch,
        _swap_inputs,
        _read_another,
        _absent_input,
    ),
    *(_more_outputs, _fewer_outputs, _more_inputs, _sequence_output, _into_function, _into_branch),
)


MUTATIONS: tuple[Edit, ...] = (
    *WIRING,
    *(_declare_shape, _declare_shape, _wrong_output_shape, _wrong_output_shape, _forget_declarations),
    *(_symbolic_input, _other_extent, _repeat_initializer, _data_in_another_field, _initializer_as_input),
    *(_initializer_as_constant, _initializer_in_bodies, _odd_names, _retype, _another_shape_operand),
    *(_another_weight, _near_version, _drop_names, _metadata, _broken_but_unused),
)
