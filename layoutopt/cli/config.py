"""Configuration: `layoutopt.toml`, or `[tool.layoutopt]` of a `pyproject.toml`, with options and budgets of models.

target = "cpu"                          options of all models
[budgets]                               limits of all models
[models."detector/*.onnx"]              options of the models that the pattern matches
[models."detector/*.onnx".budgets]      limits of these models

A key has the name of its option, without the leading dashes. The tables are made of the declarations of the options.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from msgspec import field
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError, create_model

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import OPTIONS, PARSERS, REFUSALS
from layoutopt.cost_models.target_files import line_of
from layoutopt.driver.options import limited
from layoutopt.files import path_text
from layoutopt.record import Record

_OWN, _PROJECT = "layoutopt.toml", "pyproject.toml"
_TOP = (".git", _PROJECT)
_SECTION = ("tool", "layoutopt")
_HEADING = re.compile(rb"^\s*\[tool\.layoutopt\b", re.MULTILINE)

# --- the tables --------------------------------------------------------------------------------------------


class Table(BaseModel):
    """Base class of the tables: keys have dashes, types are exact, unknown keys are errors."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        defer_build=True,
    )


def _keys(scope: str) -> dict[str, Any]:
    """The definitions of the keys that a configuration may set for some models."""
    chosen = {name: each for name, each in OPTIONS.items() if each.metadata["option"].scope == scope}
    return {
        name: (_kind(name) | None, Field(None, description=each.metadata["option"].help))
        for name, each in chosen.items()
    }


def _kind(name: str) -> Any:
    """The type of a key: that of the option."""
    lax = Annotated[Path, Strict(False)]  # of a text
    kind = {Path: lax, list[Path]: list[lax]}.get(OPTIONS[name].metadata["option"].kind, limited(OPTIONS[name]))
    return Annotated[kind, AfterValidator(_assignments(name))] if name in PARSERS else kind


def _assignments(name: str) -> Any:
    def check(values: list[str]) -> list[tuple[str, Any]]:
        try:
            return [PARSERS[name](each) for each in values]
        except UsageError as error:
            raise ValueError(f"{error.what}; {error.hint}") from error

    return check


BudgetTable: Any = create_model("BudgetTable", __base__=Table, **_keys("budgets"))
SharedTable: Any = create_model(
    "SharedTable",
    __base__=Table,
    budgets=(BudgetTable, Field(default_factory=BudgetTable.model_construct)),
    **_keys("models"),
)
ModelTable: Any = create_model("ModelTable", __base__=SharedTable, **_keys("one model"))
ConfigTable: Any = create_model(
    "ConfigTable",
    __base__=SharedTable,
    models=(dict[str, ModelTable], Field(default_factory=dict)),
    **_keys("run"),
)


