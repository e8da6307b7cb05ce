"""Line numbers of the keys of a TOML file, which tomllib does not report."""

import tomllib
from collections.abc import Sequence
from typing import Any


def line_of(text: str, path: Sequence[str]) -> int:
    """The number of the line that defines a key, or of the closest table around it.

    Args:
        text: a valid TOML file.
        path: the names of the tables and of the key.
    """
    table: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = _path(line) if line.lstrip().startswith("[") else ()
        key = () if header else _key(line)
        table = header or table
        found = header or ((*table, *key) if key else ())
        if len(found) > depth and tuple(path[: len(found)]) == found:
            best, depth = number, len(found)
    return best


def _key(line: str) -> tuple[str, ...]:
    """The names on the left of a line `key = value`; empty for any other line."""
    position = line.find("=")
    while position >= 0:
        if found := _path(f"{line[:position]} = 0"):
            return found
        position = line.find("=", position + 1)
    return ()


def _path(line: str) -> tuple[str, ...]:
    """The names that one line of TOML defines; empty if it is not valid on its own."""
    try:
        level: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    names = []
    while isinstance(level, list | dict) and level:
        if isinstance(level, dict):
            names.append(next(iter(level)))
        level = level[names[-1]] if isinstance(level, dict) else level[0]
    return tuple(names)
