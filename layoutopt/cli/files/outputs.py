"""The files that `optimize` writes: the model, its external data, the report and other texts."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.model_streams import check_stdout, print_model
from layoutopt.cli.files.reporting_written_files import reporting_written_files
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.terminal import file_size, show_text
from layoutopt.driver.result import Result
from layoutopt.files import (
    FileKind,
    Overwrite,
    external_files,
    is_same_file,
    path_text,
    staged_text,
)
from layoutopt.onnx_io.writer import WrittenFiles, check_name

_STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class TextOutput:
    """A text file that is written with the model.

    Attributes:
        option: the option that names it.
        path: the file.
        kind: its kind, by which its predecessor is recognised.
        text: computes its content.
    """

    option: str
    path: Path
    kind: FileKind
    text: Callable[[Result], str]


class Outputs:
    """The output files of one run of `optimize`.

    Args:
        source: the model file that is read; None for a model from stdin.
        model: the path of the result; None to write no model, `-` for stdout.
        report: the path of the report; None to write no report, `-` for stdout.
        external_data: the name of the file for weights, in the folder of the result.
        texts: further files.
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
        report: Path | None,
        external_data: str | None,
        texts: Sequence[TextOutput] = (),
        *,
        reads: Sequence[Path] = (),
        force: bool,
    ) -> None:
        self.prints_report, self.prints_model = report == _STDOUT, model == _STDOUT
        if self.prints_report and self.prints_model:
            raise UsageError("the model goes to stdout", where="--json -", hint="name a file: --json=report.json")
        if self.prints_model:
            check_stdout()
            model = None
        self.source_size = _model_size(source) if source is not None else 0
        self.written: WrittenFiles | None = None
        self.printed_size = 0
        self._model = model
        self._report = None if self.prints_report else report
        self._external_data = external_data if model is not None else None
        self._overwrite = Overwrite((source,) if source is not None else (), model, force, tuple(reads))
        weights = None if model is None or external_data is None else _weights_path(model, external_data)
        others = {"MODEL": source, "OUT": model, "the external data": weights}
        self._texts = list(texts)
        if self._report is not None:
            self._texts.insert(
                0, TextOutput("--json", self._report, FileKind.REPORT, lambda result: json_text(result.report))
            )
        for each in self._texts:
            option = f"{each.option} {path_text(each.path)}"
            _check_distinct(option, each.path, others)
            others[f"the file of {each.option}"] = each.path
        if weights is not None:
            _check_distinct(f"--external-data {external_data}", weights, {"MODEL": source, "OUT": model})

    def check(self) -> None:
        """Check that all files can be written.

        Raises:
            OutputError: a file cannot be written, or must not be replaced.
        """
        if self._model is not None:
            self._overwrite.check(self._model, FileKind.MODEL)
        if self._model is not None and self._external_data is not None:
            check_name(self._model, self._external_data, self._overwrite)
        for each in self._texts:
            self._overwrite.check(each.path, each.kind)

    def write(self, result: Result) -> None:
        """Write the texts and the model.

        Raises:
            OutputError: a file cannot be written. Without the model, no text is written either.
            StdoutError: the report cannot be printed; the model has been written.
        """
        with ExitStack() as staged:
            for each in self._texts:
                staged.enter_context(staged_text(each.path, each.text(result), each.kind, self._overwrite))
            self._save(result)
        if self.prints_report:
            with reporting_written_files(self.files):
                show_text(json_text(result.report))

    def _save(self, result: Result) -> None:
        if self.prints_model:
            self.printed_size = print_model(result)
        if self._model is not None:
            self.written = result.save(self._model, external_data=self._external_data, force=self._overwrite.force)

    @property
    def written_size(self) -> int:
        """Bytes of the written model and its external data."""
        return _model_size(self.written.model) if self.written is not None else self.printed_size

    @property
    def files(self) -> list[Path]:
        """All files written."""
        return [*(self.written.files if self.written is not None else ()), *(each.path for each in self._texts)]


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


def _check_distinct(option: str, path: Path, others: dict[str, Path | None]) -> None:
    for description, other in others.items():
        if other is not None and is_same_file(path, other):
            raise UsageError(f"that is {description}", where=option, hint="name another file")
