"""The output of `calibrate`: the target file and the quality of the fit."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from layoutopt.calibrate import CalibrationReport
from layoutopt.calibrate.calibration import Agreement
from layoutopt.cli.rendering.terminal import footnote, key_values, seconds, section, show, styled_line, table, text


def print_calibration(report: CalibrationReport, output: Path) -> None:
    """Print the machine, and the quality of the fit by kernel family."""
    rows = (
        ("machine", styled_line(report.cpu, (f"  {report.threads} thread{'s' if report.threads > 1 else ''}", "dim"))),
        ("runtime", text(f"onnxruntime {report.onnxruntime_version}")),
        ("measured", styled_line(f"{len(report.kernels)} kernels in {seconds(report.seconds)}")),
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
