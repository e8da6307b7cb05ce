"""Kinds of output files, and recognition of predecessors: existing files that a new file of the kind may replace.

A predecessor is recognised by its content, not by its name. An empty file is a predecessor for every kind.
"""

import json
import tomllib
from enum import Enum
from pathlib import Path

from layoutopt.files.onnx_file import is_onnx_file

PICTURE_MARK = "<!-- drawn by layoutopt -->"
PAGE_MARK = '<meta name="generator" content="layoutopt'
_MAX_TEXT_BYTES = 1 << 28  # bytes of the largest text file that is read
_HEAD_BYTES = 4096  # bytes


class FileKind(Enum):
    """The kinds of output files; the values are their names in messages."""

    MODEL = "an ONNX model"
    WEIGHTS = "weights of the model that is written"
    REPORT = "a JSON report of layoutopt"
    PICTURE = "a picture by layoutopt"
    PAGE = "a page by layoutopt"
    TARGET = "a target file of layoutopt calibrate"
    MEASUREMENTS = "a state file of layoutopt calibrate"
    GRAPH_TEXT = "a graph dumped by layoutopt"


def is_predecessor(path: Path, kind: FileKind) -> bool:
    """Whether a file of this kind may replace the existing file at `path`."""
    if path.stat().st_size == 0:
        return True
    match kind:
        case FileKind.MODEL:
            return is_onnx_file(path)
        case FileKind.WEIGHTS:
            return False  # raw bytes cannot be recognised
        case FileKind.PICTURE:
            return PICTURE_MARK in _text(path, _HEAD_BYTES)
        case FileKind.PAGE:
            return PAGE_MARK in _text(path, _HEAD_BYTES)
        case FileKind.GRAPH_TEXT:
            return _text(path, _HEAD_BYTES).startswith("graph ")
        case FileKind.REPORT:
            return "layoutopt_version" in _json(_text(path))
        case FileKind.MEASUREMENTS:
            return "calibration" in _json(_text(path).partition("\n")[0])
        case FileKind.TARGET:
            return _is_calibrated(_text(path))


def _text(path: Path, length: int = _MAX_TEXT_BYTES) -> str:
    """The beginning of a text file; empty if it is too long to be one of layoutopt's."""
    if path.stat().st_size > _MAX_TEXT_BYTES:
        return ""
    with path.open("rb") as file:
        return file.read(length).decode("utf-8", "replace")


def _json(text: str) -> dict[str, object]:
    """The JSON object in a text; an empty one if there is none."""
    try:
        found = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_calibrated(text: str) -> bool:
    try:
        return "layoutopt calibrate" in text and "inherits" in tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
