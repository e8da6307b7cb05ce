"""Benchmark of model files against each other, from files to the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from string import ascii_uppercase
from time import perf_counter
from typing import TypeAlias

from layoutopt.bench.bench_inputs import DimensionSizes, Feed, feeds, resolve_dimension_sizes
from layoutopt.bench.bench_report import BenchReport, InputReport, MachineReport, ModelReport, PeakMemory
from layoutopt.bench.peak_memory import measure_memory
from layoutopt.bench.runtimes import Runtime, load_runtime
from layoutopt.errors import ArgumentError, LayoutoptError, ModelError
from layoutopt.files import path_text, scratch_folder
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Interface, read_interface
from layoutopt.runtime.processor import processor_name
from layoutopt.sample_inputs import SampleInputs, sample_inputs_for, symbols_of
from layoutopt.timing.interleaved import in_rounds, pinned, timed, usable_cpus
from layoutopt.timing.speed_up import Block, measure_in_turns
from layoutopt.timing.statistics import Ratio, estimate, is_quiet, null_ratio, ratio
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_PROFILE_RUNS = (3, 20, 2.0)  # runs with profiling: smallest and largest number, and time limit in seconds


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A model, its runtime and its inputs.

    Attributes:
        label: the letter in the report.
        path: the file.
        runtime: the runtime.
        interface: the inputs and outputs of the model.
        feed: the inputs.
        memory: that of a separate process.
        output_types: names, types and shapes of the outputs, as text.
    """

    label: str
    path: Path
    runtime: Runtime
    interface: Interface
    feed: Feed
    memory: PeakMemory
    output_types: list[str]


def bench(
    models: Sequence[str | PathLike[str]],
    *,
    threads: int = 1,
    seconds: float = 10.0,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Array] | None = None,
    runtimes: Sequence[str] = ("onnxruntime",),
    progress: Progress = lambda step: None,
) -> BenchReport:
    """Time models against each other; the first is the baseline.

    Args:
        models: the files.
        threads: threads of each runtime; with one, the process is pinned to one CPU.
        seconds: the time for the timed runs on a quiet machine; at least 24 runs of each model.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions, by name, or by `input[axis]` for unnamed ones.
        inputs: values by the name of the input, which also determine symbolic dimensions.
        runtimes: onnxruntime, openvino; every model is run in each runtime that can run it.
        progress: called with the name of each step.

    Raises:
        ArgumentError: the number of threads is too small.
        ModelError: a model cannot be read, loaded or run.
        DimensionError: no model has such a dimension.
        InputError: no model has such an input, or it has another type or shape.
        LayoutoptError: a runtime is not installed, or a type has no random values.
    """
    if not models or not runtimes:
        raise LayoutoptError("nothing to measure", hint="name a model and a runtime")
    if threads < 1:
        raise ArgumentError("is too small", where=f"threads={threads!r:.80}", hint="give 1 or more")
    progress("reading")
    given = inputs or {}
    interfaces = [read_interface(Path(model)) for model in models]
    samples = _samples(models[0], interfaces[0], resolve_dimension_sizes(interfaces, dims or {}, given), given)
    dimensions = resolve_dimension_sizes(interfaces, dims or {}, given, samples.planned)
    drawn = zip(models, interfaces, feeds(interfaces, dimensions.sizes, seed, given, samples), strict=True)
    loaded = [load_runtime(name) for name in runtimes]
    candidates = [
        (Path(model), runtime, interface.resolved(dimensions.sizes), feed)
        for model, interface, feed in drawn
        for runtime in loaded
    ]
    cpus = usable_cpus()
    with pinned(threads) as cpu:
        cases, exclusions = _runnable_cases(candidates, threads, progress)
        progress("running in turns")
        # The processor time of this thread is not that of a run in OpenVINO, which has threads of its own.
        clock = perf_counter if any(case.runtime.name != "onnxruntime" for case in cases) else None
        blocks = measure_in_turns(
            [partial(_create, case, threads) for case in cases],
            threads=threads,
            seconds=seconds,
            clock=clock,
            max_seconds=3 * max(seconds, 10.0),
        )
        reports = []
        for number, case in enumerate(cases):
            progress(f"profiling {case.label}")
            reports.append(_model_report(number, case, blocks, _reorder_share(case, threads), given))
    machine = MachineReport(cpu=processor_name(), cpus=cpus, threads=threads, pinned_to=cpu)
    null = null_ratio(reports[0].samples)
    assert null is not None, "each block has two runs at least"
    return BenchReport(
        layoutopt_version=VERSION,
        machine=machine,
        seed=seed,
        dims=dimensions.sizes,
        blocks=len(blocks),
        rounds=reports[0].time.count,
        null=null,
        models=reports,
        warnings=[
            *exclusions,
            *input_caveats(cases, dimensions),
            *machine_caveats(machine, reports, null),
            *ratio_caveats(reports),
        ],
    )


