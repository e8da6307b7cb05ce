"""The JSON records of several models (`--json FILE`): one line of JSON per model, in a file or on stdout."""

from pathlib import Path
from typing import Any

from layoutopt.cli.files.json_record import JsonRecord
from layoutopt.cli.rendering.json_text import json_line
from layoutopt.cli.rendering.terminal import show_text


class JsonLines:
    """The destination of one line per model: stdout at once, or a file that is written when all models are done.

    Args:
        path: the file, `-` for stdout, or None.
        sources: the other files that the command reads or writes.
        force: whether an existing file of another kind may be replaced.

    Attributes:
        are_printed: whether the lines go to stdout.

    Raises:
        UsageError: the path is one of the sources.
        OutputError: the file cannot be written, or must not be replaced.
    """

    def __init__(self, path: Path | None, *sources: Path, force: bool) -> None:
        self._record = JsonRecord(path, *sources, force=force)
        self.are_printed = self._record.is_printed
        self._lines: list[str] = []

    @property
    def files(self) -> list[Path]:
        """The written file; empty before it is written."""
        return self._record.files

    def add(self, data: Any) -> None:
        """Print the line of a model, or keep it for the file.

        Raises:
            StdoutError: stdout cannot be written.
        """
        if self.are_printed:
            show_text(json_line(data))
        elif self._record.is_requested:
            self._lines.append(json_line(data))

    def write(self) -> None:
        """Write the file.

        Raises:
            OutputError: the file cannot be written.
        """
        if not self.are_printed:
            self._record.write_text("".join(self._lines))
