"""Caveats of a benchmark: reasons why its numbers may be misleading, in one sentence each."""

from collections.abc import Iterator, Sequence

import numpy as np

from layoutopt.bench.bench_inputs import Extents
from layoutopt.bench.bench_report import MachineReport, ModelReport
from layoutopt.bench.measure import Entry
from layoutopt.bench.statistics import CONFIDENCE

_STEADY = 0.05  # largest relative difference of the medians of the two halves
_CPU_SHARE = 0.95  # smallest share of its CPU that the process should have


def ratio_caveats(models: Sequence[ModelReport]) -> Iterator[str]:
    """Caveats of speed-ups: the spread is wider than the effect, or there are too few rounds."""
    baseline = models[0]
    for model in models[1:]:
        pair, speed_up = f"{model.label} against {baseline.label}", model.speed_up
        assert speed_up is not None
        if speed_up.confidence < CONFIDENCE:
            yield f"{pair}: too few rounds, the interval covers only {speed_up.confidence:.0%}"
        width, effect = speed_up.upper_quartile - speed_up.lower_quartile, abs(speed_up.median - 1)
        if speed_up.verdict == "no difference shown":
            yield f"{pair}: no difference is shown, the confidence interval includes 1"
        elif width > effect:
            yield f"{pair}: the spread of the rounds, {width:.3f}, is wider than the effect, {effect:.3f}"


def machine_caveats(machine: MachineReport, models: Sequence[ModelReport]) -> Iterator[str]:
    """Caveats of the machine: other load, threads without CPUs of their own."""
    if machine.threads > machine.cpus:
        yield f"{machine.threads} threads share {machine.cpus} CPUs"
    if machine.threads == 1 and machine.pinned_to is None:
        yield "this system cannot pin the process to one CPU"
    if machine.threads == 1 and machine.cpu_share < _CPU_SHARE:
        yield f"the machine is busy: the process had its CPU for {machine.cpu_share:.0%} of the time"
    changes = {model.label: _change(model.samples) for model in models}
    if max(map(abs, changes.values())) > _STEADY:
        drift = ", ".join(f"{label} {change:+.0%}" for label, change in changes.items())
        yield f"the machine is not steady: second half of the rounds against the first, {drift}"


def _change(blocks: Sequence[Sequence[float]]) -> float:
    """The relative change of the median between the first and the second half of the rounds."""
    samples = [sample for block in blocks for sample in block]
    middle = len(samples) // 2
    return float(np.median(samples[middle:]) / np.median(samples[:middle])) - 1 if middle else 0.0


def input_caveats(entries: Sequence[Entry], results: Sequence[Sequence[str]], extents: Extents) -> Iterator[str]:
    """Caveats of the inputs: inferred sizes, models with different inputs or outputs.

    Args:
        entries: the models.
        results: names, types and shapes of the outputs of each model, as text.
        extents: the symbolic dimensions.
    """
    for symbol in extents.inferred:
        yield f"the symbolic dimension {symbol} is taken to be {extents.sizes[symbol]}; --dim {symbol}=N gives its size"
    baseline = entries[0]
    for entry, result in zip(entries[1:], results[1:], strict=True):
        if set(entry.interface.inputs) != set(baseline.interface.inputs):
            yield f"{entry.label} and {baseline.label} have different inputs"
        if sorted(result) != sorted(results[0]):
            yield f"{entry.label} and {baseline.label} have different outputs"
