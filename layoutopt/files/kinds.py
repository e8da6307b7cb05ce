"""Kinds of output files, and recognition of predecessors: existing files that a new file of the kind may replace.

A predecessor is recognised by its content, not by its name. An empty file is a predecessor for every kind.
"""

import json
import tomllib
from enum import Enum
from pathlib import Path
from typing import Any

from layoutopt.files.onnx_file import is_onnx_file

FIGURE_MARK = "<!-- drawn by layoutopt -->"
JUNIT_MARK = '<testsuites name="layoutopt ci"'
SARIF_TOOL = "layoutopt"
PAGE_MARK = '<meta name="generator" content="layoutopt'
_MAX_TEXT_BYTES = 1 << 28  # bytes of the largest text file that is read
_HEAD_BYTES = 4096  # bytes


class FileKind(Enum):
    """The kinds of output files; the values are their names in messages."""

    MODEL = "an ONNX model"
    WEIGHTS = "weights of the model that is written"
    REPORT = "a JSON report of layoutopt"
    FIGURE = "a figure by layoutopt"
    PAGE = "a page by layoutopt"
    TARGET = "a target file of layoutopt calibrate"
    GRAPH_TEXT = "a graph dumped by layoutopt"
    JUNIT = "a JUnit report of layoutopt ci"
    SARIF = "a SARIF report of layoutopt ci"
    BASELINE = "a baseline of layoutopt ci"


def is_predecessor(path: Path, kind: FileKind) -> bool:
    """Whether a file of this kind may replace the existing file at `path`."""
    if path.stat().st_size == 0:
        return True
    match kind:
        case FileKind.MODEL:
            return is_onnx_file(path)
        case FileKind.WEIGHTS:
            return False  # raw bytes cannot be recognised
        case FileKind.FIGURE:
            return FIGURE_MARK in _text(path, _HEAD_BYTES)
        case FileKind.PAGE:
            return PAGE_MARK in _text(path, _HEAD_BYTES)
        case FileKind.GRAPH_TEXT:
            return _text(path, _HEAD_BYTES).startswith("graph ")
        case FileKind.REPORT:
            text = _text(path)
            return any("layoutopt_version" in _json(each) for each in (text, text.partition("\n")[0]))  # or JSON lines
        case FileKind.JUNIT:
            return JUNIT_MARK in _text(path, _HEAD_BYTES)
        case FileKind.SARIF:
            return _sarif_tools(_json(_text(path))) == [SARIF_TOOL]
        case FileKind.BASELINE:
            return "layoutopt_baseline" in _json(_text(path))
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


def _sarif_tools(log: dict[str, Any]) -> list[object]:
    """The names of the tools of a SARIF log, one per run; empty if it is not one."""
    try:
        return [run["tool"]["driver"]["name"] for run in log["runs"]]
    except (KeyError, TypeError):
        return []


def is_text_file(path: Path) -> bool:
    """Whether a file is text, as far as its beginning shows; an empty file is."""
    with path.open("rb") as file:
        return not is_onnx_file(path) and b"\0" not in file.read(_HEAD_BYTES)


def _is_calibrated(text: str) -> bool:
    try:
        return "layoutopt calibrate" in text and "inherits" in tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
