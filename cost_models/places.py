"""Where a target file says something: the line of a key, for errors.

tomllib tells no lines. But a key is there from some line on: it is in the shortest beginning of the file that has it. What a
statement spreads over several lines is no TOML in between, so it begins behind the last beginning that is.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

Table: TypeAlias = dict[str, Any]
Keys: TypeAlias = tuple[int | str, ...]


def place_of(keys: Keys, merged: Table, layers: Sequence[tuple[Path, Table]]) -> str:
    """The file and line that a key of a merged target came from, or the nearest thing around it that is written anywhere.

    Args:
        keys: the path of the key: `("kernel", 3, "formats", "x")`.
        merged: the target with all that it inherits.
        layers: the files and what they say, the target's own first; their rows are those of `merged`.
    """
    best = max(layers, key=lambda layer: len(_known(layer[1], _own(keys, merged, layer[1]))))
    path, table = best
    known = _known(table, _own(keys, merged, table))
    line = line_of(path.read_text(encoding="utf-8"), known) if known else None
    return f"{path}:{line}" if line is not None else str(path)


def line_of(text: str, keys: Keys) -> int | None:
    """The number of the line where the statement begins that makes a key be there; None if nothing does."""
    lines = text.splitlines()
    whole = 0
    for count in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        if _known(table, keys) == keys:
            return whole + 1
        whole = count
    return None


def _own(keys: Keys, merged: Table, table: Table) -> Keys:
    """The same key as one file has it, whose rows have other numbers; nothing if it is in a row of another file."""
    if len(keys) < 2 or keys[0] != "kernel" or not isinstance(keys[1], int):
        return keys
    rows, row = table.get("kernel", []), merged["kernel"][keys[1]]
    numbers = [number for number, each in enumerate(rows) if each is row] if isinstance(rows, list) else []
    return ("kernel", numbers[0], *keys[2:]) if numbers else ()


def _known(table: Table, keys: Keys) -> Keys:
    """As much of a path of keys as leads to something."""
    node: Any = table
    for depth, key in enumerate(keys):
        if not (key in node if isinstance(node, dict) else isinstance(node, list) and key in range(len(node))):
            return keys[:depth]
        node = node[key]
    return keys


__all__ = ["line_of", "place_of"]
