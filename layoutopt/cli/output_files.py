"""The files that commands write, checked before the work: JSON records, and models with their texts; stdin and stdout."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from layoutopt import onnx_io
from layoutopt.cli.exit_codes import StdoutError, UsageError
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


@contextmanager
def reporting_written_files(files: Sequence[Path]) -> Iterator[None]:
    """Context in which a command prints its results; if printing fails, the error names the files already written.

    Raises:
        StdoutError: stdout cannot be written.
    """
    try:
        yield
    except StdoutError as error:
        if not files:
            raise
        names = ", ".join(map(path_text, files))
        verb = "is" if len(files) == 1 else "are"
        what = f"{error.what}; {names} {verb} written, but the output could not be printed"
        raise StdoutError(what, where=error.where, hint=error.hint) from error.__cause__


# --- text files --------------------------------------------------------------------------------------------


class TextFiles:
    """The text files of one run of a command, by the option that names each.

    Args:
        overwrite: the rule for existing files.
        taken: other files of the run, with their descriptions in errors.

    Attributes:
        overwrite: the rule.
        files: the files written so far.
    """

    def __init__(self, overwrite: Overwrite, taken: Sequence[tuple[str, Path | None]] = ()) -> None:
        self.overwrite = overwrite
        self.files: list[Path] = []
        self._taken = list(taken)
        self._texts: list[tuple[Path, FileKind, Callable[[], str]]] = []

    def add(self, option: str, path: Path | None, kind: FileKind, text: Callable[[], str]) -> None:
        """Add the file of an option, None for none, with the function that computes its text.

        Raises:
            UsageError: it is another file of the run.
            OutputError: it cannot be written, or must not replace an existing file.
        """
        if path is not None:
            self.take(f"{option} {path_text(path)}", path, f"the file of {option}")
            self.overwrite.check(path, kind)
            self._texts.append((path, kind, text))

    def take(self, where: str, path: Path, description: str) -> None:
        """Add another file of the run.

        Raises:
            UsageError: the run has it already.
        """
        for what, other in self._taken:
            if other is not None and is_same_file(path, other):
                raise UsageError(f"that is {what}", where=where, hint="name another file")
        self._taken.append((description, path))

    @contextmanager
    def staged(self) -> Iterator[None]:
        """Write the texts under temporary names, and rename the files when the context ends without an error.

        Raises:
            OutputError: a file cannot be written; none is then.
        """
        with ExitStack() as stack:
            for path, kind, text in self._texts:
                stack.enter_context(staged_text(path, text(), kind, self.overwrite))
            yield
        self.files += [path for path, _, _ in self._texts]

    def write(self) -> None:
        """Write the texts.

        Raises:
            OutputError: a file cannot be written; none is then.
        """
        with self.staged():
            pass


class JsonRecord(TextFiles):
    """The JSON record of a command, in a file, or on stdout instead of text; with further files of the command.

    Args:
        command: the name of the command.
        given: its options.
        sources: the files that the record is about.
        others: further files that the command writes.
        reads: further files that the command reads.

    Attributes:
        is_printed: whether the record goes to stdout.

    Raises:
        UsageError: the path is one of the sources.
        OutputError: the file cannot be written, or must not be replaced.
    """

    def __init__(
        self, command: str, given: Given, *sources: Path, others: Sequence[Path] = (), reads: Sequence[Path] = ()
    ) -> None:
        overwrite = Overwrite(sources, None, given.force, tuple(reads), command)
        written = (("another file of this command", each) for each in others)
        super().__init__(overwrite, [*(("a model", each) for each in sources), *written])
        self.is_printed = given.json == STDIO
        self._is_quiet = given.is_quiet
        self._path = None if self.is_printed else given.json
        self._error: OutputError | None = None
        self._text = ""
        self.add("--json", self._path, FileKind.REPORT, lambda: self._text)

    def show(self, data: Any, *documents: Document) -> None:
        """Write all files, and print the record or, unless only warnings are printed, the documents.

        Args:
            data: the record: a report, or a dictionary, which gets the key `layoutopt_version`.
            documents: the texts of the record.

        Raises:
            OutputError: a file cannot be written.
            StdoutError: stdout cannot be written.
        """
        self._text = json_text({"layoutopt_version": VERSION} | data if isinstance(data, dict) else data)
        self.write()
        with reporting_written_files(self.files):
            if self.is_printed:
                show_text(self._text)
            elif not self._is_quiet:
                show_text(documents_text(*documents))

    def add_line(self, data: Any, source: Path) -> None:
        """Print one line about a model, or write it to the file, which the first line replaces and the others extend.

        After an error the file gets no more lines; a line that does not fit leaves no part behind.

        Raises:
            StdoutError: stdout cannot be written.
        """
        if self.is_printed:
            show_text(json_text(data, None))
        elif self._path is not None and self._error is None:
            try:
                self._append(self._path, json_text(data, None), source)
            except OutputError as error:
                self._error = error

    def check_lines(self) -> None:
        """Check that the file has all lines.

        Raises:
            OutputError: the file could not be written.
        """
        if self._error is not None:
            raise self._error

    def _append(self, path: Path, text: str, source: Path) -> None:
        if not self.files:
            write_text(path, text, FileKind.REPORT, self.overwrite, [source])
            self.files = [path]
            return
        text = marked(text, FileKind.REPORT, self.overwrite.mark(path, FileKind.REPORT, [source]))
        with output_errors(path), path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                rest = memoryview(text.encode("utf-8"))
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise


# --- models ------------------------------------------------------------------------------------------------


def weights_path(model: Path, name: str) -> Path:
    """The path of the weights file with this name, in the folder of the model.

    Raises:
        UsageError: the name contains a folder, is empty or is that of the model.
    """
    if name in ("", ".", "..") or Path(name).name != name or name == model.name:
        hint = f"name another file next to {model}, without a folder"
        raise UsageError("not a name for a weights file", where=f"--external-data {name}", hint=hint)
    return model.with_name(name)


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
