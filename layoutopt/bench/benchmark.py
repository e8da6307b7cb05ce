"""Benchmark of model files against each other, from files to the report."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from string import ascii_uppercase
from time import perf_counter
from typing import Any, TypeAlias

from layoutopt.bench.bench_report import BenchReport, InputReport, MachineReport, ModelReport
from layoutopt.bench.runtimes import Runtime, load_runtime, reason_of
from layoutopt.errors import ArgumentError, LayoutoptError, ModelError
from layoutopt.files import path_text, scratch_folder
from layoutopt.ir.sizes import checked_ranges
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Interface, read_interface
from layoutopt.runtime.processor import processor_name
from layoutopt.runtime.session import needs_ort_value
from layoutopt.runtime.type_names import short_name
from layoutopt.sample_inputs import bound_sizes, sample_inputs_for, symbols_of
from layoutopt.timing.interleaved import pinned, usable_cpus
from layoutopt.timing.speed_up import SpeedUp, measure_in_turns, speed_ups
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]
Feed: TypeAlias = dict[str, Array]

_PROFILE_RUNS = 6  # of which the first does not count
_MIN_SIZE = 2
"""The smallest default size of a symbolic dimension: size 1 would broadcast where other sizes are an error."""


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A model, its runtime and its inputs.

    Attributes:
        label: A for the first one, B for the next.
        path: the file.
        runtime: the runtime.
        feed: the inputs.
        output_types: names, types and shapes of the outputs, as text.
    """

    label: str
    path: Path
    runtime: Runtime
    feed: Feed
    output_types: list[str]

    def create(self, threads: int) -> list[Callable[[], object]]:
        """The run of a new session."""
        return [partial(self.runtime.open(self.path, threads).run, self.feed)]


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
    paths = list(map(Path, models))
    interfaces = list(map(read_interface, paths))
    sizes, inferred, feeds = same_inputs(paths, interfaces, dims or {}, given, seed)
    cpus, loaded = usable_cpus(), [load_runtime(name) for name in runtimes]
    with pinned(threads) as cpu:
        cases, exclusions = _runnable_cases(zip(paths, interfaces, feeds, strict=True), loaded, threads, progress)
        progress("running in turns")
        # The processor time of this thread is not that of a run in OpenVINO, which has threads of its own.
        clock = perf_counter if any(case.runtime.name != "onnxruntime" for case in cases) else None
        blocks = measure_in_turns(
            [partial(case.create, threads) for case in cases],
            threads=threads,
            seconds=seconds,
            clock=clock,
            max_seconds=3 * max(seconds, 10.0),
        )
        found = [speed_ups(blocks, number)[0] for number in range(len(cases))]
        reports = []
        for case, each in zip(cases, found, strict=True):
            progress(f"profiling {case.label}")
            reports.append(_model_report(case, each, _reorder_share(case, threads), given))
    reports[0] = reports[0].model_copy(update={"speed_up": None, "creation_speed_up": None})
    machine = MachineReport(cpu=processor_name(), cpus=cpus, threads=threads, pinned_to=cpu)
    pairs = list(zip(cases, found, strict=True))
    return BenchReport(
        layoutopt_version=VERSION,
        machine=machine,
        seed=seed,
        dims=sizes,
        blocks=len(blocks),
        rounds=sum(len(block.runs[0][0]) for block in blocks),
        null=found[0].null,
        models=reports,
        warnings=[
            *exclusions,
            *input_caveats(cases, inferred),
            *machine_caveats(machine),
            *(caveat for pair in pairs[1:] or pairs for caveat in speed_caveats(pair[0].label, pair[1])),
        ],
    )


def same_inputs(
    models: Sequence[Path],
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    given: Mapping[str, Array],
    seed: int,
) -> tuple[dict[str, int], dict[str, int], list[Feed]]:
    """The sizes of symbolic dimensions, those of them that are inferred, and the inputs of every model.

    A size is given by name or by arrays, or else inferred from the first model, or else the default, at least 2. Other inputs
    than the given ones are random, and equal for models with equal inputs.

    Raises:
        DimensionError: no model has a dimension in `dims`.
        InputError: no model has an input in `given`, or its type or shape differs.
        LayoutoptError: an input has a type without random values, or without numpy arrays.
    """
    inputs = [one for each in interfaces for one in each.inputs]
    for one in (one for one in inputs if needs_ort_value(one.type)):
        raise LayoutoptError(f"the runtimes accept no arrays of {short_name(one.type)}", where=one.name)
    defaults = {symbol.name: max(symbol.default, _MIN_SIZE) for each in interfaces for symbol in symbols_of(each)}
    checked_ranges(list(defaults), dims)
    known = bound_sizes(inputs, given, dims)
    own, names = {symbol.name for symbol in symbols_of(interfaces[0])}, {each.name for each in interfaces[0].inputs}
    samples = sample_inputs_for(models[0], _among(own, known), _among(names, given))
    sizes = defaults | _among(defaults, samples.planned) | _among(defaults, known)
    drawn = [samples.draw(each, seed, sizes) for each in interfaces]
    feeds = [
        {name: given[name] if name in given else _shared(drawn[0].get(name), value) for name, value in feed.items()}
        for feed in drawn
    ]
    return sizes, {name: size for name, size in sizes.items() if name not in known}, feeds


