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
    is_model = isinstance(data, BaseModel)
    text = data.model_dump_json(indent=2) if is_model else json.dumps(data, indent=2, ensure_ascii=False)
    return f"{_NON_ASCII.sub(_escaped, text)}\n"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
