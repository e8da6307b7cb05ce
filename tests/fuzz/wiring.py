"""Mutations of how the nodes of a model are connected: nodes dropped, inserted, copied, moved into functions and branches."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .choices import Choices, chance, pick, shuffled
from .messages import Edit, NoSuchPart, nodes
from .parts import EXTENTS, a_graph, a_node, computed, one, rewire

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
