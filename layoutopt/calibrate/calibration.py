"""Calibration of this machine's target, from the grid of kernels to the target file."""

from collections.abc import Callable, Sequence
from datetime import date
from hashlib import sha256
from itertools import groupby
from math import inf
from statistics import median
from time import perf_counter
from typing import TypeAlias

import onnxruntime
from pydantic import Field

from layoutopt.calibrate.fit import fitted_tables, group_measurements, label, toml_text, with_rows, with_tables
from layoutopt.calibrate.grid import KernelCase, kernel_cases
from layoutopt.cost_models import RooflineModel, load_target
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


class FittedGroup(ReportModel):
    """The kernels that one row of the target prices, or that have no row, and their median relative errors.

    Attributes:
        kernels: the number of kernels.
        error: median of |predicted - measured| / measured.
        error_before: the same for the uncalibrated target.
    """

    group: str
    kernels: int
    error: float
    error_before: float


class KernelTime(ReportModel):
    """The measured time of a kernel and its predictions, in seconds."""

    kernel: str
    group: str
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
    groups: list[FittedGroup] = Field(description="the last one is all kernels together")
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
    grid = kernel_cases(RooflineModel(with_rows(base)))
    progress(f"timing {len(grid)} kernels")
    seconds = _seconds(grid, threads)
    progress("fitting")
    measured = group_measurements(grid, seconds, with_rows(base))
    today = date.today().isoformat()
    where = f"{cpu} with {name.removeprefix('cpu-').upper()}, {threads} thread{'s' if threads > 1 else ''}"
    source = f"measured: onnxruntime {version}, {where}, {today}, layoutopt calibrate"
    tables = fitted_tables(measured, with_rows(base), source)
    after, before = RooflineModel(with_tables(base, tables)), RooflineModel(base)
    times = [
        KernelTime(
            kernel=each.case.key,
            group=label(each.group, with_rows(base)),
            measured=each.sample.seconds,
            predicted=each.case.price(after),
            predicted_before=each.case.price(before),
        )
        for each in measured
    ]
    times.sort(key=lambda each: each.group)
    groups = [_fitted(group, list(found)) for group, found in groupby(times, key=lambda each: each.group)]
    about = f"{where}, calibrated {today}: blocks of {base.block(DType.FLOAT32)} channels"
    return CalibrationReport(
        layoutopt_version=VERSION,
        cpu=cpu,
        onnxruntime_version=version,
        threads=threads,
        date=today,
        target=name,
        seconds=perf_counter() - begin,
        groups=[*groups, _fitted("all", times)],
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


def _fitted(group: str, times: Sequence[KernelTime]) -> FittedGroup:
    def error(predicted: Sequence[float]) -> float:
        return median(abs(one - each.measured) / each.measured for one, each in zip(predicted, times, strict=True))

    after, before = [each.predicted for each in times], [each.predicted_before for each in times]
    return FittedGroup(group=group, kernels=len(times), error=error(after), error_before=error(before))