def _samples(
    model: str | PathLike[str], interface: Interface, dimensions: DimensionSizes, given: Mapping[str, Array]
) -> SampleInputs:
    """The generator of inputs of the first model, with its own given sizes and arrays."""
    own = {symbol.name for symbol in symbols_of(interface)} - set(dimensions.inferred)
    names = {each.name for each in interface.inputs}
    dims = {name: size for name, size in dimensions.sizes.items() if name in own}
    return sample_inputs_for(model, dims, {name: value for name, value in given.items() if name in names})


def _runnable_cases(
    candidates: Sequence[tuple[Path, Runtime, Interface, Feed]], threads: int, progress: Progress
) -> tuple[list[BenchCase], list[str]]:
    """The cases that can run, and the reasons for leaving out others.

    Raises:
        ModelError: no runtime can run a model.
    """
    cases: list[BenchCase] = []
    errors: dict[Path, list[ModelError]] = {}
    for path, runtime, interface, feed in candidates:
        progress(f"measuring the memory of {path.name}")
        try:
            memory, types = measure_memory(path, runtime.name, threads, feed)
        except ModelError as error:
            errors.setdefault(path, []).append(error)
            continue
        outputs = [f"{name} {each}" for name, each in zip(interface.outputs, types, strict=True)]
        cases.append(BenchCase("", path, runtime, interface, feed, memory, outputs))
    for path, found in errors.items():
        if all(case.path != path for case in cases):
            raise found[0]
    labels = ascii_uppercase if len(cases) <= len(ascii_uppercase) else [str(at + 1) for at in range(len(cases))]
    exclusions = [f"left out: {each.where}: {each.what}" for found in errors.values() for each in found]
    return [replace(case, label=label) for case, label in zip(cases, labels, strict=False)], exclusions


def _create(case: BenchCase, threads: int) -> list[Callable[[], object]]:
    session = case.runtime.open(case.path, threads)
    return [partial(session.run, case.feed)]


def _reorder_share(case: BenchCase, threads: int) -> float:
    fewest, most, limit = _PROFILE_RUNS
    with scratch_folder() as folder:
        session = case.runtime.open(case.path, threads, folder / "profile")
        session.run(case.feed)
        in_rounds(
            [timed(partial(session.run, case.feed))],
            lambda done, passed: done >= most or (done >= fewest and passed >= limit),
        )
        return session.reorder_share()


def _model_report(
    number: int, case: BenchCase, blocks: Sequence[Block], reorder_share: float, given: Mapping[str, Array]
) -> ModelReport:
    times, baseline = ([block.runs[each][0] for block in blocks] for each in (number, 0))
    created, first = ([[min(block.created[each])] for block in blocks] for each in (number, 0))
    inputs = [
        InputReport(name=name, dtype=str(value.dtype), shape=list(value.shape), given=name in given)
        for name, value in case.feed.items()
    ]
    return ModelReport(
        label=case.label,
        model=path_text(case.path),
        runtime=case.runtime.name,
        runtime_version=case.runtime.version,
        inputs=inputs,
        time=estimate(times),
        speed_up=ratio(baseline, times) if number else None,
        creation=estimate(created),
        creation_speed_up=ratio(first, created) if number else None,
        memory=case.memory,
        reorder_share=reorder_share,
        samples=times,
    )


# --- caveats: reasons why the numbers may be misleading, in one sentence each ---


def ratio_caveats(models: Sequence[ModelReport]) -> Iterator[str]:
    """Caveats of speed-ups: no difference is shown, or other load disturbed the blocks."""
    for model in models[1:]:
        pair, speed_up = f"{model.label} against {models[0].label}", model.speed_up
        assert speed_up is not None
        if speed_up.verdict == "no difference shown":
            yield f"{pair}: no difference is shown, the confidence interval includes 1"
        if not speed_up.is_precise:
            disagree = f"{speed_up.disturbed} of {speed_up.blocks} blocks disagree with the fastest runs"
            yield f"{pair}: the machine is busy, or there are too few rounds: the interval is wide, or {disagree}"


def machine_caveats(machine: MachineReport, models: Sequence[ModelReport], null: Ratio) -> Iterator[str]:
    """Caveats of the machine: noise, threads that share CPUs, or no pinning."""
    if not is_quiet(null):
        yield f"the machine is busy: {models[0].label} is {null.low:.3f} to {null.high:.3f} times as fast as itself"
    if machine.threads > machine.cpus:
        yield f"{machine.threads} threads share {machine.cpus} CPUs"
    if machine.threads == 1 and machine.pinned_to is None:
        yield "this system cannot pin the process to one CPU"


def input_caveats(cases: Sequence[BenchCase], dimensions: DimensionSizes) -> Iterator[str]:
    """Caveats of the inputs: inferred sizes, models with different inputs or outputs."""
    for symbol in dimensions.inferred:
        yield f"the symbolic dimension {symbol} is taken to be {dimensions.sizes[symbol]}; --dim {symbol}=N gives its size"
    baseline = cases[0]
    for case in cases[1:]:
        if set(case.interface.inputs) != set(baseline.interface.inputs):
            yield f"{case.label} and {baseline.label} have different inputs"
        if sorted(case.output_types) != sorted(baseline.output_types):
            yield f"{case.label} and {baseline.label} have different outputs"
