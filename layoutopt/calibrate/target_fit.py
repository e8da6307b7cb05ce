"""Fit of a target's numbers to measurements.

The overhead, rate and bandwidth of each kernel row are fitted to the kernels that the row prices. Conversions are fitted in
three groups with one overhead, and all ops without a row in one group. Peaks are the largest fitted values; rows contain
fractions of the peaks.

A third of the kernels of every group is held out of its fit: the kernels are sorted by a hash of their keys, and every third
one is held out, so that they are the same on every machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf, isfinite
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
    # Ops without a row first, since no kernel costs less; then rows; rows that depend on other rows last.
    for group in sorted(groups, key=lambda group: (isinstance(group, int), _includes_reorders(group, spec))):
        samples = groups[group]
        if len(samples) < MIN_SAMPLES:
            continue
        memory_bound = isinstance(group, str) or not _MEMORY_BOUND.isdisjoint(spec.kernel[group].family)
        least = _LEAST_OVERHEAD if isinstance(group, str) or WITHOUT_ROW not in fits else fits[WITHOUT_ROW].overhead
        if _includes_reorders(group, spec):
            least = max(least, _least_overhead(group, fits, spec))
        fits[group] = fit(samples, least_overhead=least, is_memory_bound=memory_bound)
        if _includes_reorders(group, spec):
            fits[group] = _not_faster(fits[group], _blocked(group, fits, spec))
    return _FittedNumbers(spec, groups, fits, source).spec()


def _includes_reorders(group: Group, spec: TargetSpec) -> bool:
    """Whether the row is that of plain convolutions, which run as a blocked convolution between two reorders."""
    if isinstance(group, str) or "convolution" not in spec.kernel[group].family:
        return False
    return not any("{C0}" in text for text in spec.kernel[group].formats.values())


def _blocked(group: Group, fits: Mapping[Group, Roofline], spec: TargetSpec) -> list[Roofline]:
    """The blocked convolutions of the same variant."""
    assert isinstance(group, int)
    variant = spec.kernel[group].variant
    rows = {number: spec.kernel[number] for number in fits if isinstance(number, int)}
    alike = [number for number, row in rows.items() if "convolution" in row.family and row.variant == variant]
    return [fits[number] for number in alike if not _includes_reorders(number, spec)]


def _least_overhead(group: Group, fits: Mapping[Group, Roofline], spec: TargetSpec) -> float:
    """The overhead of a blocked convolution and two reorders, which few plain convolutions are small enough to show."""
    blocked = _blocked(group, fits, spec)
    return max((each.overhead for each in blocked), default=0.0) + 2 * _cast_overhead(fits)


def _not_faster(plain: Roofline, blocked: Sequence[Roofline]) -> Roofline:
    """The fit of plain convolutions, with the rate and bandwidth of the blocked ones, which they contain, as upper bounds."""
    return replace(
        plain,
        rate=min([plain.rate, *(each.rate for each in blocked)]),
        bandwidth=min([plain.bandwidth, *(each.bandwidth for each in blocked)]),
        overlaps=plain.overlaps and all(each.overlaps for each in blocked),
    )


def _cast_overhead(fits: Mapping[Group, Roofline]) -> float:
    """The median overhead of the groups of conversions; 0 without measurements."""
    found = [fits[group].overhead for group in (PLAIN, BLOCKED, CHANNELS_LAST) if group in fits]
    return float(np.median(found)) if found else 0.0


class _FittedNumbers:
    """Converts fits to the numbers of a target."""

    def __init__(
        self,
        spec: TargetSpec,
        groups: Mapping[Group, Sequence[KernelSample]],
        fits: Mapping[Group, Roofline],
        source: str,
    ) -> None:
        self.old = spec
        self.groups = groups
        self.fits = fits
        self.source = source
        vector = [each.rate for group, each in fits.items() if isinstance(group, int) and isfinite(each.rate)]
        self.rate = max(vector, default=spec.rates["vector"]["float32"].value)
        bandwidths = [each.bandwidth for each in fits.values() if isfinite(each.bandwidth)]
        self.bandwidth = max(bandwidths, default=spec.memory.bandwidth.value)

    def spec(self) -> TargetSpec:
        """The target."""
        vector = {
            **self.old.rates["vector"],
            "float32": Rate(value=_round(self.rate), source=self._source("the fastest kernel")),
        }
        self.rate, self.bandwidth = _round(self.rate), _round(self.bandwidth)
        return self.old.model_copy(
            update={
                "memory": self._memory(),
                "launch": self._launch(),
                "rates": {**self.old.rates, "vector": vector},
                "kernel": tuple(self._row(number, row) for number, row in enumerate(self.old.kernel)),
            }
        )

    def _memory(self) -> Memory:
        old = self.old.memory
        blocked = self._fitted_fraction(BLOCKED, old.blocked_cast_efficiency)
        scattered = old.scattered_cast_efficiency  # of casts that are too rare to be timed
        return Memory(
            bandwidth=Rate(value=self.bandwidth, source=self._source("the most that any kernel moves")),
            kernel_efficiency=self._fitted_fraction(WITHOUT_ROW, old.kernel_efficiency),
            plain_cast_efficiency=self._fitted_fraction(PLAIN, old.plain_cast_efficiency),
            blocked_cast_efficiency=blocked,
            channels_last_cast_efficiency=self._fitted_fraction(
                CHANNELS_LAST, old.channels_last_cast_efficiency or blocked
            ),
            scattered_cast_efficiency=None if scattered is None else self._kept_fraction(scattered),
        )

    def _launch(self) -> Launch:
        stream = self.fits.get(WITHOUT_ROW)
        overhead = self.old.launch.overhead
        if stream is not None:
            overhead = Duration(value=_round(stream.overhead), source=self._fit_source(WITHOUT_ROW))
        cast_overhead = self.old.launch.cast_overhead
        if found := _cast_overhead(self.fits):
            cast_overhead = Duration(
                value=_round(found), source=self._source("the median of the groups of conversions")
            )
        return Launch(overhead=overhead, cast_overhead=cast_overhead)

    def _row(self, number: int, row: KernelSpec) -> KernelSpec:
        found = self.fits.get(number)
        if found is None:
            return row
        source = self._fit_source(number)
        efficiency = Fraction(value=self._fraction_of(found.rate, self.rate), source=source)
        if not isfinite(found.rate):
            efficiency = Fraction(value=1.0, source=f"{source}; arithmetic does not bind it")
        traffic = Fraction(value=self._fraction_of(found.bandwidth, self.bandwidth), source=source)
        if not isfinite(found.bandwidth):
            traffic = Fraction(value=1.0, source=f"{source}; memory does not bind it")
        return row.model_copy(
            update={
                "efficiency": efficiency,
                "bandwidth_efficiency": traffic,
                "overhead": Duration(value=_round(found.overhead), source=source),
                "overlaps": found.overlaps,
            }
        )

    def _fitted_fraction(self, group: Group, otherwise: Fraction) -> Fraction:
        found = self.fits.get(group)
        if found is None or not isfinite(found.bandwidth):
            return self._kept_fraction(otherwise)
        return Fraction(value=self._fraction_of(found.bandwidth, self.bandwidth), source=self._fit_source(group))

    def _kept_fraction(self, fraction: Fraction) -> Fraction:
        """The same bytes per second as a fraction of the new peak."""
        value = _round(fraction.value * self.old.memory.bandwidth.value / self.bandwidth)
        return Fraction(value=min(1.0, value), source=fraction.source)

    def _fraction_of(self, value: float, peak: float) -> float:
        return min(1.0, _round(value / peak)) if value != inf else 1.0

    def _source(self, what: str) -> str:
        return f"{self.source}; {what}"

    def _fit_source(self, group: Group) -> str:
        fitted = self.fits[group]
        errors = [abs(fitted.seconds(each) - each.seconds) / each.seconds for each in self.groups[group]]
        return self._source(f"fitted to {len(errors)} kernels with a median error of {np.median(errors):.0%}")


def _round(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
