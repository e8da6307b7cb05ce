"""JSON that can be printed on a terminal: characters that would steer it are escapes."""

import json
import re
from typing import Any

from pydantic import BaseModel

_UNUSUAL = re.compile(r"[^\x00-\x7e]")


def json_text(data: Any) -> str:
    """Data, or a model of pydantic, as indented JSON that ends in a line break.

    Letters of all scripts are written as they are. Characters that are not printable, such as C1 controls and marks that
    turn the direction of writing, are escaped.
    """
    is_model = isinstance(data, BaseModel)
    text = data.model_dump_json(indent=2) if is_model else json.dumps(data, indent=2, ensure_ascii=False)
    return f"{_UNUSUAL.sub(_escaped, text)}\n"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
