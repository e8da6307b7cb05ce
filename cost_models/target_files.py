"""Reader of target files: TOML, inheritance, validation, and one-line error messages.

A file may inherit another one. Tables are merged key by key; a number and its source are replaced together. A kernel row
replaces the inherited row with the same `family`, `ops`, `variant` (such as `depthwise`), `dtypes`, `results` (element types of
the result), `formats`, `strided` and `direct`, or removes it with `removed = true`; all other rows are added.
"""

import re
import tomllib
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from layoutopt.cost_models.spec import IDENTITY_KEYS, SpecModel, is_removal
from layoutopt.errors import TargetError
from layoutopt.files import path_text

# --- Line numbers of keys in target files, for error messages ---
#
# tomllib reports no line numbers. The statement that defines a key ends on the last line of the shortest prefix of the file
# that parses and has the key; it begins behind the previous prefix that parses, since a statement over several lines is not
# TOML before its last line.


_Spec = TypeVar("_Spec", bound=SpecModel)
Table: TypeAlias = dict[str, Any]
Keys: TypeAlias = tuple[int | str, ...]
Layers: TypeAlias = Sequence[tuple[Path, Table]]
"""The files of a target and of all that it inherits, its own first, with their tables."""


def line_of(text: str, keys: Keys) -> int | None:
    """The first line of the statement that defines a key, or the innermost table around it; None if the text has none.

    Args:
        text: a valid TOML file.
        keys: the path of the key: `("kernel", 3, "formats", "x")`.
    """
    found, reached, complete = None, 0, 0
    lines = text.splitlines()
    for count in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        if (depth := _defined(table, keys)) > reached:
            found, reached = complete + 1, depth
        complete = count
    return found


def _defined(table: Table, keys: Keys) -> int:
    """The length of the longest prefix of a path of keys that the table defines."""
    node: Any = table
    for depth, key in enumerate(keys):
        if not (key in node if isinstance(node, dict) else isinstance(node, list) and key in range(len(node))):
            return depth
        node = node[key]
    return len(keys)


def _location(layers: Layers, merged: Table, keys: Keys) -> str:
    """The file and the line that define a key of the merged target, or the innermost table around it."""
    found = [(path, table, _own(keys, merged, table)) for path, table in layers]
    path, _, own = max(found, key=lambda each: _defined(*each[1:]))
    line = line_of(path.read_text(encoding="utf-8"), own)
    return str(path) if line is None else f"{path}:{line}"


def _own(keys: Keys, merged: Table, table: Table) -> Keys:
    """The path of a key in one of the files, where rows have other indices; empty if the key is in a row of another file."""
    if len(keys) < 2 or keys[0] != "kernel" or not isinstance(merged["kernel"], list):
        return keys
    rows, row = table.get("kernel"), merged["kernel"][int(keys[1])]
    indices = [index for index, each in enumerate(rows if isinstance(rows, list) else ()) if each is row]
    return ("kernel", indices[0], *keys[2:]) if indices else ()


