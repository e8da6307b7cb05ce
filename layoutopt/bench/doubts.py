"""Why the numbers may mean less than they seem to, in one sentence each."""

from collections.abc import Iterator, Sequence

import numpy as np

from layoutopt.bench.inputs import Extents
from layoutopt.bench.measure import Entry
from layoutopt.bench.report import MachineReport, ModelReport
from layoutopt.bench.spread import CONFIDENCE

_STEADY = 0.05  # by how much the medians of the two halves may differ
_OWN = 0.95  # the least part of its CPU that the process should have had


def about_ratios(models: Sequence[ModelReport]) -> Iterator[str]:
    """Where the spread is wider than the effect."""
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


def about_machine(machine: MachineReport, models: Sequence[ModelReport]) -> Iterator[str]:
    """Where the machine was not quiet."""
    if machine.threads > machine.cpus:
        yield f"{machine.threads} threads share {machine.cpus} CPUs"
    if machine.threads == 1 and machine.pinned_to is None:
        yield "this system cannot pin the process to one CPU"
    if machine.threads == 1 and machine.cpu_share < _OWN:
        yield f"the machine is busy: the process had its CPU for {machine.cpu_share:.0%} of the time"
    changes = {model.label: _change(model.samples) for model in models}
    if max(map(abs, changes.values())) > _STEADY:
        says = ", ".join(f"{label} {change:+.0%}" for label, change in changes.items())
        yield f"the machine is not steady: second half of the rounds against the first, {says}"


def _change(blocks: Sequence[Sequence[float]]) -> float:
    """How much more time the second half took, by its median."""
    samples = [sample for block in blocks for sample in block]
    middle = len(samples) // 2
    return float(np.median(samples[middle:]) / np.median(samples[:middle])) - 1 if middle else 0.0


def about_inputs(entries: Sequence[Entry], results: Sequence[Sequence[str]], extents: Extents) -> Iterator[str]:
    """Where models do not do the same work, or nobody has said how much it is.

    Args:
        entries: the models.
        results: what came out of each, in words.
        extents: the symbolic dimensions.
    """
    for symbol in extents.guessed:
        yield f"the symbolic dimension {symbol} is taken to be {extents.of[symbol]}; --dim {symbol}=N gives its size"
    baseline = entries[0]
    for entry, result in zip(entries[1:], results[1:], strict=True):
        if set(entry.interface.inputs) != set(baseline.interface.inputs):
            yield f"{entry.label} and {baseline.label} have different inputs"
        if sorted(result) != sorted(results[0]):
            yield f"{entry.label} and {baseline.label} have different outputs"
