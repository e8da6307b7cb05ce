"""The page `reference/report.md`: the fields of `--json`, from the pydantic models of the schema."""

import json
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from tables import code, table

from layoutopt.report.schema import SCHEMA_VERSION, Report

_INTRODUCTION = """\
# Report

Generated from `layoutopt.report.schema`, version {version} of the schema. `layoutopt optimize --json out.json` writes a JSON
object with the fields of [Report](#report_1); in Python it is `result.report`.
`layoutopt.report.schema.Report.model_json_schema()` is the JSON schema.
"""


def report_page() -> str:
    """The page as Markdown: the model of the whole report first, then its parts, in the order in which they occur."""
    parts, schema = [_INTRODUCTION.format(version=SCHEMA_VERSION)], Report.model_json_schema()
    schemas = {"Report": schema, **schema["$defs"]}
    for model in _models(Report):
        fields, own = model.__pydantic_fields__.items(), schemas[model.__name__]
        meanings = {name: each.get("description", "") for name, each in own["properties"].items()}
        rows = [(code(name), _text(field.annotation), _default(field), meanings[name]) for name, field in fields]
        parts += [f"## {model.__name__}\n", own["description"], table(("field", "type", "default", "meaning"), rows)]
    return "\n".join(parts)


def _models(root: type[Any]) -> list[type[Any]]:
    """The model and all models in its fields."""
    found = [root]
    for model in found:
        for field in model.__pydantic_fields__.values():
            found += [each for each in _inner(field.annotation) if each not in found]
    return found


def _inner(annotation: Any) -> Iterator[type[Any]]:
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for argument in get_args(annotation):
        yield from _inner(argument)


def _text(annotation: Any) -> str:
    """The type in words of JSON: `list of CastReport`, `number or null`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(code(f'"{each}"') for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_text(each) for each in arguments)
    if origin is list:
        return f"list of {_text(arguments[0])}"
    if origin is tuple:
        return f"[{', '.join(_text(each) for each in arguments)}]"
    if origin is dict:
        return f"object of {_text(arguments[1])}"
    if hasattr(annotation, "__pydantic_fields__"):
        anchor = "report_1" if annotation is Report else annotation.__name__.lower()
        return f"[{annotation.__name__}](#{anchor})"
    return {str: "string", float: "number", int: "integer", bool: "boolean", type(None): "null"}[annotation]


def _default(field: FieldInfo) -> str:
    """The default as JSON; nothing for a required field."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    return code(json.dumps(value))