_KEY_STEP = "[key]"  # the step that pydantic adds to the path of an invalid key of a table
_NUMBER_HINT = 'write { value = ..., source = "..." }'
_TARGETS_HINT = "see the targets that come with layoutopt"
_FAULTS = {
    "too_short": ("has too few entries", "add one, or remove the key"),
    "string_pattern_mismatch": ("is no name", "write up to 64 letters, digits, _, . and -"),
}
"""The fault and the remedy by the type of a violation."""
_ROW_IN_MESSAGE = re.compile(r"Value error, kernel\[(\d+)\]")
_TOML_MESSAGE = re.compile(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$")


def read_spec(path: Path, schema: type[_Spec], resolve: Callable[[str, Path], Path] | None = None) -> _Spec:
    """The target or the runtime that a file describes.

    Args:
        path: the file.
        schema: the schema of the file.
        resolve: maps the value of `inherits` and the inheriting file to the inherited file; None if files inherit none.

    Raises:
        TargetError: the file cannot be read, is not TOML, or violates the schema.
    """
    chain: list[Path] = []
    layers: list[tuple[Path, Table]] = []
    here: Path | None = path
    while here is not None:
        if here.resolve() in chain:
            raise TargetError(
                f"inherits itself by way of {layers[-1][1]['name']}", where=str(path), hint="break the circle"
            )
        chain.append(here.resolve())
        table = read_toml(here)
        parent = table.pop("inherits", None) if resolve is not None else None
        if parent is not None and not isinstance(parent, str):
            where = _location([(here, table)], {}, ("inherits",))
            raise TargetError(f"inherits: expected a name or a path, found {parent!r}", where=where)
        layers.append((here, {"name": path_text(here.stem), **table}))
        here = resolve(parent, here) if resolve is not None and parent is not None else None
    merged: Table = {}
    for _, layer in reversed(layers):
        merged = merge(merged, layer)
    try:
        return schema.model_validate(merged)
    except ValidationError as error:
        raise _schema_error(error, layers, merged, schema) from None


def read_toml(path: Path) -> Table:
    """The tables of a TOML file.

    Raises:
        TargetError: the file cannot be read or is malformed.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise TargetError(
            f"cannot be read: {error.strerror or error}",
            where=str(path),
            hint="check the path of the target file",
        ) from None
    except UnicodeDecodeError:
        raise TargetError("is not UTF-8", where=str(path), hint="a target is a TOML text file") from None
    except RecursionError:
        raise TargetError("is nested too deeply", where=str(path), hint=_TARGETS_HINT) from None
    except tomllib.TOMLDecodeError as error:
        match = _TOML_MESSAGE.match(str(error))
        where = f"{path}:{match[2]}" if match is not None and match[2] else str(path)
        what = match[1] if match is not None else str(error)
        raise TargetError(f"is not TOML: {what}", where=where, hint="mend that line") from None


def merge(parent: Table, child: Table) -> Table:
    """The tables of a file merged with those that it inherits."""
    merged = dict(parent)
    for key, value in child.items():
        old = merged.get(key)
        if key == "kernel" and isinstance(old, list) and isinstance(value, list):
            merged[key] = merge_rows(old, value)
        elif isinstance(old, dict) and isinstance(value, dict) and not {"value", "source"} & {*old, *value}:
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def merge_rows(parent: list[Any], child: list[Any]) -> list[Any]:
    """The rows of a file, without those that remove a row, then the inherited ones that it neither replaces nor removes."""
    own, inherited = [identity(row) for row in child], [identity(row) for row in parent if not is_removal(row)]
    kept = [row for row in child if not (is_removal(row) and identity(row) in inherited)]
    return kept + [row for row in parent if identity(row) not in own]


def identity(row: Any) -> Any:
    """The values that identify a kernel row: a row replaces the inherited row of equal identity."""
    if not isinstance(row, dict):
        return row
    return [[value] if isinstance(value, str) else value for value in map(row.get, IDENTITY_KEYS)]


def _schema_error(error: ValidationError, layers: Layers, merged: Table, schema: type[SpecModel]) -> TargetError:
    """All violations of the schema in one line, each with its key path; the file, line and remedy are those of the first."""
    # A misspelt key is also a missing one; the misspelling is the more specific error.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    found = [_fault(each, schema) for each in problems]
    row_in_message = _ROW_IN_MESSAGE.match(first["msg"]) if not first["loc"] else None
    # The table without a missing key is the error; a table that it replaces may have the key.
    steps = first["loc"][:-1] if first["type"] == "missing" else first["loc"]
    loc = tuple(step for step in steps if step != _KEY_STEP)
    keys = ("kernel", int(row_in_message[1])) if row_in_message is not None else loc
    what, hint = found[0]
    others = "".join(f"; also {other}" for other, _ in found[1:])
    return TargetError(what, where=_location(layers, merged, keys), hint=hint + others)


def _fault(problem: Any, schema: type[SpecModel]) -> tuple[str, str]:
    """One violation of the schema, with the expected and the found value, and its remedy."""
    key, given = key_path(problem["loc"]), problem["input"]
    if problem["type"] == "extra_forbidden":
        name = str(problem["loc"][-1])
        close = get_close_matches(name, sorted(schema.known_keys() - {name}), n=1, cutoff=0.7)
        kind = schema.__name__.removesuffix("Spec").lower()
        return f"{key} is not a key of a {kind}", f"did you mean {close[0]}?" if close else "remove it"
    is_number = isinstance(given, int | float) and problem["type"] != "string_type"
    hint = _NUMBER_HINT if is_number or key.endswith((".source", ".value")) else _TARGETS_HINT
    if problem["type"] == "missing":
        return f"{key} is missing", hint
    if problem["type"] == "model_type":
        return f"{key}: expected a table, found {truncated(given)}", hint
    if problem["type"] in _FAULTS:
        what, hint = _FAULTS[problem["type"]]
        return f"{key}: {what}, found {truncated(given)}", hint
    message = problem["msg"].removeprefix("Value error, ")
    if not key:
        return message, hint
    end = f", found {truncated(given)}" if not isinstance(given, dict) else ""
    return f"{key}: {message[0].lower()}{message[1:]}{end}", hint


def key_path(loc: tuple[int | str, ...]) -> str:
    """The path of a key as text, such as `kernel[3].formats.x`."""
    text = ""
    for step in loc:
        if step != _KEY_STEP:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")


def truncated(value: object) -> str:
    """The repr of a value, truncated to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
