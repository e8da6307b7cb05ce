"""Writing of SVG files."""

from importlib import import_module
from pathlib import Path
from typing import Any

from layoutopt.files import PICTURE_MARK, FileKind, Overwrite, write_text

_HEADER = f'<?xml version="1.0" encoding="UTF-8"?>\n{PICTURE_MARK}\n'


def require_drawing() -> None:
    """Check that the drawing libraries are installed, before a plan is made.

    Raises:
        LayoutoptError: a library of the extra `layoutopt[plot]` is missing.
    """
    import_module("layoutopt.plot")


def write_picture(figure: Any, path: Path, overwrite: Overwrite) -> None:
    """Write a drawing as SVG, atomically.

    Raises:
        OutputError: the file cannot be written, or must not be replaced.
    """
    write_text(path, figure.as_svg(header=_HEADER), FileKind.PICTURE, overwrite)
