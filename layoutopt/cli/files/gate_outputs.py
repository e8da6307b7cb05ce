"""The files that `ci` writes: reports, the baseline, the step summary of GitHub, and the optimised models."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import combinations
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.reporting_written_files import reporting_written_files
from layoutopt.cli.optimization.placements import is_file_name
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.errors import OutputError
from layoutopt.files import FileKind, Overwrite, append_text, is_same_file, path_text, staged_text
from layoutopt.gates import Baseline, GateReport
from layoutopt.gates.exporters.sarif import sarif

_STDOUT = Path("-")
_JUNIT = "layoutopt.gates.exporters.junit"  # its library is optional
_KINDS = {
    "--json": FileKind.REPORT,
    "--junit": FileKind.JUNIT,
    "--sarif": FileKind.SARIF,
    "--update-baseline": FileKind.BASELINE,
}


class GateOutputs:
    """The files of one run of `ci`.

    Args:
        models: the models that are read.
        arguments: the files, folders and patterns that name them.
        reports: the path of each report by option: `--json`, `--junit`, `--sarif`; None for no report.
        baseline: the baseline file; None without one.
        results: the paths of the optimised models that are written.
        is_updated: whether the baseline is written; otherwise it is read.
        summary: the step summary of GitHub, which is appended to; None for none.
        reads: other files that the command reads.
        force: whether files are replaced that `ci` did not write for the same arguments.

    Attributes:
        prints_json: whether the JSON report goes to stdout.
        files: the files written so far.

    Raises:
        UsageError: two options name one file, or an option names a model or a result.
        OutputError: a file cannot be written, or must not be replaced.
        LayoutoptError: the library for JUnit reports is not installed.
    """

    def __init__(
        self,
        models: Sequence[Path],
        arguments: Sequence[Path],
        reports: dict[str, Path | None],
        baseline: Path | None,
        *,
        results: Collection[Path],
        is_updated: bool,
        summary: Path | None,
        reads: Sequence[Path],
        force: bool,
    ) -> None:
        self.prints_json = reports.get("--json") == _STDOUT
        self.files: list[Path] = []
        self._summary = summary
        self._paths = {key: path for key, path in reports.items() if path is not None and path != _STDOUT}
        if baseline is not None and is_updated:
            self._paths["--update-baseline"] = baseline
        read = [baseline] if baseline is not None and not is_updated else []
        self._overwrite = Overwrite(tuple(arguments), None, force, (*models, *read, *reads), "ci")
        self._check(models, read, results)

    def _check(self, models: Sequence[Path], read: Sequence[Path], results: Collection[Path]) -> None:
        others = [(each, "a model") for each in models]
        others += [(each, "the baseline") for each in read] + [(each, "a result of --write") for each in results]
        for option, path in self._paths.items():
            for other, description in others:
                if is_same_file(path, other):
                    where = f"{option} {path_text(path)}"
                    raise UsageError(f"that is {description}", where=where, hint="name another file")
        for (first, path), (second, other) in combinations(self._paths.items(), 2):
            if is_same_file(path, other):
                where = f"{second} {path_text(other)}"
                raise UsageError(f"that is the file of {first}", where=where, hint="name another file")
        for option, path in self._paths.items():
            self._overwrite.check(path, _KINDS[option])
        if "--junit" in self._paths:
            import_module(_JUNIT)
        try:
            if self._summary is not None:
                self._overwrite.check_append(self._summary)
        except OutputError as error:
            where = f"GITHUB_STEP_SUMMARY={error.where}"
            raise OutputError(error.what, where=where, hint=error.hint) from error

    def write_reports(self, report: GateReport, baseline: Baseline | None) -> None:
        """Write the reports and, if it is given, the baseline; print the JSON report if it goes to stdout.

        Raises:
            OutputError: a file cannot be written; no file is written then.
            StdoutError: the JSON report cannot be printed; the files have been written.
        """
        with ExitStack() as stack:
            for option, path in self._paths.items():
                content = self._text(option, report, baseline)
                stack.enter_context(staged_text(path, content, _KINDS[option], self._overwrite))
        self.files += self._paths.values()
        if self.prints_json:
            with reporting_written_files(self.files):
                show_text(json_text(report))

    def _text(self, option: str, report: GateReport, baseline: Baseline | None) -> str:
        """The content of the file of an option."""
        if option == "--junit":
            from layoutopt.gates.exporters.junit import junit

            return junit(report)
        if option == "--sarif":
            return json_text(sarif(report))
        return json_text(report if option == "--json" else baseline)

    def append_summary(self, content: str) -> None:
        """Append to the step summary, as the runner of GitHub requires.

        Raises:
            OutputError: it cannot be written.
        """
        if self._summary is not None:
            append_text(self._summary, content, self._overwrite)


def result_paths(
    models: Sequence[Path], arguments: Sequence[Path], folder: Path, reads: Sequence[Path], *, force: bool
) -> dict[Path, Path]:
    """The path of each result in a folder: the path of its model from the deepest folder that contains all models.

    Args:
        models: the models.
        arguments: the files, folders and patterns that name them.
        folder: the folder of the results.
        reads: other files that the command reads.
        force: whether files are replaced that are no results of these models.

    Raises:
        UsageError: the folder is a file, contains one of the models, or is in a folder whose models are read.
        OutputError: a file must not be replaced.
    """
    where = f"--write {path_text(folder)}"
    if is_file_name(folder):
        raise UsageError("is not a folder", where=where, hint="name a folder")
    inside = next((each for each in models if _is_inside(each, folder)), None)
    if inside is not None:
        what = f"contains {path_text(inside)}, which is one of the models"
        raise UsageError(what, where=where, hint="name a folder outside")
    outer = next((each for each in arguments if each.is_dir() and _is_inside(folder, each)), None)
    if outer is not None:
        raise UsageError(f"is in {path_text(outer)}, whose models are read", where=where, hint="name a folder outside")
    paths = dict(_result_paths(models, folder))
    for model, path in paths.items():
        if path.parent.exists():
            Overwrite((model,), None, force, tuple(reads)).check(path, FileKind.MODEL)
    return paths


def _is_inside(model: Path, folder: Path) -> bool:
    return Path(os.path.realpath(model)).is_relative_to(os.path.realpath(folder))


def _result_paths(models: Sequence[Path], folder: Path) -> Iterator[tuple[Path, Path]]:
    root = os.path.commonpath([os.path.dirname(os.path.abspath(each)) for each in models])
    for each in models:
        yield each, folder / os.path.relpath(os.path.abspath(each), root)
