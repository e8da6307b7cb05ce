"""Line numbers of keys in target files, for error messages.

tomllib reports no line numbers. The statement that defines a key ends on the last line of the shortest prefix of the file that
parses and has the key; it begins behind the previous prefix that parses, since a statement over several lines is not TOML
before its last line.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

Table: TypeAlias = dict[str, Any]
Keys: TypeAlias = tuple[int | str, ...]


def location_of(keys: Keys, merged: Table, layers: Sequence[tuple[Path, Table]]) -> str:
    """The file and line that define a key of a merged target, or the innermost enclosing table that a file defines.

    Args:
        keys: the path of the key: `("kernel", 3, "formats", "x")`.
        merged: the target with all that it inherits.
        layers: the files of the inheritance chain with their tables, the target's own first; `merged` has their row objects.
    """
    best = max(layers, key=lambda layer: len(_defined(layer[1], _own(keys, merged, layer[1]))))
    path, table = best
    defined = _defined(table, _own(keys, merged, table))
    line = line_of(path.read_text(encoding="utf-8"), defined) if defined else None
    return f"{path}:{line}" if line is not None else str(path)


def line_of(text: str, keys: Keys) -> int | None:
    """The first line of the statement that defines a key; None if the text does not define it."""
    lines = text.splitlines()
    complete = 0
    for count in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        if _defined(table, keys) == keys:
            return complete + 1
        complete = count
    return None


def _own(keys: Keys, merged: Table, table: Table) -> Keys:
    """The path of a key within one file, where rows have other indices; empty if the key is in a row of another file."""
    if len(keys) < 2 or keys[0] != "kernel" or not isinstance(keys[1], int):
        return keys
    rows, row = table.get("kernel", []), merged["kernel"][keys[1]]
    indices = [index for index, each in enumerate(rows) if each is row] if isinstance(rows, list) else []
    return ("kernel", indices[0], *keys[2:]) if indices else ()


def _defined(table: Table, keys: Keys) -> Keys:
    """The longest prefix of a path of keys that the table defines."""
    node: Any = table
    for depth, key in enumerate(keys):
        if not (key in node if isinstance(node, dict) else isinstance(node, list) and key in range(len(node))):
            return keys[:depth]
        node = node[key]
    return keys


__all__ = ["line_of", "location_of"]
