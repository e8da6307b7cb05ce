"""What `calibrate` writes and prints."""

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
from layoutopt.cli.rendering.progress import Steps
from layoutopt.cli.rendering.terminal import facts, line, remark, seconds, section, show, table, text
from layoutopt.errors import LayoutoptError
from layoutopt.files import Kind, Overwrite, is_same_file, write_text


class CalibrationInterruptedError(LayoutoptError):
    """Interrupted with Ctrl-C."""

    exit_code: ClassVar[int] = INTERRUPTED


def write_calibration(
    output: Path, resume: Path | None, json: Path | None, *, quick: bool, threads: int, force: bool
) -> None:
    """Calibrate, write the target file, and print how well it predicts.

    Raises:
        UsageError: files that cannot be meant.
        LayoutoptError: as `calibrate`; or a file cannot be written, or must not replace what is there.
    """
    if output.suffix != ".toml":
        raise UsageError(
            "not a target file", where=f"-o {output}", hint="end its name in .toml, by which --target knows it"
        )
    state = resume or output.with_suffix(".state")
    if is_same_file(state, output):
        raise UsageError("that is the target file", where=f"--resume {resume}", hint="name another file")
    rule = Overwrite(force=force)
    rule.check(output, Kind.TARGET)
    (rule if resume is None else Overwrite()).check(state, Kind.MEASUREMENTS)
    record = Record(json, output, state, kind="another file of the calibration", force=force)
    if resume is None:
        state.unlink(missing_ok=True)  # of a run that was given up
    with Steps() as steps:
        report = _calibrate(state, output, quick, threads, steps)
    write_text(output, report.profile, Kind.TARGET, rule)
    record.write(report)
    if resume is None:
        state.unlink(missing_ok=True)
    if not record.is_printed:
        with after_writing([output, *record.files]):
            print_calibration(report, output)


def _calibrate(state: Path, output: Path, quick: bool, threads: int, steps: Steps) -> CalibrationReport:
    try:
        return calibrate(state, quick=quick, threads=threads, progress=steps).report
    except KeyboardInterrupt:
        fields = ["layoutopt", "calibrate", "-o", str(output), *(["--quick"] if quick else [])]
        fields += ["--threads", str(threads)] if threads != 1 else []
        again = shlex.join([*fields, "--resume", str(state)])
        raise CalibrationInterruptedError(
            "interrupted, what was measured is kept", hint=f"go on with {again}"
        ) from None


def print_calibration(report: CalibrationReport, output: Path) -> None:
    """The machine, and the agreement by family."""
    kept = f", {report.measured_before} of them before" if report.measured_before else ""
    rows = (
        ("machine", line(report.cpu, (f"  {report.threads} thread{'s' if report.threads > 1 else ''}", "dim"))),
        ("runtime", text(f"onnxruntime {report.onnxruntime_version}")),
        ("measured", line(f"{len(report.kernels)} kernels in {seconds(report.seconds)}{kept}")),
        ("written", line((str(output), "bold"), (f"  inherits {report.target}", "dim"))),
    )
    show(facts(*rows))
    about = "median error, and rank correlation, of kernels that were not fitted to; before: the built-in numbers"
    section("agreement", about, _agreement([*report.families, report.total]))
    remark(f"Use it: layoutopt optimize MODEL -o OUT --target {shlex.quote(str(output))}")


def _agreement(families: Sequence[Agreement]) -> Table:
    rows = table(
        "=", ">fitted", ">held out", ">error", ">rank corr.", ">error before", ">rank corr. before", ">error fitted"
    )
    for each in families:
        cells = (
            str(each.fitted),
            str(each.held_out),
            _percent(each.error),
            _plain(each.rank_correlation),
            _percent(each.error_before),
            _plain(each.rank_correlation_before),
            _percent(each.fitted_error),
        )
        rows.add_row(each.family, *cells, style="bold" if each is families[-1] else "")
    return rows


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
