"""Parse a model: the message that a file or some bytes encode."""

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from layoutopt.errors import ModelError

_EXPORT = "export the model again"


def parse_message(content: bytes | memoryview, where: str = "model") -> onnx.ModelProto:
    """The message that some bytes encode.

    Args:
        content: the bytes.
        where: what errors call the model.

    Raises:
        ModelError: they encode no ONNX model.
    """
    if not content:
        raise ModelError("is empty", where=where, hint=_EXPORT)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(_not_onnx(content), where=where, hint=_EXPORT) from error
    if not proto.HasField("graph"):
        raise ModelError("is not an ONNX model: there is no graph in it", where=where, hint=_EXPORT)
    return proto


def _not_onnx(content: bytes | memoryview) -> str:
    """A guess at the kind of a file that is not a protobuf message."""
    head = bytes(content[:256]).lstrip()
    if head.lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "is not an ONNX model but a web page"
    if head.startswith(b"version https://git-lfs"):
        return "is not an ONNX model but a Git LFS pointer"
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "is not an ONNX model but text"
    return "is not an ONNX model, or is truncated"
