"""Messages of ONNX: parsing, iteration, content that onnx_ir would lose, and map types, which are stored next to their model.

onnx_ir drops or merges some content without an error, such as a second attribute of one name, and text that is not UTF-8.
Models with such content are refused here, by name. Map types at the interface, which are the results of ZipMap, are removed
from a message before the conversion, and restored when a message is written.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from layoutopt.errors import ModelError
from layoutopt.ir.types import Op

_HINT = "export the model again"
_UNSUPPORTED = {
    onnx.AttributeProto.SPARSE_TENSOR: "a sparse tensor",
    onnx.AttributeProto.SPARSE_TENSORS: "sparse tensors",
    onnx.AttributeProto.GRAPHS: "a list of graphs",
}
_MESSAGES = {onnx.AttributeProto.TENSOR: "t", onnx.AttributeProto.GRAPH: "g", onnx.AttributeProto.TYPE_PROTO: "tp"}


def refuse_losses(proto: onnx.ModelProto) -> None:
    """Raise ModelError for the first part of a model that onnx_ir would lose."""
    if proto.training_info:
        raise ModelError(
            "training information is not supported", where="model", hint="remove it, or export for inference"
        )
    _refuse_bytes(proto)
    refuse_twice((_function_name(function) for function in proto.functions), "function", "model")
    refuse_twice((each.key for each in proto.metadata_props), "metadata key", "model")
    for function in proto.functions:
        name = _function_name(function)
        refuse_twice(function.input, "input", name)
        refuse_twice([*function.attribute, *(attr.name for attr in function.attribute_proto)], "attribute", name)
        _refuse_outputs_twice(function.input, function.node, name)
        if missing := set(function.output) - set(function.input) - _produced(function.node):
            raise ModelError(f"nothing computes output {min(missing)!r}", where=name, hint=_HINT)
    for graph in graphs(proto):
        _check_graph(graph)
    for node in nodes(proto):
        _check_node(node)
    for graph in nested([proto.graph]):
        _refuse_references(graph.node)


def _check_graph(graph: onnx.GraphProto) -> None:
    where = f"graph {graph.name!r}"
    if graph.sparse_initializer:
        raise ModelError("sparse initializers are not supported", where=where, hint="make them dense")
    if not all(tensor.name for tensor in graph.initializer):
        raise ModelError("an initializer has no name", where=where, hint=_HINT)
    refuse_twice((info.name for info in graph.input), "input", where)
    refuse_twice((tensor.name for tensor in graph.initializer), "initializer", where)
    refuse_twice((each.tensor_name for each in graph.quantization_annotation), "annotation", where)
    taken = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    _refuse_outputs_twice(taken, graph.node, where)
    inputs = {info.name: info.type for info in graph.input}
    for tensor in (tensor for tensor in graph.initializer if tensor.name in inputs):
        if contradict(inputs[tensor.name], onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))):
            raise ModelError("is declared with another type than its data has", where=tensor.name, hint=_HINT)
    if "" in taken:
        raise ModelError("an input has no name", where=where, hint=_HINT)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _check_type(info.type, info.name)
        if has_map(info.type):
            raise ModelError("maps in subgraphs are not supported", where=info.name, hint="move it to the main graph")


def contradict(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    """Whether two declared types, each possibly partial, cannot both hold for one value."""
    kinds = {each.WhichOneof("value") for each in (one, other)}
    for kind in kinds & {"sequence_type", "optional_type"} if len(kinds) == 1 else ():
        return contradict(getattr(one, kind).elem_type, getattr(other, kind).elem_type)
    if kinds - {None} != {"tensor_type"}:
        return len(kinds - {None}) > 1
    first, second = one.tensor_type, other.tensor_type
    if first.elem_type and second.elem_type and first.elem_type != second.elem_type:
        return True
    if not first.HasField("shape") or not second.HasField("shape"):
        return False
    dims = list(zip(first.shape.dim, second.shape.dim, strict=False))
    numbers = [(a.dim_value, b.dim_value) for a, b in dims if a.HasField("dim_value") and b.HasField("dim_value")]
    differ = any(a != b and min(a, b) >= 0 for a, b in numbers)  # a negative extent is unknown
    return differ or len(first.shape.dim) != len(second.shape.dim)


def _check_type(type_: onnx.TypeProto, where: str) -> None:
    type_ = _innermost(type_)
    if (kind := type_.WhichOneof("value")) in ("tensor_type", "sparse_tensor_type"):
        element = getattr(type_, kind).elem_type
        if element not in onnx.TensorProto.DataType.values():
            raise ModelError(
                f"element type {element} is unknown", where=where or "model", hint="upgrade the onnx package"
            )


def _check_node(node: onnx.NodeProto) -> None:
    where = display_name(node)
    refuse_twice((attr.name for attr in node.attribute), "attribute", where)
    for attr in node.attribute:
        if attr.type in _UNSUPPORTED:
            raise ModelError(f"attribute {attr.name!r} has {_UNSUPPORTED[attr.type]}", where=where, hint=_HINT)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in (attr.t, *attr.tensors)):
            raise ModelError(f"attribute {attr.name!r} is external data", where=where, hint="make it an initializer")
        if attr.type == onnx.AttributeProto.UNDEFINED:
            raise ModelError(f"attribute {attr.name!r} has no type", where=where, hint=_HINT)
        if attr.type in _MESSAGES and not attr.ref_attr_name and not attr.HasField(_MESSAGES[attr.type]):
            raise ModelError(f"attribute {attr.name!r} has no value", where=where, hint=_HINT)


def _refuse_references(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attr in node.attribute:
            if attr.ref_attr_name:
                what = f"attribute {attr.name!r} refers to one of a function, and is in none"
                raise ModelError(what, where=display_name(node), hint=_HINT)


def display_name(node: onnx.NodeProto | ir.Node | Op) -> str:
    """The name of a node in errors: its own, or else its op type and first output."""
    if isinstance(node, onnx.NodeProto):
        names = list(node.output)
    else:
        names = [value.name or "" for value in node.outputs if value is not None]
    return node.name or f"{node.op_type} -> {next(filter(None, names), '?')}"


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all graphs in attributes, at every depth, including those of functions."""
    yield from nested([proto.graph, *(g for function in proto.functions for g in inner_graphs(function.node))])


