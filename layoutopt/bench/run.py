"""The benchmark as one call: from files to the report."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from string import ascii_uppercase

from layoutopt.bench.doubts import about_inputs, about_machine, about_ratios
from layoutopt.bench.inputs import Extents, feeds, settle
from layoutopt.bench.measure import Entry, Measured, Progress, by_count, by_time, measure, weigh
from layoutopt.bench.paired import confined, usable_cpus
from layoutopt.bench.report import BenchReport, InputReport, MachineReport, Memory, ModelReport
from layoutopt.bench.runtimes import load_runtime
from layoutopt.bench.spread import ratio, spread
from layoutopt.errors import LayoutoptError, ModelError
from layoutopt.files import path_text
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Interface, interface
from layoutopt.sample_inputs import SampleInputs, sample_inputs_for, symbols_of
from layoutopt.version import VERSION


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
    progress: Progress = lambda step: None,
) -> BenchReport:
    """Time models against each other; the first is the baseline.

    Args:
        models: the files.
        threads: of each runtime; with one, the calling thread is kept on one CPU meanwhile.
        runs: timed rounds; by default as many as fit, at least twelve.
        seconds: for the timed rounds, where `runs` does not say how many.
        warm_up: rounds with new sessions that do not count, at least one.
        seed: of the random inputs.
        dims: extents of symbolic dimensions, by name, or by `input[axis]` where they have none.
        inputs: values by the name of the input; symbolic dimensions follow them.
        runtimes: onnxruntime, openvino; every model is run in each that can run it.
        progress: called with the name of each step.

    Raises:
        ModelError: a model cannot be read, loaded or run.
        DimensionError: a dimension is not there.
        InputError: an input is not there, or takes other values.
        LayoutoptError: a runtime is not there, or a type has no random values.
    """
    if not models or not runtimes:
        raise LayoutoptError("nothing to measure", hint="name a model and a runtime")
    if threads < 1 or warm_up < 1 or (runs is not None and runs < 1):
        raise LayoutoptError("threads, runs and warm-ups have to be 1 or more")
    progress("reading")
    given = inputs or {}
    interfaces = [interface(Path(model)) for model in models]
    samples = _samples(models[0], interfaces[0], settle(interfaces, dims or {}, given), given)
    extents = settle(interfaces, dims or {}, given, samples.planned)
    drawn = zip(models, interfaces, feeds(interfaces, extents.of, seed, given, samples), strict=True)
    loaded = [load_runtime(name) for name in runtimes]
    candidates = [
        Entry("", Path(model), runtime, each.resolved(extents.of), feed)
        for model, each, feed in drawn
        for runtime in loaded
    ]
    limits = by_time(seconds) if runs is None else by_count(runs)
    cpus = usable_cpus()
    with confined(threads) as cpu:
        entries, memory, refusals = _able(candidates, weigh(candidates, threads, progress))
        measured = measure(entries, threads, warm_up, limits, progress)
    reports = [_model_report(index, entry, memory[index], measured, given) for index, entry in enumerate(entries)]
    wall, busy = (sum(getattr(each, of) for each in measured.timed) for of in ("seconds", "cpu_seconds"))
    machine = MachineReport(cpu=_cpu_name(), cpus=cpus, threads=threads, pinned_to=cpu, cpu_share=busy / wall)
    return BenchReport(
        layoutopt_version=VERSION,
        machine=machine,
        seed=seed,
        dims=extents.of,
        warm_up=warm_up,
        blocks=len(limits),
        rounds=reports[0].time.count,
        seconds=wall,
        models=reports,
        warnings=[
            *refusals,
            *about_inputs(entries, measured.results, extents),
            *about_machine(machine, reports),
            *about_ratios(reports),
        ],
    )


def _samples(
    model: str | PathLike[str], interface: Interface, extents: Extents, given: Mapping[str, Array]
) -> SampleInputs:
    """How inputs are made for the first model, with those extents and arrays that are given and are its own."""
    own = {symbol.name for symbol in symbols_of(interface)} - set(extents.guessed)
    names = {each.name for each in interface.inputs}
    dims = {name: size for name, size in extents.of.items() if name in own}
    return sample_inputs_for(model, dims, {name: value for name, value in given.items() if name in names})


def _able(
    candidates: Sequence[Entry], found: Sequence[Memory | ModelError]
) -> tuple[list[Entry], list[Memory], list[str]]:
    """What can be measured, with its memory; and why some runtimes are left out for models that others can run.

    Raises:
        ModelError: no runtime can run some model.
    """
    able = [(entry, memory) for entry, memory in zip(candidates, found, strict=True) if isinstance(memory, Memory)]
    paths = {entry.path for entry, _ in able}
    refusals = []
    for entry, error in zip(candidates, found, strict=True):
        if isinstance(error, ModelError):
            if entry.path not in paths:
                raise error
            refusals.append(f"left out: {error.where}: {error.what}")
    entries = [replace(entry, label=_label(index, len(able))) for index, (entry, _) in enumerate(able)]
    return entries, [memory for _, memory in able], refusals


def _label(index: int, count: int) -> str:
    return ascii_uppercase[index] if count <= len(ascii_uppercase) else str(index + 1)


def _model_report(
    index: int, entry: Entry, memory: Memory, measured: Measured, given: Mapping[str, Array]
) -> ModelReport:
    times, baseline = ([block.times[each] for block in measured.timed] for each in (index, 0))
    created, first = ([block.times[each] for block in measured.created] for each in (index, 0))
    inputs = [
        InputReport(name=name, dtype=str(value.dtype), shape=list(value.shape), given=name in given)
        for name, value in entry.feed.items()
    ]
    return ModelReport(
        label=entry.label,
        model=path_text(entry.path),
        runtime=entry.runtime.name,
        runtime_version=entry.runtime.version,
        inputs=inputs,
        time=spread(times),
        speed_up=ratio(baseline, times) if index else None,
        creation=spread(created),
        creation_speed_up=ratio(first, created) if index else None,
        memory=memory,
        profile=measured.profiles[index],
        samples=times,
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
