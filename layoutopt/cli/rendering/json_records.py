"""The JSON record of a command, for `--json FILE`: a file, or stdout in place of the tables."""

from pathlib import Path
from typing import Any

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.files import Kind, Overwrite, is_same_file, write_text

_STDOUT = Path("-")


class Record:
    """Where a command's record goes, checked before the work begins.

    Args:
        path: the file, `-` for stdout, or None.
        sources: the files that the command reads or writes besides it.
        kind: what the sources are, with an article.
        force: whether an existing file of another kind may be replaced.

    Attributes:
        is_printed: whether the record goes to stdout.
        files: the file, once it is written.

    Raises:
        UsageError: it is one of the sources.
        OutputError: it cannot be written, or must not replace what is there.
    """

    def __init__(self, path: Path | None, *sources: Path, kind: str = "a model", force: bool = False) -> None:
        self.is_printed = path == _STDOUT
        self.files: list[Path] = []
        self._path = None if self.is_printed else path
        self._rule = Overwrite(sources, None, force)
        if self._path is None:
            return
        if any(is_same_file(self._path, source) for source in sources):
            raise UsageError(f"that is {kind}", where=f"--json {path}", hint="name another file")
        self._rule.check(self._path, Kind.REPORT)

    def write(self, data: Any) -> None:
        """Write or print the record.

        Raises:
            OutputError: it cannot be written.
            StdoutError: it cannot be printed.
        """
        if self.is_printed:
            show_text(json_text(data))
        if self._path is not None:
            write_text(self._path, json_text(data), Kind.REPORT, self._rule)
            self.files = [self._path]
