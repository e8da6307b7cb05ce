"""The output of `calibrate`: the target file and the quality of the fit."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.table import Table

from layoutopt.calibrate import CalibrationReport, calibrate
from layoutopt.calibrate.report import Agreement
from layoutopt.cli.exit_codes import INTERRUPTED, UsageError
from layoutopt.cli.files.after_writing import after_writing
from layoutopt.cli.rendering.json_records import Record
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cli.rendering.terminal import footnote, key_values, seconds, section, show, styled_line, table, text
from layoutopt.errors import LayoutoptError
from layoutopt.files import Kind, Overwrite, is_same_file, write_text


class CalibrationInterruptedError(LayoutoptError):
    """Interrupted with Ctrl-C; the measurements so far are stored."""

    exit_code: ClassVar[int] = INTERRUPTED


def write_calibration(
    output: Path, resume: Path | None, json: Path | None, *, quick: bool, threads: int, force: bool
) -> None:
    """Calibrate, write the target file, and print how well the fit predicts held-out kernels.

    Raises:
        UsageError: a file name that is not valid here.
        LayoutoptError: an error of `calibrate`, or a file that cannot be written or must not be replaced.
    """
    if output.suffix != ".toml":
        raise UsageError(
            "not a target file", where=f"-o {output}", hint="use a name that ends in .toml, as --target requires"
        )
    state = resume or output.with_suffix(".state")
    if is_same_file(state, output):
        raise UsageError("that is the target file", where=f"--resume {resume}", hint="name another file")
    rule = Overwrite(force=force)
    rule.check(output, Kind.TARGET)
    (rule if resume is None else Overwrite()).check(state, Kind.MEASUREMENTS)
    record = Record(json, output, state, kind="another file of the calibration", force=force)
    if resume is None:
        state.unlink(missing_ok=True)  # left over from an interrupted run
    with ProgressLine() as progress:
        report = _calibrate(state, output, quick, threads, progress)
    write_text(output, report.profile, Kind.TARGET, rule)
    record.write(report)
    if resume is None:
        state.unlink(missing_ok=True)
    if not record.is_printed:
        with after_writing([output, *record.files]):
            print_calibration(report, output)


def _calibrate(state: Path, output: Path, quick: bool, threads: int, progress: ProgressLine) -> CalibrationReport:
    try:
        return calibrate(state, quick=quick, threads=threads, progress=progress).report
    except KeyboardInterrupt:
        fields = ["layoutopt", "calibrate", "-o", str(output), *(["--quick"] if quick else [])]
        fields += ["--threads", str(threads)] if threads != 1 else []
        again = shlex.join([*fields, "--resume", str(state)])
        raise CalibrationInterruptedError(
            "interrupted; the measurements are stored", hint=f"continue with {again}"
        ) from None


def print_calibration(report: CalibrationReport, output: Path) -> None:
    """Print the machine, and the quality of the fit by kernel family."""
    earlier = f", {report.measured_before} of them in an earlier run" if report.measured_before else ""
    rows = (
        ("machine", styled_line(report.cpu, (f"  {report.threads} thread{'s' if report.threads > 1 else ''}", "dim"))),
        ("runtime", text(f"onnxruntime {report.onnxruntime_version}")),
        ("measured", styled_line(f"{len(report.kernels)} kernels in {seconds(report.seconds)}{earlier}")),
        ("written", styled_line((str(output), "bold"), (f"  inherits from {report.target}", "dim"))),
    )
    show(key_values(*rows))
    aside = "median error and rank correlation on held-out kernels; built-in: with the parameters of the shipped target"
    section("quality of the fit", aside, _fit_quality([*report.families, report.total]))
    footnote(f"Use the target with: layoutopt optimize MODEL -o OUT --target {shlex.quote(str(output))}")


def _fit_quality(families: Sequence[Agreement]) -> Table:
    rows = table(
        "=kernels",
        ">fitted",
        ">held out",
        ">error",
        ">rank corr.",
        ">built-in error",
        ">built-in rank corr.",
        ">fitted error",
    )
    for each in families:
        cells = (
            str(each.fitted),
            str(each.held_out),
            _percent(each.error),
            _two_digits(each.rank_correlation),
            _percent(each.error_before),
            _two_digits(each.rank_correlation_before),
            _percent(each.fitted_error),
        )
        rows.add_row(each.family, *cells, style="bold" if each is families[-1] else "")
    return rows


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _two_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
