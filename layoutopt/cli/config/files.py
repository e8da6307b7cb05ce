"""Configuration files: found in a folder or above it, read and checked."""

import os
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from layoutopt.cli.app import app
from layoutopt.cli.config.config import Config
from layoutopt.cli.config.lines import line_of
from layoutopt.cli.config.schema import Budgets, ConfigTable, ModelOptions, Table, keys
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.config_file import TypedOnly
from layoutopt.files import path_text

_OWN, _PROJECT = "layoutopt.toml", "pyproject.toml"
_TOP = (".git", _PROJECT)
_SECTION = ("tool", "layoutopt")
_FOR_ONE_MODEL = [key for key in keys(ModelOptions) if key not in keys(ConfigTable)]


def find_config(start: Path) -> Config | None:
    """The configuration of a folder: of the folder itself, or of the closest one above it in its project that has one.

    The top folder of the project is the closest one with `.git` or `pyproject.toml`; without one, no folder above is searched.
    `layoutopt.toml` goes before `pyproject.toml`; a `pyproject.toml` without `[tool.layoutopt]` is ignored.

    Raises:
        UsageError: the file cannot be read, or its content is wrong.
    """
    folder = Path(os.path.abspath(start))
    folders = (folder, *folder.parents)
    tops = (number for number, each in enumerate(folders) if any(os.path.lexists(each / mark) for mark in _TOP))
    for each in folders[: next(tops, 0) + 1]:
        if os.path.isfile(each / _OWN):
            return load_config(each / _OWN)
        if os.path.isfile(each / _PROJECT) and _has_section(each / _PROJECT):
            return load_config(each / _PROJECT)
    return None


def load_config(path: Path) -> Config:
    """The configuration in a file; in a `pyproject.toml` it is the table `tool.layoutopt`.

    Raises:
        UsageError: the file cannot be read, or its content is wrong.
    """
    text = _read(path)
    content = _parsed(path, text)
    prefix = _SECTION if path.name == _PROJECT else ()
    for name in prefix:
        if not isinstance(content, dict) or name not in content:
            raise UsageError("has no table [tool.layoutopt]", where=_shown(path), hint="add it, or name another file")
        content = content[name]
    try:
        return Config(path, ConfigTable.model_validate(content))
    except ValidationError as error:
        raise _first_error(path, text, prefix, error) from None


def _shown(path: Path) -> str:
    """The path in errors: relative to the working directory if the file is below it."""
    folder = Path.cwd()
    return path_text(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise UsageError(what, where=_shown(path), hint="name another file with --config") from error
    except UnicodeDecodeError as error:
        raise UsageError("is not UTF-8", where=_shown(path), hint="save it as UTF-8") from error


def _parsed(path: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        what = f"is not TOML: {str(error)[:1].lower()}{str(error)[1:]}"
        raise UsageError(what, where=_shown(path), hint="correct it, or use --no-config") from error


def _has_section(path: Path) -> bool:
    """Whether a `pyproject.toml` has the table; a file that is not TOML has it if it contains its name."""
    try:
        text = _read(path)
        content: Any = tomllib.loads(text)
    except UsageError:
        return False
    except (tomllib.TOMLDecodeError, RecursionError):
        return "tool.layoutopt" in text
    tools = content.get(_SECTION[0])
    return isinstance(tools, dict) and _SECTION[1] in tools


def _first_error(path: Path, text: str, prefix: Sequence[str], error: ValidationError) -> UsageError:
    """The error in the first line of the file that has one."""
    found = []
    for each in error.errors(include_url=False):
        names = [*prefix, *(str(part) for part in each["loc"] if isinstance(part, str))]
        found.append((line_of(text, names), names[len(prefix) :], each))
    line, names, first = min(found, key=lambda each: each[0])
    where = f"{_shown(path)}:{line}"
    if first["type"] == "extra_forbidden":
        return _unknown_key(where, names, prefix)
    value = first["input"]
    shown = f" = {value!r:.60}" if isinstance(value, str | int | float | bool) else ""
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return UsageError(f"{'.'.join(names)}{shown}: {reason}", where=where, hint="correct the value, or use --no-config")


def _unknown_key(where: str, names: Sequence[str], prefix: Sequence[str]) -> UsageError:
    key, table = names[-1], _table(names[:-1])
    known = keys(table)
    if reason := typed_only().get(key.replace("_", "-")):
        return UsageError(f"{key} {reason}", where=where, hint="type it as an option of the command line")
    if table is ConfigTable and key in _FOR_ONE_MODEL:
        table_of_models = ".".join([*prefix, 'models."detector/*.onnx"'])
        hint = f"write it in a table of models, such as [{table_of_models}]"
        return UsageError(f"{key} is an option of one model", where=where, hint=hint)
    if key.startswith("no-") and key.removeprefix("no-") in known:
        hint = f"write {key.removeprefix('no-')} = false"
    else:
        near = get_close_matches(key.replace("_", "-"), known, 1)
        hint = f"did you mean {near[0]}" if near else f"there are {', '.join(known)}"
    kind = "budget" if table is Budgets else "option"
    return UsageError(f"no {kind} '{key}'", where=where, hint=hint)


def typed_only() -> dict[str, str]:
    """The options that a configuration must not set: the reasons by key."""
    found: dict[str, str] = {}
    for command in app.registered_commands:
        for name, annotation in get_type_hints(command.callback, include_extras=True).items():
            marks = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, TypedOnly)]
            found |= {name.replace("_", "-"): each.reason for each in marks}
    return found


def _table(names: Sequence[str]) -> type[Table]:
    """The table at a path below the configuration."""
    if names[-1:] == ["budgets"]:
        return Budgets
    return ModelOptions if names[:1] == ["models"] else ConfigTable
