"""Checks of the fields of a message and its parts: all are defined by ONNX, and text fields are UTF-8.

The conversion loses fields that ONNX does not define, which are those of a newer version, or damage. protobuf returns text that
is not UTF-8 as bytes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from layoutopt.errors import ModelError

_HINT = "export the model again"


def examine_fields(proto: Any) -> list[str]:
    """The parts of a message with fields that ONNX does not define, by the name of the part or of an enclosing part.

    Raises:
        ModelError: some text is not UTF-8.
    """
    undefined = []
    pending = [(proto, "model")]
    while pending:
        message, parent = pending.pop()
        texts, parts = _fields(message.DESCRIPTOR)
        where = parent
        for name in texts:
            value = getattr(message, name)
            if isinstance(value, bytes) or any(isinstance(text, bytes) for text in value):
                raise ModelError(f"field {name!r} is not UTF-8 text", where=where, hint=_HINT)
            if name == "name" and value:
                where = value
        if len(UnknownFieldSet(message)):
            undefined.append(where)
        for name in parts:
            value = getattr(message, name)
            if not isinstance(value, Message):
                pending.extend((part, where) for part in value)
            elif message.HasField(name):
                pending.append((value, where))
    return undefined


def refuse_undefined_fields(undefined: Sequence[str]) -> None:
    """Raise ModelError for the first part that has a field which ONNX does not define."""
    if undefined:
        raise ModelError("has a field that ONNX does not define", where=undefined[0], hint=_HINT)


@lru_cache(maxsize=64)
def _fields(descriptor: Descriptor) -> tuple[list[str], list[str]]:
    """The names of the text fields and of the message fields of a type."""
    kinds = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    texts, parts = ([field.name for field in descriptor.fields if field.type == kind] for kind in kinds)
    return texts, parts
