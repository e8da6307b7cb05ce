"""Paths that are valid UTF-8, for runtimes that accept no others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layoutopt.files import external_locations, scratch_folder


@contextmanager
def utf8_path(path: bytes | str | os.PathLike[str]) -> Iterator[Any]:
    """A UTF-8 path of a model file or a folder, valid while a session is created; the bytes of a model themselves.

    A path that is not UTF-8 is replaced by a symbolic link in a temporary folder; the external data of a model is linked next
    to it.
    """
    if isinstance(path, bytes) or _is_utf8(Path(path)):
        yield path if isinstance(path, bytes) else str(path)
        return
    path = Path(path)
    with scratch_folder() as folder:
        link = folder / ("folder" if path.is_dir() else "model.onnx")
        link.symlink_to(path.absolute())
        for location in () if path.is_dir() else filter(_is_inside, external_locations(path)):
            (folder / location).parent.mkdir(parents=True, exist_ok=True)
            (folder / location).symlink_to(path.absolute().parent / location)
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
