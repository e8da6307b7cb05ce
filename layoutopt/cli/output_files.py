"""The files that commands write, checked before the work: JSON records, and models with their texts; stdin and stdout."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from layoutopt import onnx_io
from layoutopt.cli.exit_codes import StdoutError, UsageError
from layoutopt.cli.options import Given
from layoutopt.cli.rendering.json_text import json_line, json_text
from layoutopt.cli.rendering.terminal import file_size, show_text
from layoutopt.driver.result import Result
from layoutopt.errors import ModelError, OutputError
from layoutopt.files import (
    FileKind,
    Overwrite,
    external_files,
    is_same_file,
    marked,
    output_errors,
    path_text,
    staged_text,
    write_text,
)
from layoutopt.onnx_io.writer import WrittenFiles, check_name
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
        self._kinds: dict[str, tuple[Path, FileKind]] = {}

    def add(self, option: str, path: Path | None, kind: FileKind) -> None:
        """Add the file of an option; None for none.

        Raises:
            UsageError: it is another file of the run.
        """
        if path is None:
            return
        self.check_distinct(f"{option} {path_text(path)}", path)
        self._taken.append((f"the file of {option}", path))
        self._kinds[option] = path, kind

    def check_distinct(self, where: str, path: Path) -> None:
        """Refuse another file of the run.

        Raises:
            UsageError: the path is one.
        """
        for what, other in self._taken:
            if other is not None and is_same_file(path, other):
                raise UsageError(f"that is {what}", where=where, hint="name another file")

    def check(self) -> None:
        """Check that the files can be written.

        Raises:
            OutputError: one cannot, or must not replace an existing file.
        """
        for path, kind in self._kinds.values():
            self.overwrite.check(path, kind)

    @contextmanager
    def staged(self, text: Callable[[str], str]) -> Iterator[None]:
        """Write the text of each option under a temporary name, and rename the files when the context ends without an error.

        Raises:
            OutputError: a file cannot be written; none is then.
        """
        with ExitStack() as stack:
            for option, (path, kind) in self._kinds.items():
                stack.enter_context(staged_text(path, text(option), kind, self.overwrite))
            yield
        self.files += [path for path, _ in self._kinds.values()]


class JsonRecord(TextFiles):
    """The JSON record of a command, in a file, or on stdout instead of tables.

    Args:
        command: the name of the command.
        given: its options; None for no record.
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
        self, command: str, given: Given | None, *sources: Path, others: Sequence[Path] = (), reads: Sequence[Path] = ()
    ) -> None:
        overwrite = Overwrite(sources, None, given is not None and given.force, tuple(reads), command)
        written = (("another file of this command", each) for each in others)
        super().__init__(overwrite, [*(("a model", each) for each in sources), *written])
        path = given.json if given is not None else None
        self.is_printed = path == STDIO
        self._is_quiet = given is not None and given.is_quiet
        self._path = None if self.is_printed else path
        self._error: OutputError | None = None
        self.add("--json", self._path, FileKind.REPORT)
        self.check()

    def write(self, data: Any) -> None:
        """Write or print the record: a report, or a dictionary, which gets the key `layoutopt_version`.

        Raises:
            OutputError: the file cannot be written.
            StdoutError: stdout cannot be written.
        """

        def text(option: str = "--json") -> str:
            return json_text({"layoutopt_version": VERSION} | data if isinstance(data, dict) else data)

        if self.is_printed:
            show_text(text())
        else:
            with self.staged(text):
                pass

    def show(self, data: Any, print_text: Callable[[], None], written: Sequence[Path] = ()) -> None:
        """Write the record, then print the results as text, unless the record is printed or only warnings are.

        Args:
            data: the record.
            print_text: prints the results.
            written: other files that are written already.
        """
        self.write(data)
        if not self.is_printed and not self._is_quiet:
            with reporting_written_files([*written, *self.files]):
                print_text()

    def add_line(self, data: Any, source: Path) -> None:
        """Print one line about a model, or write it to the file, which the first line replaces and the others extend.

        After an error the file gets no more lines; a line that does not fit leaves no part behind.

        Raises:
            StdoutError: stdout cannot be written.
        """
        if self.is_printed:
            show_text(json_line(data))
        elif self._path is not None and self._error is None:
            try:
                self._append(self._path, json_line(data), source)
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


