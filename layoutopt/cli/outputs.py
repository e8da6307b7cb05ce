"""What `optimize` writes: the model and the report, both or neither."""

from pathlib import Path
from types import TracebackType

from layoutopt.api import Result
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files import Staged, check_writable
from layoutopt.cli.terminal import file_size, show_text

_STDOUT = Path("-")


class Outputs:
    """The files of one run, found to be writable before it starts.

    Args:
        source: the model that is read.
        model: where the result goes; None to write none.
        report: where the report goes; None to write none, `-` for stdout.
        external_data: the name of the file for weights.

    Raises:
        UsageError: two of them are the same.
    """

    def __init__(self, source: Path, model: Path | None, report: Path | None, external_data: str | None) -> None:
        """Refuse what cannot work; `__enter__` tries the rest."""
        self.model = model
        self.weights = None if model is None or external_data is None else _beside(model, external_data)
        self.prints_report = report == _STDOUT
        self.source_size = file_size(source)
        self._external_data = external_data
        self._report_path = None if self.prints_report else report
        self._report: Staged | None = None
        for what, path in (("MODEL", source), ("OUT", model), ("the external data", self.weights)):
            if path is not None and self._report_path is not None:
                _refuse_same(self._report_path, path, what)

    def __enter__(self) -> "Outputs":
        """Try whether everything can be written.

        Raises:
            OutputError: something cannot.
        """
        for path in (self.model, self.weights):
            if path is not None:
                check_writable(path)
        if self._report_path is not None:
            self._report = Staged(self._report_path)
        return self

    def write(self, result: Result) -> None:
        """Write the report, then the model; only then the report takes its name.

        Raises:
            OutputError: one of them cannot be written; neither is there then.
        """
        report = f"{result.report.model_dump_json(indent=2)}\n"
        if self._report is not None:
            self._report.write(report)
        if self.model is not None:
            result.save(self.model, external_data=self._external_data)
        if self._report is not None:
            self._report.commit()
        if self.prints_report:
            show_text(report)

    @property
    def files(self) -> list[Path]:
        """The model and its external data, as far as they are there."""
        return [path for path in (self.model, self.weights) if path is not None and path.is_file()]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove a report that did not come to be."""
        if self._report is not None:
            self._report.close()


def _beside(model: Path, name: str) -> Path:
    """The file for weights."""
    if name in ("", ".", "..") or Path(name).name != name or name == model.name:
        hint = f"name another file next to {model}, without a folder"
        raise UsageError("not a name for it", where=f"--external-data {name}", hint=hint)
    return model.with_name(name)


def _refuse_same(report: Path, path: Path, what: str) -> None:
    if report.resolve() == path.resolve():
        raise UsageError(f"that is {what}", where=f"--report {report}", hint="name another file")
