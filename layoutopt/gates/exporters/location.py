"""The location of a model in a repository, as SARIF and GitHub name it."""

import os
from pathlib import Path
from urllib.parse import quote, unquote

_OUTSIDE = "file://"


def model_uri(model: Path, root: Path) -> str:
    """The path of a model from the root of the repository, percent-encoded; a file:// URI if it is outside."""
    path, folder = (Path(os.path.abspath(each)) for each in (model, root))
    if path.is_relative_to(folder):
        return quote(os.fsencode(path.relative_to(folder).as_posix()))
    return f"{_OUTSIDE}{quote(os.fsencode(path.as_posix()))}"


def is_in_repository(uri: str) -> bool:
    """Whether a URI of `model_uri` is relative to the root of the repository."""
    return not uri.startswith(_OUTSIDE)


def uri_path(uri: str) -> str:
    """The path in a URI of `model_uri`; bytes that are not UTF-8 are replaced."""
    return unquote(uri.removeprefix(_OUTSIDE), errors="replace")
