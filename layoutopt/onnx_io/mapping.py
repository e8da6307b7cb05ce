"""Weights that stay in their files: an access maps the elements, so memory holds only those that are in use.

A message is parsed without its large weights, which become external data in the message's own file:

    ModelProto.graph.initializer.raw_data  -->  ModelProto.graph.initializer.external_data: file, offset, length

A file stays open as long as a tensor of it is used, so that it may be replaced or removed.
"""

import math
import mmap
import os
from collections.abc import Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from msgspec import field

from layoutopt.errors import ModelError
from layoutopt.ir.types import Array
from layoutopt.record import Record

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""The numbers of the fields of ModelProto, GraphProto and TensorProto."""
LARGE = 1 << 16
"""Bytes from which on a weight is mapped; smaller ones are copied when the model is read."""

INSIDE = f"\0{os.urandom(8).hex()}"
"""The location of external data that is in the model file itself: no path, and no text that a file could contain."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_MAX_SHIFT = 63
KNOWN_TYPES = {int(each) for each in ir.DataType} & {*onnx.TensorProto.DataType.values()} - {onnx.TensorProto.UNDEFINED}
"""The numbers of the element types that onnx and onnx_ir define."""
_PLAIN = {"dims", "data_type", "name", "doc_string", "metadata_props"}


class _OpenFile(FileIO):
    """A file that is closed, without a warning, when no tensor of it is used."""

    def __del__(self) -> None:
        self.close()


class WeightFile(Record, eq=False):
    """An open file with weights.

    Attributes:
        path: its path.
        file: the file, of which there is one object: tensors that are copied share it.
        is_model: whether it is the file of the model itself.
        state: its size and the time of its last change, when it was opened.
        last: the last mapped bytes, by offset and length: several samples of a weight are taken one after the other.
    """

    path: Path
    file: FileIO
    is_model: bool
    state: tuple[int, int]
    last: dict[tuple[int, int], Array] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, *, is_model: bool = False) -> "WeightFile":
        """Open a file; OSError if it cannot be read."""
        file = _OpenFile(path)
        return cls(path, file, is_model, _state(file))

    def content(self, offset: int = 0, length: int | None = None) -> Array:
        """The mapped bytes, which stay mapped as long as the array is used or is the last one; all bytes by default.

        Raises:
            ModelError: the file was changed in place since it was opened.
        """
        if _state(self.file) != self.state:
            what = "has changed since it was read, and contains weights of a model in use"
            raise ModelError(what, where=str(self.path), hint="read the model again")
        length = self.state[0] if length is None else length
        if not length:
            return np.empty(0, np.uint8)
        found = self.last.get((offset, length))
        if found is None:
            before = offset % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(self.file.fileno(), before + length, access=mmap.ACCESS_READ, offset=offset - before)
            found = np.frombuffer(mapped, np.uint8)[before:]
            self.last.clear()
            self.last[offset, length] = found
        return found


def _state(file: FileIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


class MappedTensor(ir.LazyTensor):
    """A tensor whose elements are in a file.

    Attributes:
        file: the file.
    """

    def __init__(self, file: WeightFile, tensor: ir.ExternalTensor) -> None:
        super().__init__(
            partial(_mapped, file, tensor),
            tensor.dtype,
            tensor.shape,
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
        self.file = file

    def __deepcopy__(self, memo: dict[int, object]) -> "MappedTensor":
        """The tensor itself, whose elements do not change."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """The tensor in memory: another process has not opened the file."""
        content = np.frombuffer(self.tobytes(), np.uint8)
        return _tensor, (content, self.dtype, self.shape, self.name, self.doc_string, dict(self.metadata_props))


def _mapped(file: WeightFile, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    return _tensor(file.content(tensor.offset or 0, tensor.nbytes), tensor.dtype, tensor.shape)


def _tensor(
    content: Array,
    dtype: ir.DataType,
    shape: ir.Shape,
    name: str | None = None,
    doc_string: str | None = None,
    metadata_props: dict[str, str] | None = None,
) -> ir.TensorProtocol:
    """The tensor with the given bytes."""
    texts: Any = {"name": name, "doc_string": doc_string, "metadata_props": metadata_props}
    if dtype.bitwidth < 8:
        return ir.PackedTensor(content, dtype, shape=shape, **texts)
    array = content.view(np.dtype(dtype.numpy()).newbyteorder("<")).reshape(shape.numpy())
    return ir.Tensor(array, dtype, **texts)


def without_weights(content: memoryview) -> bytes | memoryview:
    """The message of a model file with its large weights as external data in the file itself, at the location `INSIDE`.

    The content itself if there are none, or it is no message.
    """
    if len(content) < LARGE:
        return content
    try:
        return b"".join(_replaced(content, 0, len(content), [GRAPH, INITIALIZER]))
    except (IndexError, DecodeError):
        return content


def _replaced(content: memoryview, start: int, end: int, path: list[int]) -> Iterator[bytes | memoryview]:
    """The fields of a message; in those of the first number of `path`, its further numbers are replaced, and last a tensor."""
    for number, begin, first, last in _fields(content, start, end):
        if number != path[0] or last - first < LARGE:
            yield content[begin:last]
        else:
            inner = path[1:]
            new = b"".join(_replaced(content, first, last, inner)) if inner else _external(content, first, last)
            yield header(number, len(new))
            yield new


def _external(content: memoryview, start: int, end: int) -> bytes | memoryview:
    """A tensor as external data, if it has nothing but as many bytes of elements as its shape requires."""
    found = [each for each in _fields(content, start, end) if each[0] == RAW_DATA]
    if len(found) != 1:
        return content[start:end]
    ((_, begin, first, last),) = found
    tensor = onnx.TensorProto.FromString(bytes(content[start:begin]) + bytes(content[last:end]))
    is_plain = {field.name for field, _ in tensor.ListFields()} <= _PLAIN
    if not is_plain or last - first != nbytes(tensor):
        return content[start:end]
    for key, value in (("location", INSIDE), ("offset", str(first)), ("length", str(last - first))):
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    return bytes(tensor.SerializeToString())


def nbytes(tensor: onnx.TensorProto) -> int:
    """The bytes of the elements of a tensor; 0 for strings and unknown types."""
    is_known = tensor.data_type in KNOWN_TYPES and tensor.data_type != onnx.TensorProto.STRING
    return math.ceil(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth / 8) if is_known else 0


def _fields(content: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a serialised message: number, begin of the field, begin and end of its value.

    Raises:
        IndexError: it is no message.
    """
    at = start
    while at < end:
        begin = at
        tag, at = _varint(content, at)
        kind, first = tag & 7, at
        if kind == _BYTES:
            size, first = _varint(content, at)
            at = first + size
        elif kind == _VARINT:
            _, at = _varint(content, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise IndexError(f"wire type {kind}")
        if at > end or not tag >> 3:
            raise IndexError("a field exceeds its message, or has no number")
        yield tag >> 3, begin, first, at


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    value = shift = 0
    while (byte := content[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > _MAX_SHIFT:
            raise IndexError("a number of more than 64 bits")
    return value | byte << shift, at + 1


def header(number: int, size: int) -> bytes:
    """The bytes before a message or bytes of the given size, in the field of the given number."""
    return _encoded(number << 3 | _BYTES) + _encoded(size)


def _encoded(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
