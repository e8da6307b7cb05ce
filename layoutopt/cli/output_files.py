"""The files that a command writes, checked before its work: texts and the JSON record; models on stdin and stdout."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from layoutopt import onnx_io
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import Given
from layoutopt.cli.rendering.terminal import Document, documents_text, json_text, show_text, stdout_error
from layoutopt.driver.result import Result
from layoutopt.errors import ModelError, OutputError
from layoutopt.files import (
    FileKind,
    Overwrite,
    is_same_file,
    marked,
    output_errors,
    path_text,
    staged_text,
    write_text,
)
from layoutopt.version import VERSION

STDIO = Path("-")
"""The argument that denotes stdin or stdout."""


class OutputFiles:
    """The text files of a command, and its JSON record, which is printed or one of the files.

    Args:
        command: the name of the command.
        given: its options.
        sources: the models that the files are made of.
        output: the output model, if the command line names it.
        results: further files of the command, which no option for an output may name.
        reads: further files that the command reads.

    Attributes:
        overwrite: the rule for existing files.
        is_printed: whether the record goes to stdout.

    Raises:
        UsageError: the file of the record is one of the sources or results.
        OutputError: the file cannot be written, or must not be replaced.
    """

    def __init__(
        self,
        command: str,
        given: Given,
        *sources: Path,
        output: Path | None = None,
        results: Sequence[Path] = (),
        reads: Sequence[Path] = (),
    ) -> None:
        self.overwrite = Overwrite(sources, output, given.force, tuple(reads), command)
        self.is_printed = given.json == STDIO
        self._path = None if self.is_printed else given.json
        self._is_quiet = given.is_quiet
        self._has_lines = False
        self._error: OutputError | None = None
        self._record = ""
        self._taken = [
            *((each, "a model") for each in sources),
            *((each, "another file of this command") for each in results),
        ]
        self._texts: list[tuple[Path, FileKind, Callable[[], str]]] = []
        self.add("--json", self._path, FileKind.REPORT, lambda: self._record)

    def add(self, option: str, path: Path | None, kind: FileKind, text: Callable[[], str]) -> None:
        """Add the file of an option, None for none, with the function that computes its text.

        Raises:
            UsageError: it is another file of the command.
            OutputError: it cannot be written, or must not replace an existing file.
        """
        if path is not None:
            self.take(f"{option} {path_text(path)}", path, f"the file of {option}")
            self.overwrite.check(path, kind)
            self._texts.append((path, kind, text))

    def take(self, where: str, path: Path, description: str) -> None:
        """Add a file that the command writes by itself.

        Raises:
            UsageError: it is another file of the command.
        """
        if other := next((what for each, what in self._taken if is_same_file(path, each)), None):
            raise UsageError(f"that is {other}", where=where, hint="name another file")
        self._taken.append((path, description))

    @contextmanager
    def staged(self, data: Any) -> Iterator[None]:
        """Write the texts under temporary names, and rename the files when the context ends without an error.

        Args:
            data: the record: a report, or a dictionary, which gets the key `layoutopt_version`.

        Raises:
            OutputError: a file cannot be written; none is then.
        """
        self._record = json_text({"layoutopt_version": VERSION} | data if isinstance(data, dict) else data)
        with ExitStack() as stack:
            for path, kind, text in self._texts:
                stack.enter_context(staged_text(path, text(), kind, self.overwrite))
            yield

    def print(self, text: str) -> None:
        """Print the record or, unless only warnings are printed, the text.

        Raises:
            OutputError: a line of `add_line` could not be written.
            StdoutError: stdout cannot be written.
        """
        if self._error is not None:
            raise self._error
        note = "; all files are written" if self._texts or self.overwrite.output else ""
        if self.is_printed:
            show_text(self._record, note)
        elif not self._is_quiet:
            show_text(text, note)

    def show(self, data: Any, *documents: Document) -> None:
        """Write all files, and print the record or the documents; `data` is that of `staged`.

        Raises:
            OutputError: a file cannot be written.
            StdoutError: stdout cannot be written.
        """
        with self.staged(data):
            pass
        self.print(documents_text(*documents))

    def add_line(self, data: Any, source: Path) -> None:
        """Print one line about a model, or write it to the file, which the first line replaces and the others extend.

        After an error, which `print` raises, the file gets no more lines.

        Raises:
            StdoutError: stdout cannot be written.
        """
        text, kind = json_text(data, None), FileKind.REPORT
        if self.is_printed:
            show_text(text)
        elif self._path is not None and self._error is None:
            try:
                if self._has_lines:
                    _append(self._path, marked(text, kind, self.overwrite.mark(self._path, kind, [source])))
                else:
                    write_text(self._path, text, kind, self.overwrite, [source])
                    self._has_lines = True
            except OutputError as error:
                self._error = error


def _append(path: Path, text: str) -> None:
    """Add text to a file, or nothing if not all of it can be written; then it raises an OutputError."""
    with output_errors(path):
        size = path.stat().st_size
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            os.truncate(path, size)
            raise


# --- models ------------------------------------------------------------------------------------------------


def read_stdin() -> bytes:
    """The bytes of the model on stdin.

    Raises:
        UsageError: stdin is a terminal.
        ModelError: stdin cannot be read.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("stdin is a terminal", where="-", hint="pipe a model into it: layoutopt - < model.onnx")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise ModelError(what, where="stdin", hint="name a file instead") from error


def print_model(result: Result) -> None:
    """Write the model to stdout, with all weights; an unchanged model of one file is copied byte for byte.

    Raises:
        StdoutError: stdout cannot be written.
        OutputError: the model is larger than one message can be.
    """
    is_copy = isinstance(result.source, str) and not onnx_io.has_external_data(result.model)
    content = Path(str(result.source)).read_bytes() if is_copy else result.proto.SerializeToString(deterministic=True)
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise stdout_error(error) from error
