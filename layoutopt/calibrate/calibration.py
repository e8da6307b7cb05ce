"""Calibration of this machine's target, from the kernels to the target file."""

from collections.abc import Callable, Sequence
from datetime import date
from math import inf
from random import Random
from statistics import median
from time import perf_counter
from typing import TypeAlias

import onnxruntime
from pydantic import Field

from layoutopt.calibrate.fit import Sample, fitted_tables, grouped, toml_text
from layoutopt.calibrate.probes import price, probes
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.cost_models.target_files import merge
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType
from layoutopt.kernel_times import KernelStore, Machine, RequestedTimes
from layoutopt.report.schema import ReportModel
from layoutopt.runtime.processor import processor_name
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_BLOCKED = ("cpu-avx2", "cpu-avx512")  # targets with blocked kernels in the dialect onnxruntime


class FittedGroup(ReportModel):
    """The kernels that the same numbers of the target price, and the medians of |predicted - measured| / measured."""

    group: str
    kernels: int = Field(description="the number of kernels")
    error: float
    error_before: float = Field(description="that of the uncalibrated target")


class CalibrationReport(ReportModel, extra="ignore"):
    """The results of a calibration: the schema of `layoutopt calibrate --json`."""

    layoutopt_version: str
    cpu: str
    onnxruntime_version: str
    threads: int
    date: str = Field(description="date of the fit, YYYY-MM-DD")
    target: str = Field(description="the built-in target that was calibrated")
    seconds: float = Field(description="duration of this run")
    groups: list[FittedGroup] = Field(description="the last one is all kernels together")
    profile: str = Field(description="text of the target file, TOML")


def calibrate(*, threads: int = 1, progress: Progress = lambda step: None) -> CalibrationReport:
    """Time kernels, and fit the target of this machine to the times.

    Args:
        threads: threads of onnxruntime; with one, the process is pinned to one CPU.
        progress: called with the name of each step.

    Raises:
        TargetError: no target has the kernels of this machine's processor.
    """
    begin = perf_counter()
    name = host_target()
    if name not in _BLOCKED:
        raise TargetError("has no blocked kernels to calibrate", where=name, hint=f"it works on {', '.join(_BLOCKED)}")
    before = load_target("cpu")
    base, cpu, version = before.spec, processor_name(), str(onnxruntime.__version__)
    kernels = probes(before)
    progress(f"timing {len(kernels)} kernels")
    times = RequestedTimes(KernelStore(Machine.current(threads)), inf)
    times.request(Random(0).sample(kernels, len(kernels)))  # similar ones would share caches
    groups = grouped(kernels, times.get, before)
    progress("fitting")
    today = date.today().isoformat()
    where = f"{cpu} with {name.removeprefix('cpu-').upper()}, {threads} thread{'s' if threads > 1 else ''}"
    tables = fitted_tables(groups, base, f"measured: onnxruntime {version}, {where}, {today}, layoutopt calibrate")
    after = RooflineModel(TargetSpec.model_validate(merge(base.model_dump(mode="json", exclude_defaults=True), tables)))
    everything = [sample for each in groups.values() for sample in each.samples]
    rows = [(group, each.samples) for group, each in sorted(groups.items())]
    about = f"{where}, calibrated {today}: blocks of {base.block(DType.FLOAT32)} channels"
    return CalibrationReport(
        layoutopt_version=VERSION,
        cpu=cpu,
        onnxruntime_version=version,
        threads=threads,
        date=today,
        target=name,
        seconds=perf_counter() - begin,
        groups=[
            FittedGroup(group=group, kernels=len(each), error=_error(each, after), error_before=_error(each, before))
            for group, each in (*rows, ("all", everything))
        ],
        profile=toml_text({"inherits": base.name, "dialect": base.dialect, "description": about, **tables}),
    )


def _error(samples: Sequence[Sample], model: RooflineModel) -> float:
    return median(abs(price(each.kernel, model) / each.seconds - 1) for each in samples)
