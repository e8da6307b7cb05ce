"""The JSON record of a command (`--json FILE`), in a file, or on stdout instead of tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.files import FileKind, Overwrite, is_same_file, marked, output_errors, write_text
from layoutopt.version import VERSION

_STDOUT = Path("-")


class JsonRecord:
    """The destination of a command's JSON record, checked before the command starts its work.

    Args:
        command: the name of the command.
        path: the file, `-` for stdout, or None.
        sources: the files that the record is about.
        others: further files that the command writes.
        reads: further files that the command reads.
        kind: the name of sources and others in error messages, such as "a model".
        force: whether a file is replaced that is no record of this command about the sources.

    Attributes:
        is_requested: whether there is a destination.
        is_printed: whether the record goes to stdout.
        files: the written file; empty before it is written.

    Raises:
        UsageError: the path is one of the sources.
        OutputError: the file cannot be written, or must not be replaced.
    """

    def __init__(
        self,
        command: str,
        path: Path | None,
        *sources: Path,
        others: Sequence[Path] = (),
        reads: Sequence[Path] = (),
        kind: str = "a model",
        force: bool = False,
    ) -> None:
        self.is_requested = path is not None
        self.is_printed = path == _STDOUT
        self.files: list[Path] = []
        self._path = None if self.is_printed else path
        self._overwrite = Overwrite(sources, None, force, tuple(reads), command)
        if self._path is None:
            return
        if any(is_same_file(self._path, each) for each in (*sources, *others)):
            raise UsageError(f"that is {kind}", where=f"--json {path}", hint="name another file")
        self._overwrite.check(self._path, FileKind.REPORT)

    def write(self, data: Any) -> None:
        """Write or print the record: a report, or a dictionary, which gets the key `layoutopt_version`.

        Raises:
            OutputError: the file cannot be written.
            StdoutError: stdout cannot be written.
        """
        if self.is_requested:
            self._write(json_text({"layoutopt_version": VERSION} | data if isinstance(data, dict) else data))

    def _write(self, text: str, sources: Sequence[Path] | None = None) -> None:
        """Write or print a record that is serialised already, about some of the sources if they are given."""
        if self.is_printed:
            show_text(text)
        if self._path is not None:
            write_text(self._path, text, FileKind.REPORT, self._overwrite, sources)
            self.files = [self._path]

    def append_text(self, text: str, source: Path) -> None:
        """Write the first text to the file, and append the following ones; a text that does not fit leaves no part behind.

        Args:
            text: a line.
            source: the model that it is about.

        Raises:
            OutputError: the file cannot be written.
        """
        if self._path is None:
            return
        if not self.files:
            self._write(text, [source])
            return
        text = marked(text, FileKind.REPORT, self._overwrite.mark(self._path, FileKind.REPORT, [source]))
        with output_errors(self._path), self._path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                rest = memoryview(text.encode("utf-8"))
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise
