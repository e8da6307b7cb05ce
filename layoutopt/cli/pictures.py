"""Pictures as files."""

from pathlib import Path
from typing import Any

from layoutopt.cli.files import Staged


def write_picture(figure: Any, path: Path) -> None:
    """Write a drawing as SVG, whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    staged = Staged(path)
    try:
        staged.write(figure.as_svg())
        staged.commit()
    finally:
        staged.close()
