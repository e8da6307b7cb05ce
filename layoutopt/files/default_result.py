"""Default results: files with the name that nobody typed, which are replaced only if layoutopt wrote them."""

import filecmp
from pathlib import Path

from layoutopt.errors import OutputError
from layoutopt.files.onnx_file import metadata_keys
from layoutopt.files.staging import path_text

_STAMP = "layoutopt"  # report.stamp.KEY, whose module imports large libraries


def was_written_for(output: Path, model: Path) -> bool:
    """Whether layoutopt wrote an existing file as the result of a model: it has the stamp, or is a copy of the model."""
    return _STAMP in metadata_keys(output) or _is_copy(output, model)


def check_default_result(output: Path, model: Path) -> None:
    """Check that an existing file with the default name of the result of a model was written by layoutopt.

    Raises:
        OutputError: it was not.
    """
    if output.exists() and output.stat().st_size and not was_written_for(output, model):
        hint = "name the result with -o, or replace the file with --force"
        raise OutputError("exists and was not written by layoutopt", where=path_text(output), hint=hint)


def _is_copy(output: Path, model: Path) -> bool:
    try:
        return filecmp.cmp(output, model, shallow=False)
    except OSError:
        return False
