"""Fit of a target's numbers to measurements.

The overhead, rate and bandwidth of each kernel row are fitted to the kernels that the row prices. Conversions are fitted in
three groups with one overhead, and all ops without a row in one group. Peaks are the largest fitted values; rows contain
fractions of the peaks.

A third of the kernels of every group is held out of its fit: the kernels are sorted by a hash of their keys, and every third
one is held out, so that they are the same on every machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TypeAlias

import numpy as np

from layoutopt.calibrate.grid import KernelCase
from layoutopt.calibrate.roofline_fit import KernelSample, Roofline, fit
from layoutopt.cost_models import RooflineModel, TargetSpec
from layoutopt.cost_models.roofline import is_channels_last, is_unblocked, physical_bytes
from layoutopt.cost_models.spec import Duration, Fraction, KernelSpec, Launch, Memory, Rate
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import TensorType

Group: TypeAlias = int | str
"""The kernels that the same numbers price: the index of a row of the target, or the name of a group without a row."""

WITHOUT_ROW, PLAIN, BLOCKED, CHANNELS_LAST = "ops without a row", "plain casts", "blocked casts", "channels-last casts"
_LEAST_OVERHEAD = 1e-7  # seconds; shorter times are not resolved
MIN_SAMPLES = 3  # kernels that a fit needs
_HELD_OUT = 3  # every third kernel is held out
# Families that are bound by memory traffic.
_MEMORY_BOUND = frozenset(("elementwise", "softmax", "reduction", "normalization", "rearrangement", "resize"))


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
        if case.key not in seconds:
            continue
        op = case.op
        assert op.signature is not None
        group: Group
        if is_cast(op):
            x, source, target = op.inputs[0], op.signature.inputs[0], op.signature.outputs[0]
            assert x is not None and isinstance(x.type, TensorType) and x.shape is not None and source and target
            nbytes = sum(physical_bytes(x.type, each.format) for each in (source, target))
            is_plain = all(is_unblocked(each.format.key(x.shape), x.shape) for each in (source, target))
            moves_channels_last = is_channels_last(source.format, target.format, x.shape)
            group, operations = PLAIN if is_plain else CHANNELS_LAST if moves_channels_last else BLOCKED, 0.0
        else:
            work = model.work(op, op.signature)
            if work is None:
                continue
            group = WITHOUT_ROW if work.kernel is None else rows[id(work.kernel)]
            operations, nbytes = work.operations, work.nbytes
        found.append(Measurement(case, group, KernelSample(operations, nbytes, seconds[case.key])))
    return found


def held_out(measured: Sequence[Measurement]) -> set[str]:
    """The keys of the kernels that are not fitted to: every third of each group, in the order of a hash."""
    groups: dict[Group, list[str]] = {}
    for each in measured:
        groups.setdefault(each.group, []).append(each.case.key)
    chosen: set[str] = set()
    for keys in groups.values():
        ordered = sorted(keys, key=lambda key: sha256(key.encode()).digest())
        chosen.update(ordered[_HELD_OUT - 1 :: _HELD_OUT])
    return chosen


def fit_target(measured: Sequence[Measurement], spec: TargetSpec, source: str) -> TargetSpec:
    """The target with new numbers for all groups with enough measurements.

    Args:
        measured: the measurements.
        spec: the target whose rows define the groups.
        source: the conditions of the measurements, to which the source of each number is added.
    """
    groups: dict[Group, list[KernelSample]] = {}
    for each in measured:
        groups.setdefault(each.group, []).append(each.sample)
    fits: dict[Group, Roofline] = {}
    for group in sorted(
        groups, key=lambda group: isinstance(group, int)
    ):  # ops without a row first: no kernel costs less
        samples = groups[group]
        if len(samples) < MIN_SAMPLES:
            continue
        memory_bound = isinstance(group, str) or not _MEMORY_BOUND.isdisjoint(spec.kernel[group].family)
        least = _LEAST_OVERHEAD if isinstance(group, str) or WITHOUT_ROW not in fits else fits[WITHOUT_ROW].overhead
        fits[group] = fit(samples, least_overhead=least, is_memory_bound=memory_bound)
    return _FittedNumbers(spec, groups, fits, source).spec()


# --- kernel rows that calibration adds to a target, for ops that take longer than their memory traffic ---
#
# An op without a row is priced by the memory bandwidth alone, which is a third of the measured time for Gelu.


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


class _FittedNumbers:
    """Converts fits to the numbers of a target."""

    def __init__(
        self,
        spec: TargetSpec,
        groups: Mapping[Group, Sequence[KernelSample]],
        fits: Mapping[Group, Roofline],
        source: str,
    ) -> None:
        self.old, self.groups, self.fits, self.source = spec, groups, fits, source
        vector = [each.rate for group, each in fits.items() if isinstance(group, int) and isfinite(each.rate)]
        self.rate = max(vector, default=spec.rates["vector"]["float32"].value)
        bandwidths = [each.bandwidth for each in fits.values() if isfinite(each.bandwidth)]
        self.bandwidth = max(bandwidths, default=spec.memory.bandwidth.value)

    def spec(self) -> TargetSpec:
        """The target."""
        self.rate, self.bandwidth = _round(self.rate), _round(self.bandwidth)
        rate = Rate(value=self.rate, source=f"{self.source}; the fastest kernel")
        rates = {**self.old.rates, "vector": {**self.old.rates["vector"], "float32": rate}}
        rows = tuple(self._row(number, row) for number, row in enumerate(self.old.kernel))
        update = {"memory": self._memory(), "launch": self._launch(), "rates": rates, "kernel": rows}
        return self.old.model_copy(update=update)

    def _memory(self) -> Memory:
        old = self.old.memory
        blocked = self._fraction(BLOCKED, old.blocked_cast_efficiency)
        scattered = old.scattered_cast_efficiency  # of casts that are too rare to be timed
        return Memory(
            bandwidth=Rate(value=self.bandwidth, source=f"{self.source}; the most that any kernel moves"),
            kernel_efficiency=self._fraction(WITHOUT_ROW, old.kernel_efficiency),
            plain_cast_efficiency=self._fraction(PLAIN, old.plain_cast_efficiency),
            blocked_cast_efficiency=blocked,
            channels_last_cast_efficiency=self._fraction(CHANNELS_LAST, old.channels_last_cast_efficiency or blocked),
            scattered_cast_efficiency=None if scattered is None else self._kept_fraction(scattered),
        )

    def _launch(self) -> Launch:
        overhead, cast_overhead = self.old.launch.overhead, self.old.launch.cast_overhead
        if WITHOUT_ROW in self.fits:
            overhead = Duration(value=_round(self.fits[WITHOUT_ROW].overhead), source=self._fit_source(WITHOUT_ROW))
        if casts := [self.fits[group].overhead for group in (PLAIN, BLOCKED, CHANNELS_LAST) if group in self.fits]:
            source = f"{self.source}; the median of the groups of conversions"
            cast_overhead = Duration(value=_round(float(np.median(casts))), source=source)
        return Launch(overhead=overhead, cast_overhead=cast_overhead)

    def _row(self, number: int, row: KernelSpec) -> KernelSpec:
        found = self.fits.get(number)
        if found is None:
            return row
        source = self._fit_source(number)

        def fraction(value: float, peak: float, name: str) -> Fraction:
            if isfinite(value):
                return Fraction(value=min(1.0, _round(value / peak)), source=source)
            return Fraction(value=1.0, source=f"{source}; {name} does not bind it")

        return row.model_copy(
            update={
                "efficiency": fraction(found.rate, self.rate, "arithmetic"),
                "bandwidth_efficiency": fraction(found.bandwidth, self.bandwidth, "memory"),
                "overhead": Duration(value=_round(found.overhead), source=source),
                "overlaps": found.overlaps,
            }
        )

    def _fraction(self, group: Group, otherwise: Fraction) -> Fraction:
        """The fraction of the bandwidth that a group reaches."""
        found = self.fits.get(group)
        if found is None or not isfinite(found.bandwidth):
            return self._kept_fraction(otherwise)
        value = min(1.0, _round(found.bandwidth / self.bandwidth))
        return Fraction(value=value, source=self._fit_source(group))

    def _kept_fraction(self, fraction: Fraction) -> Fraction:
        """The same bytes per second as a fraction of the new peak."""
        value = _round(fraction.value * self.old.memory.bandwidth.value / self.bandwidth)
        return Fraction(value=min(1.0, value), source=fraction.source)

    def _fit_source(self, group: Group) -> str:
        fitted = self.fits[group]
        errors = [abs(fitted.seconds(each) - each.seconds) / each.seconds for each in self.groups[group]]
        return f"{self.source}; fitted to {len(errors)} kernels with a median error of {np.median(errors):.0%}"


def _round(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
