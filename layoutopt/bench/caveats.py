"""Caveats of a benchmark: reasons why its numbers may be misleading, in one sentence each."""

from collections.abc import Iterator, Sequence

from layoutopt.bench.bench_inputs import DimensionSizes
from layoutopt.bench.bench_report import MachineReport, ModelReport
from layoutopt.bench.measure import BenchCase
from layoutopt.timing.statistics import Ratio, is_quiet

MIN_CPU_SHARE = 0.95  # CPU time over wall time, for one thread


def ratio_caveats(models: Sequence[ModelReport]) -> Iterator[str]:
    """Caveats of speed-ups: no difference is shown, or other load disturbed the blocks."""
    baseline = models[0]
    for model in models[1:]:
        pair, speed_up = f"{model.label} against {baseline.label}", model.speed_up
        assert speed_up is not None
        if speed_up.verdict == "no difference shown":
            yield f"{pair}: no difference is shown, the confidence interval includes 1"
        if not speed_up.is_precise:
            disagree = f"{speed_up.disturbed} of {speed_up.blocks} blocks disagree with the fastest runs"
            yield f"{pair}: the machine is busy, or there are too few rounds: the interval is wide, or {disagree}"


def machine_caveats(machine: MachineReport, models: Sequence[ModelReport], null: Ratio | None) -> Iterator[str]:
    """Caveats of the machine: threads that share CPUs, noise, and for one thread other load or no pinning."""
    if null is not None and not is_quiet(null):
        yield f"the machine is busy: {models[0].label} is {null.low:.3f} to {null.high:.3f} times as fast as itself"
    if machine.threads > machine.cpus:
        yield f"{machine.threads} threads share {machine.cpus} CPUs"
    if machine.threads == 1 and machine.pinned_to is None:
        yield "this system cannot pin the process to one CPU"
    if machine.threads == 1 and machine.cpu_share < MIN_CPU_SHARE:
        yield f"the machine is shared: the process had its CPU for {machine.cpu_share:.0%} of the time"


def input_caveats(
    cases: Sequence[BenchCase], output_types: Sequence[Sequence[str]], dimensions: DimensionSizes
) -> Iterator[str]:
    """Caveats of the inputs: inferred sizes, models with different inputs or outputs.

    Args:
        cases: the models.
        output_types: names, types and shapes of the outputs of each model, as text.
        dimensions: the sizes of the symbolic dimensions.
    """
    for symbol in dimensions.inferred:
        yield f"the symbolic dimension {symbol} is taken to be {dimensions.sizes[symbol]}; --dim {symbol}=N gives its size"
    baseline = cases[0]
    for case, types in zip(cases[1:], output_types[1:], strict=True):
        if set(case.interface.inputs) != set(baseline.interface.inputs):
            yield f"{case.label} and {baseline.label} have different inputs"
        if sorted(types) != sorted(output_types[0]):
            yield f"{case.label} and {baseline.label} have different outputs"
