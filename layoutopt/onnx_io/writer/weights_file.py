"""The file of external data of a written model: its content and its name.

A model that replaces its predecessor never changes the predecessor's external data: other weights get a name with a hash of
their content, so that the old model refers to the old file until one rename replaces the model.
"""

import filecmp
import os
import re
import sys
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir

from layoutopt.errors import OutputError
from layoutopt.files import (
    FileKind,
    Overwrite,
    check_writable,
    copy_range,
    external_files,
    is_same_file,
    write_with_holes,
)
from layoutopt.ir.constant_sharing import chunks
from layoutopt.onnx_io.converter.values import StreamedTensor
from layoutopt.onnx_io.writer.serialize import weights

_EXTERNAL_FROM = 1024  # bytes; smaller tensors stay in the model
_PAGE = 4096  # bytes; the alignment of tensors in external data, so that they can be mapped
_LINE = 64  # the alignment of tensors smaller than a page
_PIECE = 1 << 26  # bytes that are hashed in one call
_DIGITS = 16  # of a hash in a name


def default_name(model: Path) -> str:
    """The default name of the external data of a model."""
    name = os.fsencode(model.name).decode("utf-8", "replace").replace("\N{REPLACEMENT CHARACTER}", "_")
    return f"{name}.data"


def check_name(model: Path, name: str, overwrite: Overwrite) -> None:
    """Raise OutputError for a name of external data that is invalid or belongs to another file.

    A file that the existing output model refers to, also with a hash in its name, is permitted: the weights then get another
    name.

    Raises:
        OutputError: it is no plain file name, not UTF-8, or must not be replaced.
    """
    if name in ("", ".", "..") or Path(name).name != name or is_same_file(model, model.with_name(name)):
        raise OutputError("not a file name for external data", where=name, hint="name a file next to the model")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        hint = "name another file: ONNX stores the name as UTF-8"
        raise OutputError("the name of external data is not UTF-8", where=name, hint=hint) from error
    target = model.with_name(name)
    if any(is_same_file(each, target) or _is_hashed(each, target) for each in external_files(model)):
        check_writable(target)
    else:
        overwrite.check(target, FileKind.WEIGHTS)


def place_weights(model: ir.Model, file: BinaryIO) -> dict[ir.Value, tuple[ir.TensorProtocol, int]]:
    """Write the large initializers one after the other, shared tensors once; returns their tensors and offsets."""
    offsets: dict[int, int] = {}
    placed = {}
    for value, tensor in weights(model):
        if tensor.nbytes < _EXTERNAL_FROM or tensor.dtype == ir.DataType.STRING:
            continue
        if id(tensor) not in offsets:
            start = file.tell()
            file.write(bytes(-start % (_PAGE if tensor.nbytes >= _PAGE else _LINE)))
            offsets[id(tensor)] = file.tell()
            write_tensor(tensor, file)
        placed[value] = (tensor, offsets[id(tensor)])
    return placed


def write_tensor(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    """Write the elements of a tensor, in pieces where it is a part of a file or is packed; pieces of zeros become holes.

    numpy's `tofile`, which onnx_ir uses for arrays, reports a full disk without its error number.
    """
    stored = tensor.data if isinstance(tensor, StreamedTensor) else tensor
    if isinstance(stored, ir.ExternalTensor) and os.path.isfile(stored.path):  # it may be mapped, and removed since
        with open(stored.path, "rb") as source:
            copy_range(source, stored.offset or 0, stored.nbytes, file)
    elif tensor.dtype.bitwidth < 8 or sys.byteorder != "little":
        file.write(tensor.tobytes())
    elif isinstance(tensor, StreamedTensor):
        for chunk in chunks(tensor.data):
            write_with_holes(chunk.reshape(-1).view(np.uint8), file)
    else:
        write_with_holes(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8), file)


def references(
    placed: dict[ir.Value, tuple[ir.TensorProtocol, int]], location: str
) -> dict[ir.Value, ir.ExternalTensor]:
    """The tensors that refer to elements in a file of this name."""
    return {
        value: ir.ExternalTensor(
            location,
            offset,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
        for value, (tensor, offset) in placed.items()
    }


def free_name(file: BinaryIO, requested: Path, *, may_replace: bool) -> tuple[Path, bool]:
    """The path for a temporary file of weights, and whether a file with its content is at that path already.

    The path is `requested`, or has a hash of the content in its name if a file with other weights is there.

    Args:
        file: the temporary file.
        requested: the path that the caller requested.
        may_replace: whether an existing file of that name may be replaced.
    """
    file.flush()
    if may_replace or not os.path.lexists(requested):
        return requested, False
    if _has_content(requested, file):
        return requested, True
    fresh = requested.with_name(f"{requested.stem}-{_hash(file)}{requested.suffix}")
    return fresh, _has_content(fresh, file)


def _has_content(path: Path, file: BinaryIO) -> bool:
    return path.is_file() and filecmp.cmp(path, file.name, shallow=False)


def _is_hashed(path: Path, requested: Path) -> bool:
    """Whether a path has the form that `free_name` derives from `requested` with a hash."""
    pattern = rf"{re.escape(requested.stem)}-[0-9a-f]{{{_DIGITS}}}{re.escape(requested.suffix)}"
    return re.fullmatch(pattern, path.name) is not None


def _hash(file: BinaryIO) -> str:
    """The hash of the content of a file that names contain."""
    file.seek(0)
    hashed = blake2b(digest_size=_DIGITS // 2)
    while piece := file.read(_PIECE):
        hashed.update(piece)
    return hashed.hexdigest()
