"""Read a model file through onnx_ir, weights mapped and not loaded, or refuse it.

onnx_ir keeps almost everything that a file says. Sparse tensors become dense, and what it has no words for is carried
along (`beside`). What it would drop in silence (a second attribute of the same name, unknown fields ...) is refused
here, by name, before it is converted.
"""

import logging
import mmap
import os
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from layoutopt.errors import ModelError
from layoutopt.onnx_io.beside import Beside
from layoutopt.onnx_io.faithful import check_message, refuse_losses
from layoutopt.onnx_io.sparse import make_dense
from layoutopt.onnx_io.tensors import settle_tensors

_EXPORT = "export the model again"

# What onnx_ir logs about a broken model is an error here; without a handler Python prints it to the terminal.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())


def read(path: str | os.PathLike[str]) -> ir.Model:
    """Read a model.

    Weights in the file are parsed in place, external data is memory-mapped when first looked at. External
    data is checked up front, without reading it: it must lie in the model's folder and be long enough.

    Raises:
        ModelError: there is no such file, it is no ONNX model, or it says something that would be lost.
    """
    path = Path(path)
    return _convert(_parse(path), Path(os.path.abspath(path)).parent, str(path))


def from_message(proto: onnx.ModelProto) -> ir.Model:
    """Convert a message, which is not changed; external data is looked for in the current folder.

    Raises:
        ModelError: it is no valid model, or says something that would be lost.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return _convert(copy, Path.cwd(), "model")


def _convert(proto: onnx.ModelProto, folder: Path, where: str) -> ir.Model:
    """The model of a message, which is taken apart on the way."""
    check_message(proto)
    beside = Beside(proto)
    make_dense(proto)
    refuse_losses(proto)
    settle_tensors(proto, folder)
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # hostile bytes reach deep into onnx_ir: whatever it raises, the file is at fault
        raise ModelError(f"cannot be understood: {_reason(error)}", where=where, hint=_EXPORT) from error
    beside.attach(model)
    ir.external_data.set_base_dir(model.graph, folder)
    return model


def _parse(path: Path) -> onnx.ModelProto:
    """The message in a file."""
    content = _content(path)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(_not_onnx(content), where=str(path), hint=_EXPORT) from error
    if not proto.HasField("graph"):
        raise ModelError("is not an ONNX model: there is no graph in it", where=str(path), hint=_EXPORT)
    return proto


def _content(path: Path) -> memoryview:
    """The bytes of a file, mapped: the parser copies them, so that they should not be in memory twice."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelError("is empty", where=str(path), hint=_EXPORT)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError as error:
        raise ModelError("no such file", where=str(path), hint="check the path") from error
    except IsADirectoryError as error:
        raise ModelError("is a folder", where=str(path), hint="name the .onnx file in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"cannot be read: {reason.lower()}", where=str(path), hint="check the file") from error


def _not_onnx(content: memoryview) -> str:
    """What a file that is no protobuf message looks like."""
    head = bytes(content[:256]).lstrip()
    if head.lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "is not an ONNX model but a web page"
    if head.startswith(b"version https://git-lfs"):
        return "is not an ONNX model but a Git LFS pointer"
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "is not an ONNX model but text"
    return "is not an ONNX model, or is truncated"


def _reason(error: BaseException) -> str:
    """The innermost message of a chain of errors, on one short line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