def keys(table: type[Table]) -> list[str]:
    """The keys of a table."""
    return [name.replace("_", "-") for name in table.model_fields]


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration."""
    found: dict[str, Any] = ConfigTable.model_json_schema(by_alias=True)
    return found


# --- the values --------------------------------------------------------------------------------------------


class Config(Record):
    """The content of a configuration file, and the keys that the command line sets.

    Attributes:
        path: the file; None without one.
        table: its content.
        typed: the values of `--config KEY=VALUE` by option.
    """

    path: Path | None = None
    table: Any = field(default_factory=ConfigTable.model_construct)
    typed: dict[str, Any] = field(default_factory=dict)

    def options_for(self, model: Path) -> dict[str, Any]:
        """The options of a model by name, such as `max_growth`: those of all models, then those of each matching pattern.

        A later pattern replaces the values of earlier ones. Files are relative to the folder of the configuration.
        """
        options = _values(self.table)
        for each in self._matching(model):
            options |= _values(each)
        return {name: self._located(name, value) for name, value in options.items()} | self.typed

    def budgets_for(self, model: Path) -> dict[str, float]:
        """The budgets of a model by name, such as `max_transposes`, with the rules of `options_for`."""
        tables = [self.table.budgets, *(each.budgets for each in self._matching(model))]
        return {name: value for each in tables for name, value in _values(each).items()}

    def _matching(self, model: Path) -> Iterator[Any]:
        """The tables whose patterns match a model, in the order of the file.

        A pattern is compared with the path below the folder of the configuration, or with the name if it contains no slash;
        `*` also matches slashes.
        """
        if self.path is None:
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        relative = Path(os.path.relpath(os.path.abspath(model), folder)).as_posix()
        for pattern, options in self.table.models.items():
            if fnmatchcase(relative if "/" in pattern else model.name, pattern.removeprefix("./")):
                yield options

    def _located(self, name: str, value: Any) -> Any:
        """A value with absolute paths."""
        folder = self.path.parent if self.path is not None else Path()
        if name == "target":  # names and files, separated by commas
            return ",".join(str(folder / each) if each.endswith(".toml") else each for each in value.split(","))
        if isinstance(value, list):
            return [self._located("", each) for each in value]
        return folder / value if isinstance(value, Path) else value


def _values(table: Table) -> dict[str, Any]:
    """The values of a table that the file contains, by name; without the inner tables."""
    return {name: getattr(table, name) for name in table.model_fields_set - {"budgets", "models"}}


# --- the files ---------------------------------------------------------------------------------------------


def requested_config(requests: Sequence[str]) -> Config:
    """The configuration that the values of `--config` request, or the one of the working directory.

    Args:
        requests: names of files, `none`, and assignments KEY=VALUE.

    Raises:
        UsageError: a file cannot be read, its content is wrong, or two are requested.
    """
    assignments = [each for each in requests if re.match(r"[\w-]+=", each)]
    files = [each for each in requests if each not in assignments]
    if len(files) > 1:
        raise UsageError("two configurations", where=" ".join(f"--config {each}" for each in files), hint="choose one")
    found = Config()
    if not files:
        found = find_config(Path.cwd()) or found
    elif files != ["none"]:
        found = load_config(Path(files[0]))
    typed = [_typed(each) for each in assignments]
    return Config(found.path, found.table, {name: value for each in typed for name, value in each.items()})


def _typed(assignment: str) -> dict[str, Any]:
    """The value of one KEY=VALUE, which is checked; texts need no quotes."""
    key, _, text = assignment.partition("=")
    value: Any = text
    with suppress(tomllib.TOMLDecodeError):
        value = tomllib.loads(f"value = {text}")["value"]
    where = f"--config {assignment}"
    try:
        return _values(ModelTable.model_validate({key: value}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            raise _unknown_key(where, ["models", key]) from None
        raise UsageError(_reason(first), where=where, hint="correct the value") from None


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
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = f"{'cannot be read' if isinstance(error, OSError) else 'is not TOML'}: {reason[:1].lower()}{reason[1:]}"
        raise UsageError(what, where=_shown(path), hint="correct it, or use --config none") from error
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


def _has_section(path: Path) -> bool:
    """Whether a `pyproject.toml` has the table, by its heading: the file may be no TOML."""
    with suppress(OSError):
        return bool(_HEADING.search(path.read_bytes()))
    return False


# --- errors ------------------------------------------------------------------------------------------------


def _first_error(path: Path, text: str, prefix: Sequence[str], error: ValidationError) -> UsageError:
    """The first error of a table, with its line."""
    first = error.errors(include_url=False)[0]
    names = [str(part) for part in first["loc"] if isinstance(part, str)]
    where = f"{_shown(path)}:{line_of(text, (*prefix, *names)) or 1}"
    if first["type"] == "extra_forbidden":
        return _unknown_key(where, names)
    value = first["input"]
    shown = f" = {value!r:.60}" if isinstance(value, str | int | float | bool) else ""
    hint = "correct the value, or use --config none"
    return UsageError(f"{'.'.join(names)}{shown}: {_reason(first)}", where=where, hint=hint)


def _reason(error: Any) -> str:
    text: str = error["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return text


def _unknown_key(where: str, names: Sequence[str]) -> UsageError:
    key, is_budget = names[-1], names[-2:-1] == ["budgets"]
    if refusal := REFUSALS.get(key):
        return UsageError(f"{key} {refusal}", where=where, hint="type it as an option of the command line")
    known = keys(BudgetTable if is_budget else ConfigTable if len(names) == 1 else ModelTable)
    if len(names) == 1 and key in keys(ModelTable):
        hint = 'write it in a table of models, such as [models."detector/*.onnx"]'
        return UsageError(f"{key} is an option of one model", where=where, hint=hint)
    near = get_close_matches(key.replace("_", "-"), known, 1)
    hint = f"did you mean {near[0]}" if near else f"there are {', '.join(known)}"
    return UsageError(f"no {'budget' if is_budget else 'option'} '{key}'", where=where, hint=hint)
