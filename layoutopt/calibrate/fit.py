"""Fit of a target's numbers to measured times.

The overhead, rate and bandwidth of each kernel row are fitted to the kernels that the row prices. Conversions are fitted by
class with one overhead, and all ops without a row in one group. Peaks are the largest fitted values; rows contain fractions of
the peaks. The result is the tables of a target file that inherits the fitted target.

    seconds = overhead + max(operations / rate, bytes / bandwidth)      where they overlap
    seconds = overhead + operations / rate + bytes / bandwidth          where they do not

Overhead, rate and bandwidth are chosen to minimise

    sum over kernels of |ln(predicted / measured)|

which weights relative errors symmetrically and is robust to outliers: with one free parameter the optimum is the median of the
ratios. At an optimum the curve passes through as many measurements as it has parameters, so the candidates are the rates and
bandwidths at which one kernel would be bound by that term alone, after an overhead from a geometric series.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import inf, isfinite
from typing import Any, TypeAlias

import numpy as np

from layoutopt.calibrate.grid import KernelCase
from layoutopt.cost_models import RooflineModel, TargetSpec
from layoutopt.cost_models.roofline import conversion_class, physical_bytes
from layoutopt.cost_models.spec import Fraction, KernelSpec
from layoutopt.cost_models.target_files import Table, merge
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import Array, TensorType

_OVERHEAD_CANDIDATES = 20
_MAX_OVERHEAD = 4e-6  # seconds; a fit to few small kernels could have a larger one
_MAX_CANDIDATES = 60  # candidates for a rate or a bandwidth
_MAX_LOSS_RATIO = 0.95  # of the sum to the maximum of both terms, at which the sum is preferred
_LEAST_OVERHEAD = 1e-7  # seconds; shorter times are not resolved
_MIN_SAMPLES = 3  # kernels that a fit needs
# Families that are bound by memory traffic.
_MEMORY_BOUND = frozenset(("elementwise", "softmax", "reduction", "normalization", "rearrangement", "resize"))


@dataclass(frozen=True, slots=True)
class KernelSample:
    """A kernel and its time.

    Attributes:
        operations: arithmetic operations.
        nbytes: bytes read and written.
        seconds: measured time.
    """

    operations: float
    nbytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The fitted parameters. A rate or bandwidth that is never the bound is infinite.

    Attributes:
        overhead: constant time in seconds.
        rate: operations per second.
        bandwidth: bytes per second.
        overlaps: whether arithmetic and memory traffic overlap, as in the first formula.
    """

    overhead: float
    rate: float
    bandwidth: float
    overlaps: bool

    def seconds(self, sample: KernelSample) -> float:
        """The prediction."""
        arithmetic, traffic = sample.operations / self.rate, sample.nbytes / self.bandwidth
        return self.overhead + (max(arithmetic, traffic) if self.overlaps else arithmetic + traffic)


def fit(samples: Sequence[KernelSample], *, least_overhead: float = 0.0, is_memory_bound: bool = False) -> Roofline:
    """The roofline with the smallest loss for one or more measurements.

    Args:
        samples: the measurements.
        least_overhead: lower bound of the overhead, in seconds.
        is_memory_bound: whether arithmetic is negligible.
    """
    operations, nbytes, measured = np.asarray([(each.operations, each.nbytes, each.seconds) for each in samples]).T
    most = min(float(measured.min()), _MAX_OVERHEAD)
    overheads = [least_overhead]
    if most > least_overhead:
        overheads += np.geomspace(max(least_overhead, most / 50), most * 0.98, _OVERHEAD_CANDIDATES).tolist()
    best, least_loss = Roofline(0.0, inf, inf, True), inf
    for overlaps, overhead in product((True,) if is_memory_bound else (True, False), overheads):
        rest = np.maximum(measured - overhead, measured * 1e-3)
        rates = np.asarray([inf]) if is_memory_bound else _candidates(operations, rest)
        bandwidths = _candidates(nbytes, rest)
        join = np.maximum if overlaps else np.add
        # axes: rates, bandwidths, kernels
        predicted = overhead + join(operations / rates[:, None, None], nbytes / bandwidths[None, :, None])
        losses = np.abs(np.log(np.maximum(predicted, 1e-12) / measured)).mean(axis=2)
        row, column = np.unravel_index(int(losses.argmin()), losses.shape)
        loss = float(losses[row, column]) / (1 if overlaps else _MAX_LOSS_RATIO)
        if loss < least_loss - 1e-9:
            best, least_loss = Roofline(overhead, float(rates[row]), float(bandwidths[column]), overlaps), loss
    return best