def nested(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.GraphProto]:
    """The given graphs and all graphs in attributes in them, at every depth."""
    pending = list(graphs)
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(inner_graphs(graph.node))


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of every graph and function."""
    for function in proto.functions:
        yield from function.node
    for graph in graphs(proto):
        yield from graph.node


def inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of nodes, without those nested in them."""
    for node in nodes:
        for attr in node.attribute:
            if attr.HasField("g"):
                yield attr.g


def _produced(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.output}


def _refuse_outputs_twice(taken: Iterable[str], nodes: Iterable[onnx.NodeProto], where: str) -> None:
    seen = dict.fromkeys(taken, where)
    for node in nodes:
        for name in node.output:
            if name and name in seen:
                raise ModelError(
                    f"{name!r} is computed by {display_name(node)!r} and defined by {seen[name]!r} too",
                    where=display_name(node),
                    hint="give every value a name of its own",
                )
            seen[name] = display_name(node)


def refuse_twice(names: Iterable[str], what: str, where: str) -> None:
    """Raise ModelError for the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{what} {name!r} occurs twice", where=where, hint="keep one")
        seen.add(name)


def _function_name(function: onnx.FunctionProto) -> str:
    return f"{function.domain}::{function.name}" + (f":{function.overload}" if function.overload else "")


def _refuse_bytes(proto: Any) -> None:
    """Raise ModelError for text that is not UTF-8, with the name of the part or of an enclosing part."""
    pending = [(proto, "model")]
    while pending:
        message, where = pending.pop()
        texts, parts = _fields(message.DESCRIPTOR)
        for name in texts:
            value = getattr(message, name)
            if isinstance(value, bytes) or (
                not isinstance(value, str) and any(isinstance(text, bytes) for text in value)
            ):
                raise ModelError(f"field {name!r} is not UTF-8 text", where=where, hint=_HINT)
            if name == "name" and value:
                where = value
        for name in parts:
            value = getattr(message, name)
            if not isinstance(value, Message):
                pending.extend((part, where) for part in value)
            elif message.HasField(name):
                pending.append((value, where))


@lru_cache(maxsize=64)
def _fields(descriptor: Descriptor) -> tuple[list[str], list[str]]:
    """The names of the text fields and of the message fields of a type."""
    kinds = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    texts, parts = ([field.name for field in descriptor.fields if field.type == kind] for kind in kinds)
    return texts, parts


def parse_message(content: bytes | memoryview, where: str = "model") -> onnx.ModelProto:
    """The message of a serialised model.

    Args:
        content: the bytes.
        where: the name of the model in errors.

    Raises:
        ModelError: the bytes are not an ONNX model.
    """
    if not content:
        raise ModelError("is empty", where=where, hint=_HINT)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        kind = _guessed_kind(content)
        hint = "fetch the file with: git lfs pull" if "Git LFS" in kind else _HINT
        raise ModelError(kind, where=where, hint=hint) from error
    if not proto.HasField("graph"):
        raise ModelError("is not an ONNX model: there is no graph in it", where=where, hint=_HINT)
    return proto


def _guessed_kind(content: bytes | memoryview) -> str:
    """An error message with the guessed kind of a file that is not a protobuf message."""
    head = bytes(content[:256]).lstrip()
    if head.lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "is not an ONNX model but a web page"
    if head.startswith(b"version https://git-lfs"):
        return "is not an ONNX model but a Git LFS pointer"
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "is not an ONNX model but text"
    return "is not an ONNX model, or is truncated"


def keep_messages(field: Any, kept: Sequence[Any]) -> None:
    """Set a repeated field to a part of its messages, in the given order."""
    if len(kept) < len(field):
        copies = [type(each).FromString(each.SerializeToString()) for each in kept]
        del field[:]
        field.extend(copies)


def keep_last(field: Any, key: str) -> None:
    """Keep the last one of the messages in a repeated field that have the same key."""
    keep_messages(field, [*{getattr(each, key): each for each in field}.values()])


MAP_TYPES = "layoutopt.map_types"
"""The key in the meta of a main graph: the types with maps of its inputs and outputs, by name."""


def remove_map_types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Remove the types with maps from a main graph, and return those of its inputs and outputs by name."""
    types: dict[str, onnx.TypeProto] = {}
    for info in (*graph.input, *graph.output):
        if has_map(info.type):
            types[info.name] = onnx.TypeProto.FromString(info.type.SerializeToString())
            info.ClearField("type")
    keep_messages(graph.value_info, [info for info in graph.value_info if not has_map(info.type)])  # they are inferred
    return types


def restore_map_types(proto: onnx.GraphProto, graph: ir.Graph) -> None:
    """Set the types with maps of a graph's inputs and outputs in its message."""
    for info in (*proto.input, *proto.output):
        if (type_ := graph.meta.get(MAP_TYPES, {}).get(info.name)) is not None:
            info.type.CopyFrom(type_)


def has_map(type_: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    return bool(_innermost(type_).HasField("map_type"))


def _innermost(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type of the elements of nested sequences and optional values."""
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    return type_
