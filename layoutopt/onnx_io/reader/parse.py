"""Parsing of serialised models."""

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from layoutopt.errors import ModelError

_EXPORT = "export the model again"


def parse_message(content: bytes | memoryview, where: str = "model") -> onnx.ModelProto:
    """The message of a serialised model.

    Args:
        content: the bytes.
        where: the name of the model in errors.

    Raises:
        ModelError: the bytes are not an ONNX model.
    """
    if not content:
        raise ModelError("is empty", where=where, hint=_EXPORT)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(_guessed_kind(content), where=where, hint=_EXPORT) from error
    if not proto.HasField("graph"):
        raise ModelError("is not an ONNX model: there is no graph in it", where=where, hint=_EXPORT)
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