def _candidates(amounts: Array, rest: Array) -> Array:
    """For each kernel the rate or bandwidth if this term alone were the bound, and infinity, if it never is."""
    found = np.unique(amounts[amounts > 0] / rest[amounts > 0])
    if found.size > _MAX_CANDIDATES:
        found = found[np.linspace(0, found.size - 1, _MAX_CANDIDATES).round().astype(int)]
    return np.append(found, inf)


# --- the kernels that the same numbers price ---


Group: TypeAlias = int | str
"""The index of a row of the target; for conversions and ops without a row, the name of their fraction of the bandwidth."""

WITHOUT_ROW = "kernel_efficiency"
_CONVERSIONS = (
    "plain_cast_efficiency",
    "blocked_cast_efficiency",
    "channels_last_cast_efficiency",
    "scattered_cast_efficiency",
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A kernel, its group, its work and its measured time."""

    case: KernelCase
    group: Group
    sample: KernelSample


def group_measurements(
    cases: Iterable[KernelCase], seconds: Mapping[str, float], spec: TargetSpec
) -> list[Measurement]:
    """The measured kernels with their groups, without kernels that the target emulates."""
    model = RooflineModel(spec)
    rows = {id(kernel): number for number, kernel in enumerate(spec.kernel)}
    found = []
    for case in cases:
        op, signature = case.op, case.op.signature
        group: Group = WITHOUT_ROW
        assert signature is not None
        if is_cast(op):
            x, source, target = op.inputs[0], signature.inputs[0], signature.outputs[0]
            assert x is not None and isinstance(x.type, TensorType) and x.shape is not None and source and target
            operations, nbytes = 0.0, sum(physical_bytes(x.type, each.format) for each in (source, target))
            group = conversion_class(source.format, target.format, x.shape, spec.memory)
        else:
            work = model.work(op, signature)
            if work is None:
                continue
            group = WITHOUT_ROW if work.kernel is None else rows[id(work.kernel)]
            operations, nbytes = work.operations, work.nbytes
        found.append(Measurement(case, group, KernelSample(operations, nbytes, seconds[case.key])))
    return found


def label(group: Group, spec: TargetSpec) -> str:
    """The kernels of a group in words: op types or families, variants, and the formats of the inputs."""
    if isinstance(group, str):
        return (
            "ops without a row" if group == WITHOUT_ROW else f"{group.removesuffix('_efficiency')}s".replace("_", " ")
        )
    row = spec.kernel[group]
    formats = (format for role, format in row.formats.items() if role in "xab")
    return " ".join(filter(None, ("/".join(row.ops or row.family), "/".join(row.variant or ()), *formats)))


# Kernel rows that calibration adds to a target, for ops that take longer than their memory traffic: an op without a row is
# priced by the memory bandwidth alone, which is a third of the measured time for Gelu.
_PLACEHOLDER = Fraction(value=1.0, source="estimate: bound by memory")
_ROWS: tuple[tuple[tuple[str, ...], tuple[str, ...] | None], ...] = (
    *((("elementwise",), ops) for ops in (("Sigmoid", "Tanh"), ("Erf",), ("Gelu",), ("QuickGelu",), ("FastGelu",))),
    *((("elementwise",), ops) for ops in (("HardSwish",), ("Sqrt",), ("Softplus",))),
    (("softmax",), ("Softmax",)),
    (("reduction",), ("ReduceMean",)),
    (("normalization",), ("LayerNormalization",)),
    (("normalization",), ("InstanceNormalization",)),
    (("rearrangement",), ("Concat",)),
)


def with_rows(spec: TargetSpec) -> TargetSpec:
    """The target with all rows that calibration fits."""
    present = {(kernel.family, kernel.ops) for kernel in spec.kernel if kernel.direct}
    added = tuple(
        KernelSpec(family=family, ops=ops, dtypes=("float32",), direct=True, unit="vector", efficiency=_PLACEHOLDER)
        for family, ops in _ROWS
        if (family, ops) not in present
    )
    return spec.model_copy(update={"kernel": spec.kernel + added})


# --- the numbers of a target ---


def fitted_tables(measured: Sequence[Measurement], spec: TargetSpec, source: str) -> Table:
    """The tables of a target file with new numbers for all groups with enough measurements.

    Args:
        measured: the measurements.
        spec: the target whose rows define the groups.
        source: the conditions of the measurements, to which the number of kernels is added.
    """
    groups: dict[Group, list[KernelSample]] = {WITHOUT_ROW: []}  # first: no kernel costs less
    for each in measured:
        groups.setdefault(each.group, []).append(each.sample)
    fits: dict[Group, Roofline] = {}
    for group, samples in groups.items():
        if len(samples) >= _MIN_SAMPLES:
            memory_bound = isinstance(group, str) or not _MEMORY_BOUND.isdisjoint(spec.kernel[group].family)
            least = _LEAST_OVERHEAD if isinstance(group, str) or WITHOUT_ROW not in fits else fits[WITHOUT_ROW].overhead
            fits[group] = fit(samples, least_overhead=least, is_memory_bound=memory_bound)
    rates = [each.rate for group, each in fits.items() if isinstance(group, int) and isfinite(each.rate)]
    bandwidths = [each.bandwidth for each in fits.values() if isfinite(each.bandwidth)]
    rate = max(rates, default=spec.rates["vector"]["float32"].value)
    bandwidth = max(bandwidths, default=spec.memory.bandwidth.value)

    def number(value: float, group: Group) -> Table:
        return _number(value, f"{source}; fitted to {len(groups[group])} kernels")

    memory = {"bandwidth": _number(bandwidth, f"{source}; the most that any kernel moves")}
    for name in (WITHOUT_ROW, *_CONVERSIONS):
        old, found = getattr(spec.memory, name), fits.get(name)
        if found is not None and isfinite(found.bandwidth):
            memory[name] = number(found.bandwidth / bandwidth, name)
        elif old is not None:  # the same bytes per second
            memory[name] = _number(min(1.0, old.value * spec.memory.bandwidth.value / bandwidth), old.source)
    launch = {}
    if WITHOUT_ROW in fits:
        launch["overhead"] = number(fits[WITHOUT_ROW].overhead, WITHOUT_ROW)
    if casts := [fits[name].overhead for name in _CONVERSIONS if name in fits]:
        launch["cast_overhead"] = _number(
            float(np.median(casts)), f"{source}; the median of the classes of conversions"
        )
    kernels = [
        {
            **spec.kernel[group].model_dump(mode="json", exclude_defaults=True),
            "efficiency": number(min(1.0, found.rate / rate), group),
            "bandwidth_efficiency": number(min(1.0, found.bandwidth / bandwidth), group),
            "overhead": number(found.overhead, group),
            "overlaps": found.overlaps,
        }
        for group, found in fits.items()
        if isinstance(group, int)
    ]
    fastest = {"float32": _number(rate, f"{source}; the fastest kernel")}
    return {"launch": launch, "memory": memory, "rates": {"vector": fastest}, "kernel": kernels}


def _number(value: float, source: str) -> Table:
    """A number of a target file, rounded to three digits, with its source."""
    return {"value": float(f"{value:.3g}"), "source": source}


def with_tables(spec: TargetSpec, tables: Table) -> TargetSpec:
    """The target that a file with these tables describes, which inherits another target."""
    return TargetSpec.model_validate(merge(spec.model_dump(mode="json", exclude_defaults=True), tables))


def toml_text(tables: Table) -> str:
    """The text of a target file: a line for each key, with the path of its table, and a table for each kernel."""
    rows = (["", "[[kernel]]", *map(_toml_line, row.items())] for row in tables.get("kernel", ()))
    return "\n".join([*_toml_lines(tables), *chain.from_iterable(rows), ""])


def _toml_lines(table: Table, path: str = "") -> Iterator[str]:
    for key, each in table.items():
        if isinstance(each, dict) and "source" not in each:
            yield from _toml_lines(each, f"{path}{key}.")
        elif key != "kernel":
            yield _toml_line((f"{path}{key}", each))


def _toml_line(item: tuple[str, Any]) -> str:
    return f"{item[0]} = {_toml_value(item[1])}"


def _toml_value(value: Any) -> str:
    """A value in TOML, which includes JSON's strings, numbers, booleans and lists."""
    if isinstance(value, dict):
        return f"{{ {', '.join(map(_toml_line, value.items()))} }}"
    return json.dumps(value, ensure_ascii=False)
