"""Serialises a model as a protobuf message: with its weights, for external data, or without weights for onnx's C++ functions.

The caller determines the file of each external tensor; all other tensors are stored in the message. Its bytes are written in
pieces, so that only one large weight at a time is in memory:

    ModelProto { .. graph { node, name, initializer { dims .. name, raw_data, doc_string .. } .. , input .. } .. }

onnx's C++ functions take a serialised model, which may not be larger than 2 GB, and copy it. In a weightless model an
initializer above a threshold becomes an input of the main graph with its type and shape, also one of a subgraph, which can read
the values of the main graph.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError, Message  # type: ignore[import-untyped]

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.ir.constants import chunks
from layoutopt.onnx_io.inlining import MAX_INFERRED_OPS, incompatibility, is_too_large
from layoutopt.onnx_io.mapping import GRAPH, INITIALIZER, LARGE, RAW_DATA, header
from layoutopt.onnx_io.messages import display_name, graphs, keep_last, keep_messages, nested, nodes, restore_map_types
from layoutopt.onnx_io.schema import check_inference, check_structure, is_onnxruntime_op, opsets_of
from layoutopt.onnx_io.vocabulary import StreamedTensor, external_tensor, graphs_of

_LIMIT = 2**31 - 1  # bytes, the largest message of protobuf
IN_ONE_FILE = 1_900_000_000  # bytes of weights, below protobuf's limit by a margin for the rest of the message


def weights(model: ir.Model) -> list[tuple[ir.Value, ir.TensorProtocol]]:
    """Every initializer of the model, its subgraphs included, in a stable order."""
    found = ((value, value.const_value) for graph in graphs_of(model) for value in graph.initializers.values())
    return [(value, tensor) for value, tensor in found if tensor is not None]


def weight_bytes(model: ir.Model) -> int:
    """The size of all initializers of the model, its subgraphs included, in bytes."""
    return sum(tensor.nbytes for _, tensor in weights(model))


def to_bytes(model: ir.Model, external: Mapping[ir.Value, ir.ExternalTensor] | None = None) -> bytes:
    """The serialised model, which is equal for equal models.

    Args:
        model: the model; unchanged afterwards.
        external: the initializers that are not in the message, with their external tensors.

    Raises:
        OutputError: the message would be larger than protobuf allows.
    """
    content = BytesIO()
    write_message(model, content, external)
    return content.getvalue()


def write_message(model: ir.Model, file: BinaryIO, external: Mapping[ir.Value, ir.ExternalTensor] | None) -> None:
    """Write the serialised model; the arguments are those of `to_bytes`.

    Raises:
        OutputError: the message would be larger than protobuf allows.
    """
    too_large = OutputError("is larger than the 2 GB of one file", where="model", hint="write external data")
    inside = (value for value in model.graph.initializers.values() if value not in (external or {}))
    large = {
        value: tensor
        for value in inside
        if (tensor := value.const_value) is not None and tensor.nbytes >= LARGE and tensor.dtype != ir.DataType.STRING
    }
    placeholders = {value: external_tensor(tensor, "", name=value.name or "") for value, tensor in large.items()}
    try:
        proto = to_proto(model, {**(external or {}), **placeholders})
        pieces = _in_graph(proto, {value.name or "": tensor for value, tensor in large.items()})
    except (EncodeError, ValueError) as error:
        raise too_large from error
    if _size(pieces) > _LIMIT:
        raise too_large
    for each in pieces:
        if isinstance(each, bytes):
            file.write(each)
        else:
            write_tensor(each, file)


Piece: TypeAlias = bytes | ir.TensorProtocol


def _in_graph(proto: onnx.ModelProto, large: Mapping[str, ir.TensorProtocol]) -> list[Piece]:
    """The bytes of a message, with large initializers, which are external data in the message, as pieces of their own."""
    initializers: list[Piece] = []
    for tensor in proto.graph.initializer:
        inner: list[Piece] = [_serialized(tensor)]
        if tensor.name in large:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            weight = large[tensor.name]
            inner = _around(tensor, RAW_DATA, [header(RAW_DATA, weight.nbytes), weight])
        initializers += [header(INITIALIZER, _size(inner)), *inner]
    graph = _around(proto.graph, INITIALIZER, initializers)
    return _around(proto, GRAPH, [header(GRAPH, _size(graph)), *graph])


def _around(message: Any, number: int, pieces: list[Piece]) -> list[Piece]:
    """The fields of a message, with `pieces` in place of the field of a number."""
    before, behind = type(message)(), type(message)()
    for part, is_in in ((before, number.__gt__), (behind, number.__lt__)):
        part.CopyFrom(message)
        for field, _ in message.ListFields():
            if not is_in(field.number):
                part.ClearField(field.name)
    return [_serialized(before), *pieces, _serialized(behind)]


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _size(pieces: Iterable[Piece]) -> int:
    return sum(len(each) if isinstance(each, bytes) else each.nbytes for each in pieces)


def _has_whole_bytes(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8 and sys.byteorder == "little"


def write_tensor(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    """Write the elements of a tensor, in pieces where it is a part of a file or is packed."""
    if not _has_whole_bytes(tensor):
        file.write(tensor.tobytes())
        return
    for chunk in chunks(tensor.data if isinstance(tensor, StreamedTensor) else tensor):
        file.write(chunk.reshape(-1).view(np.uint8).data)


def to_proto(model: ir.Model, external: Mapping[ir.Value, ir.ExternalTensor] | None = None) -> onnx.ModelProto:
    """The message of a model, with all initializers that are not in `external`."""
    external = external or {}
    placed = {value: external[value] if value in external else embedded(tensor) for value, tensor in weights(model)}
    with _temporary_tensors(placed):
        try:
            proto = ir.serde.serialize_model(model)
            restore_map_types(proto.graph, model.graph)
        except ir.serde.SerdeError as error:
            raise _innermost(error) from error
    for graph in graphs(proto):
        for tensor in graph.initializer:
            keep_last(tensor.metadata_props, "key")  # onnx_ir writes those of a tensor from a message twice
        # onnx_ir declares the types of constants when it has read a file.
        constants = {tensor.name for tensor in graph.initializer}
        keep_messages(graph.value_info, [info for info in graph.value_info if info.name not in constants])
    return proto


def embedded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor that is written with its elements."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.LazyTensor(lambda: tensor, tensor.dtype, tensor.shape, name=tensor.name, doc_string=tensor.doc_string)


@contextmanager
def _temporary_tensors(tensors: Mapping[ir.Value, ir.TensorProtocol]) -> Iterator[None]:
    """Set other tensors as the constants of values within a context."""
    before = [(value, value.const_value) for value in tensors]
    try:
        for value in tensors:
            value.const_value = tensors[value]
        yield
    finally:
        for value, tensor in before:
            value.const_value = tensor


def _innermost(error: BaseException) -> BaseException:
    """The error from which onnx_ir raised an error."""
    while error.__cause__ is not None and not isinstance(error, LayoutoptError):
        error = error.__cause__
    return error


UNCHECKED_DOMAIN = "com.microsoft"  # onnx's checker ignores ops of this domain
_SMALL = 1024  # bytes; shapes, axes, pads and sizes, which data propagation reads, are smaller


def weightless_message(model: ir.Model, *, small: int = _SMALL) -> onnx.ModelProto:
    """The message of a model without its large weights. All graphs and nodes have names, for errors."""
    large = ((value, tensor) for value, tensor in weights(model) if tensor.nbytes > small)
    placeholders = {value: external_tensor(tensor, "", name=value.name or "") for value, tensor in large}
    proto = to_proto(model, placeholders)
    # onnx's checker refuses an operator that differs between the opsets of function and model. Without the function, its calls
    # are operators of a domain without schemas in onnx. So are calls of large functions, which onnx infers again for each call.
    is_large = is_too_large(model, model.functions, MAX_INFERRED_OPS)
    dropped = [key for key, function in model.functions.items() if is_large or incompatibility(function, model)]
    functions = [each for each in proto.functions if (each.domain, each.name, each.overload) not in dropped]
    keep_messages(proto.functions, functions)
    inputs = {info.name for info in proto.graph.input}
    for graph in nested([proto.graph]):
        kept = []
        for tensor in graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                kept.append(tensor)
            elif tensor.name not in inputs:
                inputs.add(tensor.name)
                proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        keep_messages(graph.initializer, kept)
    for graph in graphs(proto):
        graph.name = graph.name or "graph"
    for node in nodes(proto):
        node.name = display_name(node)
    _move_unknown_ops(proto)
    return proto


def _move_unknown_ops(proto: onnx.ModelProto) -> None:
    """Move operators of ai.onnx without an onnx schema to a domain that onnx does not check."""
    version = opsets_of({each.domain: each.version for each in proto.opset_import}).get("", 0)
    moved = [node for node in nodes(proto) if is_onnxruntime_op(node.domain, node.op_type, version)]
    for node in moved:
        node.domain = UNCHECKED_DOMAIN
    for importer in (proto, *proto.functions) if moved else ():
        if all(opset.domain != UNCHECKED_DOMAIN for opset in importer.opset_import):
            importer.opset_import.add(domain=UNCHECKED_DOMAIN, version=1)


_WITH_WEIGHTS = 1 << 22  # bytes; the checker copies the message, and takes 1.7 s for 106 MB


def check(model: ir.Model) -> None:
    """Run onnx's shape inference and checker, with the weights if they are small.

    Raises:
        ModelError: one of them refuses the model; the message is onnx's, on one line.
    """
    proto = weightless_message(model, small=_WITH_WEIGHTS if weight_bytes(model) <= _WITH_WEIGHTS else _SMALL)
    check_inference(proto)
    check_structure(proto)


_CONTENT_UP_TO = 4096  # bytes; smaller constants, such as shapes, axes and scales, count with their elements


def fingerprint(model: ir.Model) -> str:
    """The SHA-256 of nodes, attributes, names, input and output types and small initializers, as hex digits.

    Large initializers count with their name, element type and shape only. Documentation and metadata do not
    count, nor do types of intermediate values, as they follow from the rest.
    """
    proto = weightless_message(model, small=_CONTENT_UP_TO)
    _strip(proto)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


_NOT_COUNTED = frozenset({"doc_string", "metadata_props", "quantization_annotation", "value_info"})


def _strip(message: Any) -> None:
    """Clear the fields that do not count in a message and the messages in it."""
    for field, value in message.ListFields():
        if field.name in _NOT_COUNTED:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                _strip(part)
