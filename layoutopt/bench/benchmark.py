"""Benchmark of model files against each other, from files to the report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from string import ascii_uppercase

from layoutopt.bench.bench_inputs import DimensionSizes, feeds, resolve_dimension_sizes
from layoutopt.bench.bench_report import BenchReport, Explanation, InputReport, MachineReport, ModelReport, PeakMemory
from layoutopt.bench.caveats import input_caveats, machine_caveats, ratio_caveats
from layoutopt.bench.explanation import explain
from layoutopt.bench.measure import BenchCase, Measurements, Progress, by_count, by_time, measure, measure_memories
from layoutopt.bench.peak_memory import check_anonymous_memory
from layoutopt.bench.runtimes import load_runtime
from layoutopt.errors import ArgumentError, LayoutoptError, ModelError
from layoutopt.files import path_text
from layoutopt.ir.types import Array
from layoutopt.kernel_times import KernelStore, Machine, default_folder
from layoutopt.onnx_io.interface import Interface, read_interface
from layoutopt.runtime.processor import processor_name
from layoutopt.sample_inputs import SampleInputs, sample_inputs_for, symbols_of
from layoutopt.timing.interleaved import pinned, usable_cpus
from layoutopt.timing.statistics import estimate, null_ratio, ratio
from layoutopt.version import VERSION

_MIN_RUNS = 2
"""The least number of timed rounds, since one round has no spread; the command line has the same minimum."""


def bench(
    models: Sequence[str | PathLike[str]],
    *,
    threads: int = 1,
    runs: int | None = None,
    seconds: float = 10.0,
    warm_up: int = 2,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Array] | None = None,
    runtimes: Sequence[str] = ("onnxruntime",),
    memory: bool = False,
    explained: bool = False,
    store: KernelStore | None = None,
    progress: Progress = lambda step: None,
) -> BenchReport:
    """Time models against each other; the first is the baseline.

    Args:
        models: the files.
        threads: threads of each runtime; with one, the process is pinned to one CPU.
        runs: the number of timed rounds, at least two; by default as many as fit into `seconds`, at least 24.
        seconds: the time for the timed rounds if `runs` is None.
        warm_up: untimed rounds of new sessions, at least one.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions, by name, or by `input[axis]` for unnamed ones.
        inputs: values by the name of the input, which also determine symbolic dimensions.
        runtimes: onnxruntime, openvino; every model is run in each runtime that can run it.
        memory: measure anonymous memory too, which only Linux reports.
        explained: time the kernels of each model alone, and compare their sum with a run.
        store: the times of kernels that were timed before; by default those in the user's cache folder.
        progress: called with the name of each step.

    Raises:
        ArgumentError: a number of threads, rounds or warm-up rounds is too small.
        ModelError: a model cannot be read, loaded or run.
        DimensionError: no model has such a dimension.
        InputError: no model has such an input, or it has another type or shape.
        LayoutoptError: a runtime is not installed, a type has no random values, or the system does not report anonymous memory.
    """
    if not models or not runtimes:
        raise LayoutoptError("nothing to measure", hint="name a model and a runtime")
    for name, number, minimum in (("threads", threads, 1), ("warm_up", warm_up, 1), ("runs", runs, _MIN_RUNS)):
        if number is not None and number < minimum:
            raise ArgumentError("is too small", where=f"{name}={number!r:.80}", hint=f"give {minimum} or more")
    if memory:
        check_anonymous_memory()
    progress("reading")
    given = inputs or {}
    interfaces = [read_interface(Path(model)) for model in models]
    samples = _samples(models[0], interfaces[0], resolve_dimension_sizes(interfaces, dims or {}, given), given)
    dimensions = resolve_dimension_sizes(interfaces, dims or {}, given, samples.planned)
    drawn = zip(models, interfaces, feeds(interfaces, dimensions.sizes, seed, given, samples), strict=True)
    loaded = [load_runtime(name) for name in runtimes]
    candidates = [
        BenchCase("", Path(model), runtime, each.resolved(dimensions.sizes), feed)
        for model, each, feed in drawn
        for runtime in loaded
    ]
    limits = by_time(seconds) if runs is None else by_count(runs)
    cpus = usable_cpus()
    with pinned(threads) as cpu:
        found = measure_memories(candidates, threads, progress, measures_anonymous=memory)
        cases, memories, exclusions = _runnable_cases(candidates, found)
        measured = measure(cases, threads, warm_up, limits, progress)
        explanations = _explanations(cases, store, threads, progress) if explained else [None for _ in cases]
    reports = [
        _model_report(index, case, memories[index], measured, given).model_copy(update={"explanation": explanation})
        for index, (case, explanation) in enumerate(zip(cases, explanations, strict=True))
    ]
    wall, busy = (sum(getattr(each, of) for each in measured.timed) for of in ("seconds", "cpu_seconds"))
    machine = MachineReport(cpu=processor_name(), cpus=cpus, threads=threads, pinned_to=cpu, cpu_share=busy / wall)
    null = null_ratio(reports[0].samples)
    return BenchReport(
        layoutopt_version=VERSION,
        machine=machine,
        seed=seed,
        dims=dimensions.sizes,
        warm_up=warm_up,
        blocks=len(limits),
        rounds=reports[0].time.count,
        seconds=wall,
        null=null,
        models=reports,
        warnings=[
            *exclusions,
            *input_caveats(cases, measured.output_types, dimensions),
            *machine_caveats(machine, reports, null),
            *ratio_caveats(reports),
        ],
    )


def _explanations(
    cases: Sequence[BenchCase], store: KernelStore | None, threads: int, progress: Progress
) -> list[Explanation | None]:
    """Estimated and measured kernel times of each case; None for those that have none."""
    times = store or KernelStore(Machine.current(threads), default_folder())
    return [explain(case, times, progress) for case in cases]


def _samples(
    model: str | PathLike[str], interface: Interface, dimensions: DimensionSizes, given: Mapping[str, Array]
) -> SampleInputs:
    """The generator of inputs of the first model, with its own given sizes and arrays."""
    own = {symbol.name for symbol in symbols_of(interface)} - set(dimensions.inferred)
    names = {each.name for each in interface.inputs}
    dims = {name: size for name, size in dimensions.sizes.items() if name in own}
    return sample_inputs_for(model, dims, {name: value for name, value in given.items() if name in names})


def _runnable_cases(
    candidates: Sequence[BenchCase], found: Sequence[PeakMemory | ModelError]
) -> tuple[list[BenchCase], list[PeakMemory], list[str]]:
    """The cases that can run and their memory, and the reasons for leaving out others.

    Raises:
        ModelError: no runtime can run a model.
    """
    runnable = [
        (case, memory) for case, memory in zip(candidates, found, strict=True) if isinstance(memory, PeakMemory)
    ]
    paths = {case.path for case, _ in runnable}
    exclusions = []
    for case, error in zip(candidates, found, strict=True):
        if isinstance(error, ModelError):
            if case.path not in paths:
                raise error
            exclusions.append(f"left out: {error.where}: {error.what}")
    cases = [replace(case, label=_label(index, len(runnable))) for index, (case, _) in enumerate(runnable)]
    return cases, [memory for _, memory in runnable], exclusions


def _label(index: int, count: int) -> str:
    return ascii_uppercase[index] if count <= len(ascii_uppercase) else str(index + 1)


def _model_report(
    index: int, case: BenchCase, memory: PeakMemory, measured: Measurements, given: Mapping[str, Array]
) -> ModelReport:
    times, baseline = ([block.times[each] for block in measured.timed] for each in (index, 0))
    created, first = ([block.times[each] for block in measured.created] for each in (index, 0))
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
        speed_up=ratio(baseline, times) if index else None,
        creation=estimate(created),
        creation_speed_up=ratio(first, created) if index else None,
        memory=memory,
        profile=measured.profiles[index],
        samples=times,
    )
