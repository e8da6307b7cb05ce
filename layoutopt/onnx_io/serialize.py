"""Serialises a model as a protobuf message: with its weights, for external data, or without weights for onnx's C++ functions.

onnx_ir writes an external tensor as a reference to the file that it was read from, which is valid only if model and file stay
in one folder. Here the caller determines the file of each tensor; all other tensors are stored in the message.

onnx's C++ functions take a serialised model, which may not be larger than 2 GB, and copy it. In a weightless model an
initializer above a threshold becomes an input of the main graph with its type and shape, also one of a subgraph, which can read
the values of the main graph.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError, Message  # type: ignore[import-untyped]

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.onnx_io.inlining import MAX_INFERRED_OPS, incompatibility, is_too_large
from layoutopt.onnx_io.messages import display_name, graphs, keep_last, keep_messages, nested, nodes, restore_map_types
from layoutopt.onnx_io.schema import check_inference, check_structure, is_onnxruntime_op, opsets_of
from layoutopt.onnx_io.vocabulary import external_tensor
from layoutopt.runtime.errors import raise_if_out_of_memory

_LIMIT = 2**31 - 1  # bytes, the largest message of protobuf
IN_ONE_FILE = 1_900_000_000  # bytes of weights, below protobuf's limit by a margin for the rest of the message


def weights(model: ir.Model) -> list[tuple[ir.Value, ir.TensorProtocol]]:
    """Every initializer of the model, its subgraphs included, in a stable order."""
    found = ((value, value.const_value) for graph in model.graphs() for value in graph.initializers.values())
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
        OutOfMemoryError: there is too little memory for the message.
    """
    too_large = OutputError("is larger than the 2 GB of one file", where="model", hint="write external data")
    size = sum(tensor.nbytes for value, tensor in weights(model) if value not in (external or {}))
    if size > _LIMIT:
        raise too_large
    try:
        return bytes(to_proto(model, external).SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        if size < IN_ONE_FILE:  # protobuf raises the same error where it cannot allocate the bytes
            raise_if_out_of_memory(MemoryError(str(error)), "model")
        raise too_large from error


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
