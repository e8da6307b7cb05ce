"""Calibration of this machine's target: the fit of its numbers to measured times, and the text of its file.

    seconds = overhead + operations / rate + bytes / bandwidth

Convolutions and matrix products have all three terms; the other kernels are bound by memory, and conversions move bytes alone.
The coefficients of a group of kernels are not negative and have the smallest sum of squared relative errors; then they are
scaled so that the median of predicted / measured is 1. Peaks are the largest fitted values, and rows have fractions of them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import combinations
from math import inf
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnxruntime
from pydantic import Field

from layoutopt.calibrate.probes import price, probes
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.cost_models.roofline import conversion_class, formats_of, operand_bytes
from layoutopt.cost_models.spec import Fraction, KernelSpec
from layoutopt.cost_models.target_files import Table, merge
from layoutopt.errors import TargetError
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import DType, Op
from layoutopt.kernel_times import KernelStore, Machine, RequestedTimes
from layoutopt.kernel_times.kernels import LoweredKernel
from layoutopt.ops import X, Y, rule_of
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
        TargetError: no target has the kernels of this machine's processor, or no group of kernels has enough times for a fit.
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
    if not groups:
        what = f"no kernel could be timed at {_MIN_KERNELS} shapes, which a fit needs"
        raise TargetError(what, where=name, hint="check that onnxruntime runs models on this machine")
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


# --- the fit ---

_MIN_KERNELS = 3  # that a fit needs
_WITH_ARITHMETIC = frozenset(("convolution", "matmul"))
"""Families whose kernels have different ratios of operations to bytes, so that the fit separates both terms."""


class Sample(NamedTuple):
    """A timed kernel: its arithmetic operations, the bytes that it reads and writes, and its time in seconds."""

    kernel: LoweredKernel
    operations: float
    nbytes: float
    seconds: float


class Group(NamedTuple):
    """Kernels that the same numbers of a target price.

    Attributes:
        row: the row of the target; None for conversions.
        samples: the kernels.
    """

    row: KernelSpec | None
    samples: list[Sample]

    @property
    def has_arithmetic(self) -> bool:
        """Whether the fit has a term of arithmetic operations."""
        return self.row is not None and not _WITH_ARITHMETIC.isdisjoint(self.row.family)


def grouped(
    kernels: Iterable[LoweredKernel], time_of: Callable[[str], float | None], model: RooflineModel
) -> dict[str, Group]:
    """The groups with enough kernels for a fit, by name, without emulated ops and kernels without a time.

    The name of a row has op types or families, variants and formats; that of a class of conversions is the key of its number.

    Args:
        kernels: the kernels.
        time_of: the seconds of a kernel by its key.
        model: the target, uncalibrated.
    """
    found: dict[str, Group] = {}
    for kernel in kernels:
        op, signature, seconds = kernel.op, kernel.op.signature, time_of(kernel.key)
        assert signature is not None
        if seconds is None:
            continue
        if is_cast(op):
            formats = formats_of(op, signature)
            name, row = conversion_class(formats[X], formats[Y], op.x.dims, model.spec.memory), None
            sample = Sample(kernel, 0.0, operand_bytes(op, formats), seconds)
        elif work := model.work(op, signature):
            row = work.kernel or _new_row(op)
            name = " ".join(("/".join(row.ops or row.family), *(row.variant or ()), *row.formats.values()))
            sample = Sample(kernel, work.operations, work.nbytes, seconds)
        else:
            continue
        found.setdefault(name, Group(row, [])).samples.append(sample)
    return {name: each for name, each in found.items() if len(each.samples) >= _MIN_KERNELS}


def _new_row(op: Op) -> KernelSpec:
    """A row for an op type without one, in all formats in which it has a direct lowering."""
    rule, ops = rule_of(op), (op.op_type,)
    assert rule is not None
    peak = Fraction(value=1.0, source="estimate: bound by memory")
    return KernelSpec(family=(rule.family,), ops=ops, dtypes=("float32",), direct=True, unit="vector", efficiency=peak)


class Fit(NamedTuple):
    """Seconds of a kernel, of an arithmetic operation and of a byte; 0 for a term that is never the bound."""

    overhead: float
    operation: float
    byte: float


def fit(samples: Sequence[Sample], *, has_arithmetic: bool) -> Fit:
    """The coefficients of a group of kernels."""
    terms = np.array([(1.0, each.operations, each.nbytes) for each in samples])
    relative = terms / np.array([[each.seconds] for each in samples])
    best, least = np.zeros(3), np.inf
    columns = (0, 1, 2) if has_arithmetic else (0, 2)
    for positive in (list(each) for count in (1, 2, 3) for each in combinations(columns, count)):
        found = np.zeros(3)
        found[positive] = np.linalg.lstsq(relative[:, positive], np.ones(len(samples)))[0]
        error = float(np.square(relative @ found - 1).sum())
        if found.min() >= 0 and error < least:
            best, least = found, error
    return Fit(*(best / np.median(relative @ best)).tolist())


def _error(samples: Sequence[Sample], model: RooflineModel) -> float:
    return median(abs(price(each.kernel, model) / each.seconds - 1) for each in samples)


def fitted_tables(groups: Mapping[str, Group], spec: TargetSpec, source: str) -> Table:
    """The tables of a target file with the numbers of all groups, and medians for ops without a row.

    Args:
        groups: the kernels.
        spec: the target that the file inherits.
        source: the conditions of the measurements, to which the number of kernels is added.
    """
    fits = {name: fit(each.samples, has_arithmetic=each.has_arithmetic) for name, each in groups.items()}
    rows = {name: each.row for name, each in groups.items() if each.row is not None}
    casts = [each for name, each in fits.items() if name not in rows]
    direct = [fits[name] for name, each in rows.items() if each.direct]
    rates = [1 / fits[name].operation for name, each in groups.items() if each.has_arithmetic and fits[name].operation]
    bandwidths = [1 / each.byte for each in (*casts, *direct) if each.byte]
    rate = max(rates, default=spec.rates["vector"]["float32"].value)
    bandwidth = max(bandwidths, default=spec.memory.bandwidth.value)

    def number(value: float, how: str) -> Table:
        """A number of a target file, rounded to three digits, with its source."""
        return {"value": float(f"{value:.3g}"), "source": f"{source}; {how}"}

    def fraction(peak: float, seconds: float, how: str) -> Table:
        return number(min(1.0, 1 / (peak * seconds)) if seconds else 1.0, how)

    memory, launch, kernels = {"bandwidth": number(bandwidth, "the most that any kernel moves")}, {}, []
    if direct:
        middle = "the median of the op types"
        launch["overhead"] = number(median(each.overhead for each in direct), middle)
        memory["kernel_efficiency"] = fraction(bandwidth, median(each.byte for each in direct), middle)
    if casts:
        middle = "the median of the classes of conversions"
        launch["cast_overhead"] = number(median(each.overhead for each in casts), middle)
    for name, each in fits.items():
        how = f"fitted to {len(groups[name].samples)} kernels"
        moved = fraction(bandwidth, each.byte, how)
        if name not in rows:
            memory[name] = moved
            continue
        kernels.append(
            {
                **rows[name].model_dump(mode="json", exclude_defaults=True),
                "efficiency": fraction(rate, each.operation, how),
                "bandwidth_efficiency": moved,
                "overhead": number(each.overhead, how),
                "overlaps": not groups[name].has_arithmetic,
            }
        )
    fastest = {"float32": number(rate, "the fastest kernel")}
    return {"launch": launch, "memory": memory, "rates": {"vector": fastest}, "kernel": kernels}


def toml_text(tables: Table) -> str:
    """The text of a target file: its keys, its tables, and a table for each kernel."""
    lines = [_toml_line(item) for item in tables.items() if isinstance(item[1], str)]
    for name, each in tables.items():
        if isinstance(each, dict):
            lines += ["", f"[{name}]", *map(_toml_line, each.items())]
    for row in tables["kernel"]:
        lines += ["", "[[kernel]]", *map(_toml_line, row.items())]
    return "\n".join([*lines, ""])


def _toml_line(item: tuple[str, Any]) -> str:
    return f"{item[0]} = {_toml_value(item[1])}"


def _toml_value(value: Any) -> str:
    """A value in TOML, which includes JSON's strings, numbers, booleans and lists."""
    if isinstance(value, dict):
        return f"{{ {', '.join(map(_toml_line, value.items()))} }}"
    return json.dumps(value, ensure_ascii=False)
