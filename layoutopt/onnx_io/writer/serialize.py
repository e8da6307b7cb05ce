"""Serialises a model as a protobuf message, with each tensor in the message or in a file of external data.

onnx_ir writes an external tensor as a reference to the file that it was read from, which is valid only if model and file stay
in one folder. Here the caller determines the file of each tensor; all other tensors are stored in the message.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.onnx_io.reader.lossless import graphs
from layoutopt.onnx_io.sidecar import write_sidecar
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
            write_sidecar(proto, model)
        except ir.serde.SerdeError as error:
            raise _innermost(error) from error
    for graph in graphs(proto):
        for tensor in graph.initializer:
            _drop_repeated_metadata(tensor)
    return proto


def embedded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor that is written with its elements."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.LazyTensor(
        partial(_same, tensor), tensor.dtype, tensor.shape, name=tensor.name, doc_string=tensor.doc_string
    )


def _same(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


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


def _drop_repeated_metadata(tensor: onnx.TensorProto) -> None:
    """Drop repeated metadata: onnx_ir writes that of a tensor that was read from a message twice."""
    entries = {prop.key: prop.value for prop in tensor.metadata_props}
    if len(entries) < len(tensor.metadata_props):
        del tensor.metadata_props[:]
        for key, value in entries.items():
            tensor.metadata_props.add(key=key, value=value)
