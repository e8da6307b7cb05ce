"""Calibration of this machine's target, from the grid of kernels to the target file and the agreement of held-out kernels."""

from collections.abc import Callable, Sequence
from datetime import date
from hashlib import sha256
from itertools import groupby
from math import inf
from time import perf_counter
from typing import TypeAlias

import onnxruntime
from pydantic import Field

from layoutopt.calibrate.agreement import median_error, rank_correlation
from layoutopt.calibrate.grid import KernelCase, kernel_cases
from layoutopt.calibrate.target_fit import (
    Measurement,
    fitted_tables,
    group_measurements,
    held_out,
    toml_text,
    with_rows,
    with_tables,
)
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.errors import LayoutoptError, TargetError
from layoutopt.ir.types import DType
from layoutopt.kernel_times import KernelStore, Machine, RequestedTimes
from layoutopt.report.schema import ReportModel
from layoutopt.runtime.processor import processor_name
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_BLOCKED = ("cpu-avx2", "cpu-avx512")  # targets with blocked kernels in the dialect onnxruntime


# --- the report: the schema of `layoutopt calibrate --json` ---


class Agreement(ReportModel):
    """Agreement of predicted and measured times of a family of kernels.

    Attributes:
        family: the family.
        fitted: the number of kernels that were fitted to.
        held_out: the number of kernels that were not.
        fitted_error: median of |predicted - measured| / measured over the fitted kernels.
        error: the same over the held-out kernels; null without any.
        rank_correlation: Spearman's over the held-out kernels; null for fewer than four.
        error_before: median error of the uncalibrated target over the held-out kernels.
        rank_correlation_before: rank correlation of the uncalibrated target.
    """

    family: str
    fitted: int
    held_out: int
    fitted_error: float | None
    error: float | None
    rank_correlation: float | None
    error_before: float | None
    rank_correlation_before: float | None


class KernelTime(ReportModel):
    """The measured time of a kernel and its predictions, in seconds."""

    kernel: str
    family: str
    held_out: bool
    measured: float
    predicted: float
    predicted_before: float


class CalibrationReport(ReportModel, extra="ignore"):
    """The results of a calibration."""

    layoutopt_version: str
    cpu: str
    onnxruntime_version: str
    threads: int
    date: str = Field(description="date of the fit, YYYY-MM-DD")
    target: str = Field(description="the built-in target that was calibrated")
    seconds: float = Field(description="duration of this run")
    families: list[Agreement]
    total: Agreement
    kernels: list[KernelTime]
    profile: str = Field(description="text of the target file, TOML")


# --- the calibration ---


def calibrate(*, threads: int = 1, progress: Progress = lambda step: None) -> CalibrationReport:
    """Time the kernels of the grid, and fit the target of this machine to the times.

    Args:
        threads: threads of onnxruntime; with one, the process is pinned to one CPU.
        progress: called with the name of each step.

    Raises:
        TargetError: no target has the kernels of this machine's processor.
        LayoutoptError: a kernel cannot be run.
    """
    begin = perf_counter()
    name = host_target()
    if name not in _BLOCKED:
        raise TargetError("has no blocked kernels to calibrate", where=name, hint=f"it works on {', '.join(_BLOCKED)}")
    base = load_target("cpu").spec
    cpu, version = processor_name(), str(onnxruntime.__version__)
    grid = kernel_cases(base.block(DType.FLOAT32))
    progress(f"timing {len(grid)} kernels")
    seconds = _seconds(grid, threads)
    progress("fitting")
    measured = group_measurements(grid, seconds, with_rows(base))
    today = date.today().isoformat()
    where = f"{cpu} with {name.removeprefix('cpu-').upper()}"
    plural = "s" if threads > 1 else ""
    source = f"measured: onnxruntime {version}, {where}, {threads} thread{plural}, {today}, layoutopt calibrate"
    left_out = held_out(measured)
    tables = fitted_tables([each for each in measured if each.case.key not in left_out], with_rows(base), source)
    times = _times(measured, left_out, with_tables(base, tables), base)
    families = [_agreement(family, list(group)) for family, group in groupby(times, key=lambda each: each.family)]
    about = f"{where}, {threads} thread{plural}, calibrated {today}: blocks of {base.block(DType.FLOAT32)} channels"
    return CalibrationReport(
        layoutopt_version=VERSION,
        cpu=cpu,
        onnxruntime_version=version,
        threads=threads,
        date=today,
        target=name,
        seconds=perf_counter() - begin,
        families=families,
        total=_agreement("all", times),
        kernels=times,
        profile=toml_text({"inherits": base.name, "dialect": base.dialect, "description": about, **tables}),
    )


def _seconds(grid: Sequence[KernelCase], threads: int) -> dict[str, float]:
    """The seconds of every kernel, by key, in the order of a hash: neighbours in the grid are similar and would share caches.

    Raises:
        LayoutoptError: onnxruntime cannot run a kernel.
    """
    times = RequestedTimes(KernelStore(Machine.current(threads)), inf)
    times.request([each.kernel for each in sorted(grid, key=lambda case: sha256(case.key.encode()).digest())])
    found: dict[str, float] = {}
    for case in grid:
        seconds = times.get(case.key)
        if seconds is None:
            raise LayoutoptError("onnxruntime cannot run it", where=case.key)
        found[case.key] = seconds
    return found


def _times(measured: Sequence[Measurement], left_out: set[str], spec: TargetSpec, base: TargetSpec) -> list[KernelTime]:
    """The measured and predicted times of every kernel, sorted by family."""
    after, before = RooflineModel(spec), RooflineModel(base)
    return [
        KernelTime(
            kernel=each.case.key,
            family=each.case.family,
            held_out=each.case.key in left_out,
            measured=each.sample.seconds,
            predicted=each.case.price(after),
            predicted_before=each.case.price(before),
        )
        for each in sorted(measured, key=lambda each: each.case.family)
    ]


def _agreement(family: str, times: Sequence[KernelTime]) -> Agreement:
    fitted, others = ([each for each in times if each.held_out is held] for held in (False, True))
    truth = [each.measured for each in others]
    after, before = [each.predicted for each in others], [each.predicted_before for each in others]
    return Agreement(
        family=family,
        fitted=len(fitted),
        held_out=len(others),
        fitted_error=median_error([each.predicted for each in fitted], [each.measured for each in fitted]),
        error=median_error(after, truth),
        rank_correlation=rank_correlation(after, truth),
        error_before=median_error(before, truth),
        rank_correlation_before=rank_correlation(before, truth),
    )
