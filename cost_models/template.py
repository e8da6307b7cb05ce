"""The template of a target file: all keys of the schema with their descriptions, which the docstrings of its tables contain."""

import json
import re
from collections.abc import Iterator
from inspect import getdoc, isclass
from typing import Any, get_args

from pydantic import BaseModel

from layoutopt.cost_models.spec import SpecModel, TargetSpec

_DESCRIPTION = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_NUMBER = '{ value = 1, source = "estimate: " }'
_KEYS = {"rates": "rates.vector.float32", "c0": "c0.default"}  # of dictionaries of numbers
_VALUES = {"family": '"gpu"', "formats": '{ x = "N*C" }'}
_HEADING = """\
# A target of layoutopt. Every number has a source, which begins with "estimate:" or "measured:" if it is not published.
# Units are seconds, bytes, bytes per second and operations per second. Keys behind # may be left out.
#inherits = "cpu-avx2"
"""


def template(name: str) -> str:
    """The text of the file of a new target, in which all required keys have values."""
    text = _HEADING + "\n".join([*_table(TargetSpec, "", ""), ""])
    return text.replace('name = "..."', f"name = {json.dumps(name)}", 1)


def _table(table: type[BaseModel], path: str, mark: str) -> Iterator[str]:
    """The lines of a table: its keys with a description each, then its inner tables; `mark` is in front of all keys."""
    texts = {name: " ".join(text.split()) for name, text in _DESCRIPTION.findall(getdoc(table) or "")}
    inner: list[str] = []
    for name, field in table.model_fields.items():
        kinds = set(_kinds(field.annotation))
        found = next((each for each in kinds if isclass(each) and issubclass(each, SpecModel)), None)
        own = mark if field.is_required() else "#"
        if found is not None and "source" not in found.model_fields:
            key = f"[[{path}{name}]]" if tuple in kinds else f"[{path}{name}]"
            inner += ["", f"# {texts[name]}", f"{own}{key}", *_table(found, f"{path}{name}.", own)]
            continue
        value = '["..."]' if tuple in kinds else _VALUES.get(name, '"..."')
        value = _NUMBER if found is not None else "true" if bool in kinds else value
        yield from (f"# {texts[name]}", f"{own}{_KEYS.get(name, name)} = {value}")
    yield from inner


def _kinds(annotation: Any) -> Iterator[Any]:
    """All types in an annotation."""
    yield getattr(annotation, "__origin__", annotation)
    for each in get_args(annotation):
        if isinstance(each, type) or get_args(each):
            yield from _kinds(each)
