"""Fit of a target's numbers to measurements.

The overhead, rate and bandwidth of each kernel row are fitted to the kernels that the row prices. Conversions are fitted in
three groups with one overhead, and all ops without a row in one group. Peaks are the largest fitted values; rows contain
fractions of the peaks. The result is the tables of a target file that inherits the fitted target.

A third of the kernels of every group is held out of its fit: the kernels are sorted by a hash of their keys, and every third
one is held out, so that they are the same on every machine.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import Any, TypeAlias

import numpy as np

from layoutopt.calibrate.grid import KernelCase
from layoutopt.calibrate.roofline_fit import KernelSample, Roofline, fit
from layoutopt.cost_models import RooflineModel, TargetSpec
from layoutopt.cost_models.roofline import is_channels_last, is_unblocked, physical_bytes
from layoutopt.cost_models.spec import Fraction, KernelSpec
from layoutopt.cost_models.target_files import Table, merge
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import TensorType

Group: TypeAlias = int | str
"""The kernels that the same numbers price: the index of a row of the target, or the name of a group without a row."""

WITHOUT_ROW, PLAIN, BLOCKED, CHANNELS_LAST = "ops without a row", "plain casts", "blocked casts", "channels-last casts"
_LEAST_OVERHEAD = 1e-7  # seconds; shorter times are not resolved
MIN_SAMPLES = 3  # kernels that a fit needs
_HELD_OUT = 3  # every third kernel is held out
_EFFICIENCIES: dict[str, Group] = {
    "kernel_efficiency": WITHOUT_ROW,
    "plain_cast_efficiency": PLAIN,
    "blocked_cast_efficiency": BLOCKED,
    "channels_last_cast_efficiency": CHANNELS_LAST,
    "scattered_cast_efficiency": "scattered casts",  # which are too rare to be timed
}
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


def fitted_tables(measured: Sequence[Measurement], spec: TargetSpec, source: str) -> Table:
    """The tables of a target file with new numbers for all groups with enough measurements.

    Args:
        measured: the measurements.
        spec: the target whose rows define the groups.
        source: the conditions of the measurements, to which the source of each number is added.
    """
    groups: dict[Group, list[KernelSample]] = {}
    for each in measured:
        groups.setdefault(each.group, []).append(each.sample)
    fits: dict[Group, Roofline] = {}
    for group, samples in sorted(groups.items(), key=lambda item: isinstance(item[0], int)):  # ops without a row first:
        if len(samples) >= MIN_SAMPLES:  # no kernel costs less
            memory_bound = isinstance(group, str) or not _MEMORY_BOUND.isdisjoint(spec.kernel[group].family)
            least = _LEAST_OVERHEAD if isinstance(group, str) or WITHOUT_ROW not in fits else fits[WITHOUT_ROW].overhead
            fits[group] = fit(samples, least_overhead=least, is_memory_bound=memory_bound)
    rates = [each.rate for group, each in fits.items() if isinstance(group, int) and isfinite(each.rate)]
    bandwidths = [each.bandwidth for each in fits.values() if isfinite(each.bandwidth)]
    rate = _number(max(rates, default=spec.rates["vector"]["float32"].value), f"{source}; the fastest kernel")
    bandwidth = _number(
        max(bandwidths, default=spec.memory.bandwidth.value), f"{source}; the most that any kernel moves"
    )

    def source_of(group: Group) -> str:
        errors = [abs(fits[group].seconds(each) - each.seconds) / each.seconds for each in groups[group]]
        return f"{source}; fitted to {len(errors)} kernels with a median error of {np.median(errors):.0%}"

    def fraction(value: float, peak: Table, source: str, name: str) -> Table:
        is_bound = isfinite(value)
        reached = min(1.0, value / peak["value"]) if is_bound else 1.0
        return _number(reached, source if is_bound else f"{source}; {name} does not bind it")

    memory = {"bandwidth": bandwidth}
    for name, group in _EFFICIENCIES.items():
        old, found = getattr(spec.memory, name), fits.get(group)
        if found is not None and isfinite(found.bandwidth):
            memory[name] = fraction(found.bandwidth, bandwidth, source_of(group), "memory")
        elif old is not None:  # the same bytes per second
            memory[name] = fraction(old.value * spec.memory.bandwidth.value, bandwidth, old.source, "memory")
    launch = {}
    if WITHOUT_ROW in fits:
        launch["overhead"] = _number(fits[WITHOUT_ROW].overhead, source_of(WITHOUT_ROW))
    if casts := [fits[group].overhead for group in (PLAIN, BLOCKED, CHANNELS_LAST) if group in fits]:
        of_groups = f"{source}; the median of the groups of conversions"
        launch["cast_overhead"] = _number(float(np.median(casts)), of_groups)
    kernels = [
        {
            **spec.kernel[group].model_dump(mode="json", exclude_defaults=True),
            "efficiency": fraction(found.rate, rate, source_of(group), "arithmetic"),
            "bandwidth_efficiency": fraction(found.bandwidth, bandwidth, source_of(group), "memory"),
            "overhead": _number(found.overhead, source_of(group)),
            "overlaps": found.overlaps,
        }
        for group, found in fits.items()
        if isinstance(group, int)
    ]
    return {"launch": launch, "memory": memory, "rates": {"vector": {"float32": rate}}, "kernel": kernels}


def _number(value: float, source: str) -> Table:
    """A number of a target file, rounded to three digits, with its source."""
    return {"value": float(f"{value:.3g}"), "source": source}


def with_tables(spec: TargetSpec, tables: Table) -> TargetSpec:
    """The target that a file with these tables describes, which inherits another target."""
    return TargetSpec.model_validate(merge(spec.model_dump(mode="json", exclude_defaults=True), tables))


def toml_text(tables: Table) -> str:
    """The text of a target file."""
    return "\n".join(_toml_lines(tables)) + "\n"


def _toml_lines(table: Table, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The keys of a table in a line each, then the tables in it that have tables or rows themselves."""
    nested = {key for key, each in table.items() if any(isinstance(part, dict) for part in _parts(each))}
    yield from (f"{key} = {_toml_value(each)}" for key, each in table.items() if key not in nested)
    for key in (key for key in table if key in nested):
        name, inner = ".".join((*path, key)), table[key]
        title = f"[[{name}]]" if isinstance(inner, list) else f"[{name}]"
        for each in inner if isinstance(inner, list) else [inner]:
            yield from ("", title, *_toml_lines(each, (*path, key)))


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _toml_value(value: Any) -> str:
    """A value in TOML, which includes JSON's strings, numbers, booleans and lists."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml_value(each)}' for key, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)
