"""Paths for runtimes that take only UTF-8 text."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layoutopt.files import external_locations, scratch_folder


@contextmanager
def utf8_path(model: str | os.PathLike[str]) -> Iterator[str]:
    """A path to a model file that is UTF-8 text, for as long as a session is created.

    A path with other bytes is replaced by a temporary folder of symbolic links to the model and its external data.
    """
    path = Path(model)
    if _is_utf8(path):
        yield str(path)
        return
    with scratch_folder() as folder:
        link = folder / "model.onnx"
        link.symlink_to(path.absolute())
        for location in filter(_is_inside, external_locations(path) or ()):
            (folder / location).parent.mkdir(parents=True, exist_ok=True)
            (folder / location).symlink_to(path.absolute().parent / location)
        yield str(link)


@contextmanager
def utf8_folder(folder: str | os.PathLike[str]) -> Iterator[str]:
    """A path to a folder that is UTF-8 text, for as long as a session is created; if need be, a temporary symbolic link."""
    path = Path(folder)
    if _is_utf8(path):
        yield str(path)
        return
    with scratch_folder() as scratch:
        link = scratch / "folder"
        link.symlink_to(path.absolute())
        yield str(link)


def _is_inside(location: str) -> bool:
    """Whether external data is in the folder of its model, as runtimes require."""
    return not os.path.isabs(location) and ".." not in Path(location).parts


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
