"""What `optimize` writes: the model and the report, both or neither."""

from pathlib import Path
from types import TracebackType

import typer

from layoutopt.api import Result
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
        OutputError: one of them cannot be written.
        typer.BadParameter: two of them are the same.
    """

    def __init__(self, source: Path, model: Path | None, report: Path | None, external_data: str | None) -> None:
        """Refuse what cannot work; `__enter__` tries the rest."""
        self.model = model
        self.prints_report = report == _STDOUT
        self._report_path = None if self.prints_report else report
        self._external_data = external_data
        self._weights = None if model is None or external_data is None else _beside(model, external_data)
        if self._report_path is not None:
            taken = {"MODEL": source, "OUT": model, "the external data": self._weights}
            for what, path in taken.items():
                if path is not None and path.resolve() == self._report_path.resolve():
                    raise typer.BadParameter(f"--report {report}: that is {what}")
        self._report: Staged | None = None
        self.source_size = file_size(source)

    def __enter__(self) -> "Outputs":
        """Try whether everything can be written."""
        for path in (self.model, self._weights):
            if path is not None:
                check_writable(path)
        if self._report_path is not None:
            self._report = Staged(self._report_path)
        return self

    def write(self, result: Result) -> None:
        """The model last but for the name of the report, which is on the disk by then."""
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
        paths = (self.model, self._weights)
        return [path for path in paths if path is not None and path.is_file()]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove a report that did not come to be."""
        if self._report is not None:
            self._report.close()


def _beside(model: Path, name: str) -> Path:
    """The file for weights."""
    if name in ("", ".", "..") or Path(name).name != name or name == model.name:
        raise typer.BadParameter(f"--external-data {name}: not the name of another file next to {model}")
    return model.with_name(name)
