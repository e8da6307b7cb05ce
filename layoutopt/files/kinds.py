"""Kinds of output files, and the mark by which a later run recognises what an earlier one wrote.

A mark contains the command, the kind and a hash of the sources: their paths from the folder of the file. It is stored
in the metadata of a model, in the first key of a JSON object, and in a comment at the end of any other text.
"""

import json
import os
import re
from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from layoutopt.files.onnx_file import is_onnx_file

MARK = "layoutopt_file"
"""The key of the mark."""

_MAX_TEXT_BYTES = 1 << 28  # bytes of the largest text file that is read
_HEAD_BYTES = 4096  # bytes
_COMMENT = re.compile(rf"^(?:<!--|#) {MARK}: ([a-z _]+ [0-9a-f]{{16}})(?: -->)?$", re.MULTILINE)


class FileKind(Enum):
    """The kinds of output files; the values are their names in messages."""

    MODEL = "a model"
    WEIGHTS = "external data"
    REPORT = "a JSON record"
    CERTIFICATE = "a certificate"
    FIGURE = "a figure"
    PAGE = "a page"
    TARGET = "a target file"
    GRAPH_TEXT = "a dumped graph"
    JUNIT = "a JUnit report"
    SARIF = "a SARIF report"
    BASELINE = "a baseline of ci"


_KEYS = {FileKind.BASELINE: "layoutopt_baseline"}
"""The keys of files that a command continues, whatever their sources are; they have no mark."""

_JSON = frozenset({FileKind.REPORT, FileKind.CERTIFICATE})
_XML = frozenset({FileKind.FIGURE, FileKind.PAGE, FileKind.JUNIT})


def mark_of(kind: FileKind, command: str, sources: Sequence[Path], folder: Path) -> str:
    """The mark of a file in a folder: the same if command and sources are moved together with it."""
    base = os.path.realpath(folder)
    paths = b"\0".join(os.fsencode(os.path.relpath(os.path.realpath(each), base)) for each in sources)
    return f"{command} {kind.name.lower()} {blake2b(paths, digest_size=8).hexdigest()}"


def marked(content: str, kind: FileKind, mark: str) -> str:
    """The content of a text file with its mark."""
    if kind in _KEYS:
        return content
    if kind in _JSON:
        return f'{{"{MARK}": "{mark}",{content[1:]}'
    if kind is FileKind.SARIF:  # its schema permits other keys in a bag of properties only
        return f'{{"properties": {{"{MARK}": "{mark}"}},{content[1:]}'
    begin, end = ("<!--", " -->") if kind in _XML else ("#", "")
    return f"{content.rstrip()}\n{begin} {MARK}: {mark}{end}\n"


def has_kind(path: Path, kind: FileKind, marks: Sequence[str]) -> bool:
    """Whether an existing text file has the kind and one of the marks.

    JSON lines have it if each line has another one of the marks.
    """
    if path.stat().st_size > _MAX_TEXT_BYTES:
        return False
    text = path.read_bytes().decode("utf-8", "replace")
    if kind in _KEYS:
        return any(_KEYS[kind] in each for each in (_json(text), _json(text.partition("\n")[0])))
    found = _marks(text)
    return bool(found) and len({*found}) == len(found) and {*found} <= {*marks}


def _marks(text: str) -> list[Any]:
    """The marks in a text: those of JSON objects, one per line or of the whole text, or of its comments."""
    if not text.startswith("{"):
        return _COMMENT.findall(text)
    records = [whole] if (whole := _json(text)) else [_json(line) for line in text.splitlines()]
    bags = (each.get("properties") if "runs" in each else each for each in records)
    return [str(bag.get(MARK)) if isinstance(bag, dict) else "" for bag in bags]


def _json(text: str) -> dict[str, Any]:
    """The JSON object in a text; an empty one if there is none."""
    try:
        found = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_text_file(path: Path) -> bool:
    """Whether a file is text, as far as its beginning shows; an empty file is."""
    with path.open("rb") as file:
        return not is_onnx_file(path) and b"\0" not in file.read(_HEAD_BYTES)
