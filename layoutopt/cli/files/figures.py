"""Writing of figures as SVG files."""

from pathlib import Path
from typing import Any

from layoutopt.files import FileKind, Overwrite, write_text

_HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'


def write_figure(figure: Any, path: Path, overwrite: Overwrite) -> None:
    """Write a figure as SVG, atomically.

    Raises:
        OutputError: the file cannot be written, or must not be replaced.
    """
    write_text(path, figure.as_svg(header=_HEADER), FileKind.FIGURE, overwrite)
