"""JSON text that is safe to print on a terminal: control characters are escaped."""

import json
import re
from typing import Any

from pydantic import BaseModel

_NON_ASCII = re.compile(r"[^\x00-\x7e]")


def json_text(data: Any) -> str:
    """Serialise data, or a pydantic model, as indented JSON with a final line break.

    Printable characters of all scripts are kept. Others, such as C1 controls and marks of text direction, are escaped.
    """
    return _serialized(data, 2)


def json_line(data: Any) -> str:
    """Serialise data, or a pydantic model, as one line of JSON, with the characters of `json_text`."""
    return _serialized(data, None)


def _serialized(data: Any, indent: int | None) -> str:
    is_model = isinstance(data, BaseModel)
    text = data.model_dump_json(indent=indent) if is_model else json.dumps(data, indent=indent, ensure_ascii=False)
    return f"{_NON_ASCII.sub(_escaped, text)}\n"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