class Outputs(TextFiles):
    """The output files of one model of `optimize`.

    Args:
        source: the model file that is read; None for a model from stdin.
        model: the path of the result; None to write no model, `-` for stdout.
        external_data: the name of the file for weights, in the folder of the result.
        texts: further files by option, with their kinds; `-` as the report is stdout.
        reads: other files that the command reads.
        force: whether files are replaced that are no result of the source.

    Attributes:
        prints_report: whether the report goes to stdout.
        prints_model: whether the model goes to stdout.
        source_size: bytes of the source and its external data.
        written: the files of the model; None before they are written, and if there are none.
        printed_size: bytes of the model that was written to stdout.

    Raises:
        UsageError: two of the files are the same.
    """

    def __init__(
        self,
        source: Path | None,
        model: Path | None,
        external_data: str | None,
        texts: Mapping[str, tuple[Path | None, FileKind]],
        *,
        reads: Sequence[Path] = (),
        force: bool,
    ) -> None:
        self.prints_report, self.prints_model = (STDIO, FileKind.REPORT) in texts.values(), model == STDIO
        if self.prints_report and self.prints_model:
            raise UsageError("the model goes to stdout", where="--json -", hint="name a file: --json=report.json")
        if self.prints_model:
            if sys.stdout.isatty():
                raise UsageError("stdout is a terminal", where="-o -", hint="redirect it, or name a file with -o")
            model = None
        self.source_size = _model_size(source) if source is not None else 0
        self.written: WrittenFiles | None = None
        self.printed_size = 0
        self._model = model
        self._external_data = external_data if model is not None else None
        overwrite = Overwrite((source,) if source is not None else (), model, force, tuple(reads))
        super().__init__(overwrite, [("MODEL", source), ("OUT", model)])
        if model is not None and external_data is not None:
            weights = _weights_path(model, external_data)
            self.check_distinct(f"--external-data {external_data}", weights)
            self._taken.append(("the external data", weights))
        for option, (path, kind) in texts.items():
            self.add(option, None if path == STDIO else path, kind)

    def check(self) -> None:
        """Check that all files can be written.

        Raises:
            OutputError: a file cannot be written, or must not be replaced.
        """
        if self._model is not None:
            self.overwrite.check(self._model, FileKind.MODEL)
        if self._model is not None and self._external_data is not None:
            check_name(self._model, self._external_data, self.overwrite)
        super().check()

    def write(self, result: Result, text: Callable[[str], str]) -> None:
        """Write the texts, which are computed by option, and the model.

        Raises:
            OutputError: a file cannot be written. Without the model, no text is written either.
            StdoutError: the report cannot be printed; the model has been written.
        """
        with self.staged(text):
            if self.prints_model:
                self.printed_size = print_model(result)
            if self._model is not None:
                self.written = result.save(self._model, external_data=self._external_data, force=self.overwrite.force)
        if self.prints_report:
            with reporting_written_files(self.all_files):
                show_text(json_text(result.report))

    @property
    def written_size(self) -> int:
        """Bytes of the written model and its external data."""
        return _model_size(self.written.model) if self.written is not None else self.printed_size

    @property
    def all_files(self) -> list[Path]:
        """The model, its external data and the texts, as far as they are written."""
        return [*(self.written.files if self.written is not None else ()), *self.files]


def _model_size(model: Path) -> int:
    """Bytes of a model and its external data."""
    return file_size(model, *dict.fromkeys(each.resolve() for each in external_files(model)))


def _weights_path(model: Path, name: str) -> Path:
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


def print_model(result: Result) -> int:
    """Write the model to stdout, with all weights; an unchanged model of one file is copied byte for byte.

    Returns:
        The number of bytes.

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
        what = (error.strerror or str(error)).lower()
        raise StdoutError(what, where="stdout", hint="redirect it elsewhere") from error
    return len(content)
