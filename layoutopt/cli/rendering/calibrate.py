"""The output of `calibrate`: the target file and the quality of the fit."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from layoutopt.calibrate import CalibrationReport
from layoutopt.calibrate.calibration import Agreement
from layoutopt.cli.rendering.terminal import Cell, footnote, key_values, seconds, section, show, styled_line, table


def print_calibration(report: CalibrationReport, output: Path) -> None:
    """Print the machine, and the quality of the fit by kernel family."""
    rows: tuple[tuple[str, Cell], ...] = (
        ("machine", styled_line(report.cpu, (f"  {report.threads} thread{'s' if report.threads > 1 else ''}", "dim"))),
        ("runtime", f"onnxruntime {report.onnxruntime_version}"),
        ("measured", f"{len(report.kernels)} kernels in {seconds(report.seconds)}"),
        ("written", styled_line((str(output), "bold"), (f"  inherits from {report.target}", "dim"))),
    )
    show(key_values(*rows))
    aside = "median error and rank correlation on held-out kernels; built-in: with the parameters of the shipped target"
    section("quality of the fit", aside, _fit_quality([*report.families, report.total]))
    footnote(f"Use the target with: layoutopt optimize MODEL -o OUT --target {shlex.quote(str(output))}")


def _fit_quality(families: Sequence[Agreement]) -> Table:
    columns = (
        ">fitted",
        ">held out",
        ">error",
        ">rank corr.",
        ">built-in error",
        ">built-in rank corr.",
        ">fitted error",
    )
    rows: list[list[Cell]] = [
        [
            each.family,
            each.fitted,
            each.held_out,
            _percent(each.error),
            _two_digits(each.rank_correlation),
            _percent(each.error_before),
            _two_digits(each.rank_correlation_before),
            _percent(each.fitted_error),
        ]
        for each in families
    ]
    return table(["=kernels", *columns], rows, last="bold")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _two_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
