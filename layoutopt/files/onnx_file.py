"""Locations of external data in an ONNX file, found in the protobuf wire format without reading the weights.

The content of all other fields is skipped, so that only a few pages of a large file are read. The protobuf package would copy
the whole file.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types

ByteRange: TypeAlias = tuple[int, int]
"""The start and the end of a part of the file."""

# The fields of each message that can contain external data, by number, with their message types.
CHILDREN: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
}
_GRAPH, _METADATA, _EXTERNAL_DATA = 7, 14, 13  # of ModelProto twice, of TensorProto
_LOCATION = b"location"


def external_locations(path: Path) -> list[str] | None:
    """The locations of external data in an ONNX file without duplicates; None if the file is not a readable ONNX model."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _locations(content)
    except (OSError, ValueError, IndexError):
        return None


def metadata(path: Path) -> dict[str, str]:
    """The metadata of an ONNX file; empty if the file is not a readable ONNX model."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            fields = _fields(content, (0, len(content)))
            entries = [inner for number, inner in fields if number == _METADATA]
            return {_text(content, each, 1): _text(content, each, 2) for each in entries}
    except (OSError, ValueError, IndexError):  # ValueError also for an empty file
        return {}


def is_onnx_file(path: Path) -> bool:
    """Whether a file consists of the fields of a protobuf message and has a ModelProto.graph; its nodes are not checked."""
    return external_locations(path) is not None


def external_files(path: Path) -> list[Path]:
    """The existing files of external data of an ONNX file; empty if it is not an ONNX model.

    Locations are relative to the folder of the path and, for a symbolic link, to the folder of its target.
    """
    folders = {os.path.realpath(each): each for each in (Path(os.path.realpath(path)).parent, path.parent)}.values()
    locations = external_locations(path) or ()
    return [folder / each for each in locations for folder in folders if _is_file(folder / each)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _locations(content: mmap.mmap) -> list[str] | None:
    """The locations in a message; None if it has no graph."""
    locations: dict[str, None] = {}
    has_graph = False
    pending = [("ModelProto", (0, len(content)))]
    while pending:
        message, byte_range = pending.pop()
        children = CHILDREN.get(message, {})
        for number, inner in _fields(content, byte_range):
            if number in children:
                # A node is parsed only if it contains the key `location`: most nodes contain no tensor.
                if children[number] != "NodeProto" or content.find(_LOCATION, *inner) >= 0:
                    pending.append((children[number], inner))
                has_graph |= message == "ModelProto" and number == _GRAPH
            elif (
                message == "TensorProto" and number == _EXTERNAL_DATA and _text(content, inner, 1) == _LOCATION.decode()
            ):
                locations[_text(content, inner, 2)] = None
    return list(locations) if has_graph else None


def _text(content: mmap.mmap, message: ByteRange, number: int) -> str:
    """The last string field of this number in a message; empty if there is none."""
    found = [content[start:end] for each, (start, end) in _fields(content, message) if each == number]
    return found[-1].decode("utf-8", "surrogateescape") if found else ""


def _fields(content: mmap.mmap, byte_range: ByteRange) -> Iterator[tuple[int, ByteRange]]:
    """Number and byte range of every length-delimited field of a message.

    Raises:
        ValueError, IndexError: the bytes are not a protobuf message.
    """
    position, end = byte_range
    while position < end:
        tag, position = _varint(content, position)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
            raise ValueError("not a protobuf message")
        if wire == _VARINT:
            _, position = _varint(content, position)
        elif wire == _BYTES:
            length, start = _varint(content, position)
            position = start + length
            if position > end:
                raise ValueError("a field is longer than its message")
            yield number, (start, position)
        else:
            position += 8 if wire == _FIXED64 else 4
    if position != end:
        raise ValueError("a field is longer than its message")


def _varint(content: mmap.mmap, position: int) -> tuple[int, int]:
    """A varint and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a varint is longer than 10 bytes")