def _among(names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _shared(first: Array | None, own: Array) -> Array:
    return own if first is None or (first.shape, first.dtype) != (own.shape, own.dtype) else first


def _runnable_cases(
    models: Iterable[tuple[Path, Interface, Feed]], runtimes: Sequence[Runtime], threads: int, progress: Progress
) -> tuple[list[BenchCase], list[str]]:
    """The cases that can run, and the reasons for leaving out others.

    Raises:
        ModelError: no runtime can run a model.
    """
    cases: list[BenchCase] = []
    exclusions: list[str] = []
    for path, interface, feed in models:
        errors: list[ModelError] = []
        for runtime in runtimes:
            progress(f"loading {path.name}")
            action = "load"
            try:
                session = runtime.open(path, threads)
                action = "run"
                outputs = session.run(feed)
            except Exception as error:  # the runtimes' exceptions have no common base
                what, hint = reason_of(error, runtime, action)
                errors.append(ModelError(what, where=str(path), hint=hint))
                continue
            named = zip(interface.outputs, outputs, strict=True)
            types = [f"{name} {getattr(y, 'dtype', type(y).__name__)} {getattr(y, 'shape', '')}" for name, y in named]
            turn, letter = divmod(len(cases), len(ascii_uppercase))
            cases.append(BenchCase(f"{ascii_uppercase[letter]}{turn or ''}", path, runtime, feed, types))
        if len(errors) == len(runtimes):
            raise errors[0]
        exclusions += [f"left out: {each.where}: {each.what}" for each in errors]
    return cases, exclusions


def _reorder_share(case: BenchCase, threads: int) -> float:
    with scratch_folder() as folder:
        session = case.runtime.open(case.path, threads, folder / "profile")
        for _ in range(_PROFILE_RUNS):
            session.run(case.feed)
        return session.reorder_share()


def _model_report(case: BenchCase, found: SpeedUp, reorder_share: float, given: Mapping[str, Array]) -> ModelReport:
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
        seconds=found.after,
        speed_up=found.runs,
        creation_seconds=found.creation_after,
        creation_speed_up=found.creation,
        reorder_share=reorder_share,
    )


# --- caveats: reasons why the numbers may be misleading, in one sentence each ---


def speed_caveats(label: str, found: SpeedUp) -> Iterator[str]:
    """Caveats of a speed-up over the first model: no difference is shown, or the machine was too busy for a measurement."""
    if label != "A" and found.runs.verdict == "no difference shown":
        yield f"{label} against A: no difference is shown, the confidence interval includes 1"
    if found.disturbance:
        yield f"{label} against A: the machine is busy: {found.disturbance}"


def machine_caveats(machine: MachineReport) -> Iterator[str]:
    """Caveats of the machine: threads that share CPUs, or no pinning."""
    if machine.threads > machine.cpus:
        yield f"{machine.threads} threads share {machine.cpus} CPUs"
    if machine.threads == 1 and machine.pinned_to is None:
        yield "this system cannot pin the process to one CPU"


def input_caveats(cases: Sequence[BenchCase], inferred: Mapping[str, int]) -> Iterator[str]:
    """Caveats of the inputs: inferred sizes, models with different inputs or outputs."""
    for symbol, size in inferred.items():
        yield f"the symbolic dimension {symbol} is taken to be {size}; --dim {symbol}=N gives its size"
    first, *types = [{(name, value.dtype, value.shape) for name, value in case.feed.items()} for case in cases]
    for case, own in zip(cases[1:], types, strict=True):
        if own != first:
            yield f"{case.label} and A have different inputs"
        if sorted(case.output_types) != sorted(cases[0].output_types):
            yield f"{case.label} and A have different outputs"
