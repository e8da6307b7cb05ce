"""Mutations of a model, valid and invalid ones: of one field of one message, or of structure as by editors and exporters.

Few models run after a change of a field, most run after the other mutations; examples have both.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from .choices import Choices, chance, pick, shuffled

T = TypeVar("T")
Edit = Callable[[Choices, onnx.ModelProto], None]

EXTENTS = (0, 1, 2, 3, 5, 7, 8, 12, 16, 31, -1)
_NUMBERS = (*EXTENTS, -2, 17, 100, -100, 1 << 16, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -1.0, 0.5, 1e30, -1e30, float("nan"), float("inf"))
_RANGES = {"data_type": 28, "elem_type": 28, "type": 14, "data_location": 1, "ir_version": 13, "version": 25}
_TEXTS: dict[str, tuple[str, ...]] = {
    "op_type": tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})),
    "domain": ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "layoutopt", "elsewhere"),
    "key": ("location", "offset", "length", "layoutopt", "SCALE_TENSOR"),
    "value": (
        *("missing", "../weights", "/etc/hostname", "weights", "", ".", "weights/x", "a" * 300, "we\0ights", "link"),
        *("folder", "{", "null", "[1]", *map(str, _NUMBERS)),
    ),
    "dim_param": ("N", "", "N+1", "unk__0", "?1", "-1", "é"),
    "": ("", "nowhere", "a b", "é", "x\ny", "\0", "\x1b[31m", "a" * 300, "axis", "axes", "pads", "value", "to", "perm"),
}
_BYTES = (b"", b"SAME_UPPER", b"constant", b"nearest", b"\xff\xff", b"ij,jk->ik")
_LARGEST = 20_000  # bytes of a message that is put into another one


class NoSuchPart(Exception):  # noqa: N818  -- not an error
    """The model has no part of the required kind."""


def damage(choices: Choices, model: onnx.ModelProto) -> None:
    """Change a few fields."""
    for _ in range(pick(choices, (1, 1, 1, 2, 3))):
        try:
            change_field(choices, model)
        except (NoSuchPart, ValueError):
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


# --- one field of one message ---


def change_field(choices: Choices, model: onnx.ModelProto) -> None:
    """Another value, an element more or fewer, another order, or nothing, in any field of a message of any type."""
    found: dict[str, list[Message]] = {}
    _collect(model, found)
    message = pick(choices, found[pick(choices, sorted(found))])
    present = [field for field, _ in message.ListFields()]
    field = pick(choices, present if present and chance(choices, 85) else list(message.DESCRIPTOR.fields))
    if not field.is_repeated:
        if chance(choices, 20):
            message.ClearField(field.name)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(_value(choices, model, found, message, field))
        else:
            setattr(message, field.name, _value(choices, model, found, message, field))
        return
    items = [_copy(item) for item in getattr(message, field.name)]
    place = choices.number(0, len(items) - 1) if items else 0
    way = choices.number(0, 6) if items else 0
    if way <= 1:
        items.insert(choices.number(0, len(items)), _value(choices, model, found, message, field))
    elif way == 2:
        items[place] = _value(choices, model, found, message, field)
    elif way == 3:
        del items[place]
    elif way == 4:
        items.insert(place, _copy(items[place]))
    elif way == 5:
        items.append(items.pop(place))
    else:
        del items[place:]
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _collect(message: Message, found: dict[str, list[Message]]) -> None:
    """All messages in a message, by type."""
    found.setdefault(message.DESCRIPTOR.name, []).append(message)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                _collect(each, found)


def _copy(value: Any) -> Any:
    return type(value).FromString(value.SerializeToString()) if isinstance(value, Message) else value


def _value(
    choices: Choices, model: onnx.ModelProto, found: dict[str, list[Message]], message: Message, field: FieldDescriptor
) -> Any:
    """A value for a field: one that the model has elsewhere, or an unusual one."""
    if field.message_type is not None:
        donor = _one(choices, found.get(field.message_type.name, []))
        if donor.ByteSize() > _LARGEST:
            raise NoSuchPart
        return _copy(donor)
    if field.type == FieldDescriptor.TYPE_STRING:
        names = [name for graph in graphs(model) for name in (*_named(graph), *_computed(graph))]
        return pick(choices, [*_TEXTS.get(field.name, (*names, *_TEXTS[""]))])
    if field.type == FieldDescriptor.TYPE_BYTES:
        content = getattr(message, field.name)
        if field.name != "raw_data" or not content:
            return pick(choices, _BYTES)
        if chance(choices, 30):
            return content[: choices.number(0, 40)]
        start = choices.number(0, max(len(content) // 8 - 1, 0)) * 8
        word = pick(choices, _NUMBERS).to_bytes(8, "little", signed=True)
        return (content[:start] + word + content[start + 8 :])[: len(content)]
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return pick(choices, _FLOATS)
    return choices.number(0, _RANGES[field.name]) if field.name in _RANGES else pick(choices, _NUMBERS)


# --- structure ---


def _one(choices: Choices, found: Sequence[T]) -> T:
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


def _computed(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]


def rewire(graph: onnx.GraphProto, old: str, new: str, but: onnx.NodeProto | None = None) -> None:
    for node in graph.node:
        if but is None or node != but:
            node.input[:] = [new if name == old else name for name in node.input]


def _named(graph: onnx.GraphProto) -> list[str]:
    """The names of inputs and initializers."""
    return [each.name for each in (*graph.input, *graph.initializer)]


def mutate(choices: Choices, model: onnx.ModelProto) -> list[str]:
    """Mutate a model in place, and return the names of the mutations."""
    done = []
    for _ in range(pick(choices, (1, 1, 1, 2, 3))):
        edit = pick(choices, MUTATIONS) if chance(choices, 70) else change_field
        try:
            edit(choices, model)
        except (NoSuchPart, ValueError):  # an unusual name is not valid text
            continue
        done.append(edit.__name__.strip("_"))
    return done


def _declare_shape(choices: Choices, model: onnx.ModelProto) -> None:
    """Declare a shape of a computed value, probably a wrong one, sometimes in addition to another one."""
    graph = a_graph(choices, model)
    name = _one(choices, [*_computed(graph), *(each.name for each in (*graph.input, *graph.initializer))])
    kind = TensorProto.FLOAT if chance(choices, 90) else choices.number(1, 16)
    rank = choices.number(0, 5)
    shape = [pick(choices, EXTENTS) if chance(choices, 80) else "N" for _ in range(rank)]
    graph.value_info.append(helper.make_tensor_value_info(str(name), kind, shape))


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


def _rename(choices: Choices, model: onnx.ModelProto) -> None:
    """Rename a value everywhere."""
    old = str(_one(choices, _computed(model.graph)))
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
    name = str(_one(choices, _computed(graph)))
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
    node = _one(choices, [each for each in nodes(model) if each.op_type in alike])
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


def _more_outputs(choices: Choices, model: onnx.ModelProto) -> None:
    """Add a graph output for an inner value, an input, an initializer or an existing output."""
    graph = a_graph(choices, model)
    names = [*_computed(graph), *(each.name for each in (*graph.input, *graph.initializer))]
    name = str(_one(choices, names))
    known = {each.name: each for each in (*graph.input, *graph.value_info, *graph.output)}
    if name in known and chance(choices, 60):
        graph.output.append(known[name])
    elif chance(choices, 80):
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    else:
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [pick(choices, EXTENTS)]))


def _more_inputs(choices: Choices, model: onnx.ModelProto) -> None:
    name = pick(choices, ("unused", "other input"))  # ONNX Runtime takes an unnamed one, too; layoutopt refuses it
    kind = pick(choices, (TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT16))
    shape = [pick(choices, EXTENTS[1:8]) for _ in range(choices.number(0, 3))]
    model.graph.input.append(helper.make_tensor_value_info(name, kind, shape if chance(choices, 80) else None))


def _sequence_output(choices: Choices, model: onnx.ModelProto) -> None:
    name = str(_one(choices, _computed(model.graph)))
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
    *(_shuffle, _bypass, _bypass, _insert, _insert, _another_op, _copy_branch, _more_outputs),
    *(_more_inputs, _sequence_output, _into_function, _into_branch),
)
MUTATIONS: tuple[Edit, ...] = (
    *WIRING,
    *(_declare_shape, _declare_shape, _forget_declarations, _symbolic_input, _initializer_as_input),
    *(_initializer_as_constant, _rename, _retype),
)
