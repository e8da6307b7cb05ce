"""Parse a model that is at hand as bytes."""

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from layoutopt.errors import ModelError

_EXPORT = "export the model again"


def parse_message(content: bytes) -> onnx.ModelProto:
    """The message that some bytes encode.

    Raises:
        ModelError: they encode no ONNX model.
    """
    if not content:
        raise ModelError("is empty", where="model", hint=_EXPORT)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError("is not an ONNX model, or is truncated", where="model", hint=_EXPORT) from error
    if not proto.HasField("graph"):
        raise ModelError("is not an ONNX model: there is no graph in it", where="model", hint=_EXPORT)
    return proto
