"""Checks of the tensors in a file: the number of elements, their type, and the location of external data.

Only sizes are read, except for tensors of attributes in external data: their elements are copied into the message, because
attributes are written unchanged, and the model may be written to another folder than their file.
"""

import math
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.onnx_io.reader.external import DataFolder
from layoutopt.onnx_io.reader.lossless import display_name, graphs, nodes

_KEYS = {"location", "offset", "length", "checksum", "basepath"}
DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")
_MAX_ELEMENTS = 2**59  # of 16 bytes each, in an address space of 63 bits
_HINT = "export the model again"


def check_and_embed_tensors(proto: onnx.ModelProto, folder: DataFolder) -> None:
    """Check every tensor of a model, and copy empty external tensors and those of attributes into the message.

    Raises:
        ModelError: data does not match the shape, or external data is missing, short or outside `folder`.
    """
    for graph in graphs(proto):
        for tensor in graph.initializer:
            check_tensor(tensor, tensor.name, folder)
    for node in nodes(proto):
        for tensor in _attribute_tensors(node):
            where = tensor.name or display_name(node)
            check_tensor(tensor, where, folder)
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _embed_external(tensor, folder)


def _attribute_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attr in node.attribute:
        if attr.HasField("t"):
            yield attr.t
        yield from attr.tensors


def check_tensor(tensor: onnx.TensorProto, where: str, folder: DataFolder) -> None:
    """Check one tensor, whose elements may be in a file of `folder`.

    Raises:
        ModelError: as for `check_and_embed_tensors`.
    """
    if tensor.data_type not in set(ir.DataType) - {ir.DataType.UNDEFINED}:
        raise ModelError(f"element type {tensor.data_type} is unknown", where=where, hint="upgrade the onnx package")
    if tensor.HasField("segment"):
        raise ModelError("tensors in segments are not supported", where=where, hint=_HINT)
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"shape {list(tensor.dims)} is negative", where=where, hint=_HINT)
    dtype, count = ir.DataType(tensor.data_type), math.prod(tensor.dims)
    if (
        math.prod(max(dim, 1) for dim in tensor.dims) > _MAX_ELEMENTS
    ):  # numpy limits this product, even if an extent is 0
        raise ModelError(f"shape {list(tensor.dims)} is too large for any memory", where=where, hint=_HINT)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(tensor, dtype, _nbytes(dtype, count), where, folder)
        return
    if any(len(getattr(tensor, name)) for name in DATA_FIELDS if name != data_field(tensor)):
        raise ModelError(f"{dtype.name.lower()} data is in a field for other types", where=where, hint=_HINT)
    expected, found = _expected_and_found(tensor, dtype, count)
    if expected != found:
        raise ModelError(
            f"{dtype.name.lower()}{list(tensor.dims)} needs {expected} {_unit(tensor)} of data, has {found}",
            where=where,
            hint=_HINT,
        )


def size_of(tensor: onnx.TensorProto) -> int:
    """The size in bytes of the elements of a tensor; 0 if its type or shape is not valid."""
    is_valid = tensor.data_type in set(ir.DataType) - {ir.DataType.UNDEFINED} and all(dim >= 0 for dim in tensor.dims)
    return _nbytes(ir.DataType(tensor.data_type), math.prod(tensor.dims)) if is_valid else 0


def _nbytes(dtype: ir.DataType, count: int) -> int:
    return math.ceil(count * dtype.bitwidth / 8) if dtype != ir.DataType.STRING else 0


def _unit(tensor: onnx.TensorProto) -> str:
    return "bytes" if tensor.HasField("raw_data") else "elements"


def _expected_and_found(tensor: onnx.TensorProto, dtype: ir.DataType, count: int) -> tuple[int, int]:
    """The size of the data by the shape, and the size found, in bytes or in elements of the data field."""
    field = data_field(tensor)
    if field == "raw_data":
        return _nbytes(dtype, count), len(tensor.raw_data)
    packed = dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4)
    expected = _nbytes(dtype, count) if packed else count * (2 if "COMPLEX" in dtype.name else 1)
    return expected, len(getattr(tensor, field))


def data_field(tensor: onnx.TensorProto) -> str:
    """The field that holds the elements of a tensor that is not external data."""
    dtype = ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data") and dtype != ir.DataType.STRING:
        return "raw_data"
    match dtype.name:
        case "FLOAT" | "COMPLEX64":
            return "float_data"
        case "DOUBLE" | "COMPLEX128":
            return "double_data"
        case "INT64":
            return "int64_data"
        case "UINT32" | "UINT64":
            return "uint64_data"
        case "STRING":
            return "string_data"
    return "int32_data"


def _check_external(tensor: onnx.TensorProto, dtype: ir.DataType, nbytes: int, where: str, folder: DataFolder) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) < len(tensor.external_data):
        raise ModelError("external data has two entries of one key", where=where, hint="keep one")
    if unknown := sorted(set(entries) - _KEYS):
        raise ModelError(f"external data has an unknown key {unknown[0]!r}", where=where, hint=_HINT)
    if dtype == ir.DataType.STRING:
        raise ModelError("strings cannot be external data", where=where, hint=_HINT)
    if any(len(getattr(tensor, name)) for name in DATA_FIELDS):
        raise ModelError("has data of its own and external data too", where=where, hint=_HINT)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or nbytes)
    except ValueError as error:
        raise ModelError("offset and length of external data must be numbers", where=where, hint=_HINT) from error
    if offset < 0 or length != nbytes:
        what = f"external data at offset {offset} of {length} bytes, but its shape needs {nbytes}"
        raise ModelError(what, where=where, hint=_HINT)
    size = folder.size(entries.get("location", ""), where)
    if offset + nbytes > size:
        what = f"external data {entries['location']!r} has {size} bytes, {offset + nbytes} are needed"
        raise ModelError(what, where=where, hint="the file is truncated or of another model: copy it again")
    if nbytes == 0:  # nothing to map; onnx_ir cannot read an empty external tensor
        _embed(tensor, b"")


def _embed_external(tensor: onnx.TensorProto, folder: DataFolder) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    nbytes = _nbytes(ir.DataType(tensor.data_type), math.prod(tensor.dims))
    with (folder.path / entries["location"]).open("rb") as file:
        file.seek(int(entries.get("offset") or 0))
        _embed(tensor, file.read(nbytes))


def _embed(tensor: onnx.TensorProto, data: bytes) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = data
