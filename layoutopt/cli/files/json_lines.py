"""The JSON records of several models (`--json FILE`): one line of JSON per model as it ends, in a file or on stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutopt.cli.files.json_record import JsonRecord
from layoutopt.cli.rendering.json_text import json_line
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.errors import OutputError


class JsonLines:
    """The destination of one line per model: stdout, or a file, which the first line replaces and the others extend.

    Args:
        path: the file, `-` for stdout, or None.
        models: the models.
        others: further files that the command writes.
        reads: further files that the command reads.
        force: whether a file is replaced that has other lines than those of these models.

    Attributes:
        are_printed: whether the lines go to stdout.

    Raises:
        UsageError: the path is one of the sources.
        OutputError: the file cannot be written, or must not be replaced.
    """

    def __init__(
        self, path: Path | None, models: Sequence[Path], others: Sequence[Path], reads: Sequence[Path], *, force: bool
    ) -> None:
        self._record = JsonRecord("optimize", path, *models, others=others, reads=reads, force=force)
        self.are_printed = self._record.is_printed
        self._error: OutputError | None = None

    @property
    def files(self) -> list[Path]:
        """The written file; empty before it is written."""
        return self._record.files

    def add(self, data: Any, model: Path) -> None:
        """Print the line of a model, or write it to the file; after an error the file gets no more lines.

        Raises:
            StdoutError: stdout cannot be written.
        """
        if self.are_printed:
            show_text(json_line(data))
        elif self._record.is_requested and self._error is None:
            try:
                self._record.append_text(json_line(data), model)
            except OutputError as error:
                self._error = error

    def check(self) -> None:
        """Check that the file has all lines.

        Raises:
            OutputError: the file could not be written.
        """
        if self._error is not None:
            raise self._error
