"""Benchmark of models against each other, with a test whether the difference is more than noise.

    from layoutopt.bench import bench
    report = bench(["model.onnx", "out.onnx"], threads=1)
    report.models[1].speed_up      # mean of the blocks, confidence interval, verdict

All models run in one process, in turns, on the same random inputs, in every runtime that can run them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from string import ascii_uppercase

from layoutopt.dialects.onnxruntime.blocked_passes import block_mismatch, packed_block
from layoutopt.errors import ArgumentError, LayoutoptError, ModelError
from layoutopt.files import path_text, scratch_folder
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import Interface, read_interface
from layoutopt.record import Record
from layoutopt.report.schema import ReportModel
from layoutopt.runtime.engines import Engine, OnnxRuntime, find_engine, share_of_moves
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.processor import processor_name
from layoutopt.sample_inputs import Feed, same_inputs
from layoutopt.timing.interleaved import pinned, usable_cpus
from layoutopt.timing.speed_up import SpeedUp, engine_clock, measure_in_turns, speed_ups
from layoutopt.timing.statistics import Ratio
from layoutopt.version import VERSION

SCHEMA_VERSION = 6
"""The version of `bench --json`: new fields keep it; a removed field or a changed meaning increments it."""

_PROFILE_RUNS = 6  # of which the first does not count


class InputReport(ReportModel):
    """One input of a model.

    Attributes:
        given: whether its values were given; if not, they are random.
    """

    name: str
    dtype: str
    shape: list[int]
    given: bool


class ModelReport(ReportModel):
    """One model in one runtime.

    Attributes:
        seconds: of a run; processor time with one thread in onnxruntime; the median of the blocks.
        speed_up: null for the first, which is the baseline.
        creation_seconds: from the file to a session; the median of the blocks.
        creation_speed_up: the median of the ratios within the blocks.
        reorder_share: fraction of the time of a run in Transposes and reorders.
    """

    label: str
    model: str
    runtime: str
    runtime_version: str
    inputs: list[InputReport]
    seconds: float
    speed_up: Ratio | None
    creation_seconds: float
    creation_speed_up: float | None
    reorder_share: float


class MachineReport(ReportModel):
    """The machine and the load of the benchmark on it.

    Attributes:
        cpus: that the process may use.
        pinned_to: the CPU that the process was pinned to.
    """

    cpu: str
    cpus: int
    threads: int
    pinned_to: int | None


class BenchReport(ReportModel, extra="ignore"):
    """The results of one benchmark.

    Attributes:
        dims: sizes of the symbolic dimensions.
        blocks: each with new sessions of all models.
        rounds: of each model, in all blocks together.
        null: the baseline against itself.
        warnings: caveats: reasons why the numbers may be misleading.
    """

    schema_version: int = SCHEMA_VERSION
    layoutopt_version: str
    machine: MachineReport
    seed: int
    dims: dict[str, int]
    blocks: int
    rounds: int
    null: Ratio
    models: list[ModelReport]
    warnings: list[str]


def _model_error(error: Exception, path: Path, runtime: Engine, action: str) -> ModelError:
    """The error of a model that a runtime cannot load or run."""
    raise_if_out_of_memory(error)
    if packed := packed_block([str(error)]):
        what = block_mismatch(packed, blocked_channels(), f"{runtime.name} {runtime.version}")
        return ModelError(what, where=str(path), hint="optimize the original on this machine")
    hints = {"load": "give a model that it can run on the CPU", "run": "set other extents with --dim NAME=SIZE"}
    what = f"{runtime.name} cannot {action} it: {error_message(error)}"
    return ModelError(what, where=str(path), hint=hints[action])


class BenchCase(Record):
    """A model, its runtime and its inputs."""

    label: str  # A for the first one, B for the next
    path: Path
    runtime: Engine
    feed: Feed
    output_types: list[str]  # names, types and shapes

    def create(self, threads: int) -> Callable[[], object]:
        """The run of a new session."""
        return partial(self.runtime.load(str(self.path), threads).run, self.feed)

    def report(self, found: SpeedUp, threads: int, given: Collection[str]) -> ModelReport:
        """The report of a measurement, and of further runs in which Transposes and reorders are timed."""
        with scratch_folder() as folder:
            session = self.runtime.load(str(self.path), threads, folder / "profile")
            for _ in range(_PROFILE_RUNS):
                session.run(self.feed)
            reorder_share = share_of_moves(session.layers())
        is_baseline = self.label == "A"
        return ModelReport(
            label=self.label,
            model=path_text(self.path),
            runtime=self.runtime.name,
            runtime_version=self.runtime.version,
            inputs=[
                InputReport(name=name, dtype=str(value.dtype), shape=list(value.shape), given=name in given)
                for name, value in self.feed.items()
            ],
            seconds=found.after,
            speed_up=None if is_baseline else found.runs,
            creation_seconds=found.creation_after,
            creation_speed_up=None if is_baseline else found.creation,
            reorder_share=reorder_share,
        )


def bench(
    models: Sequence[str | PathLike[str]],
    *,
    threads: int = 1,
    seconds: float = 10.0,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Array] | None = None,
    runtimes: Sequence[str] = ("onnxruntime",),
    progress: Callable[[str], None] = lambda step: None,
) -> BenchReport:
    """Time models against each other; the first is the baseline.

    Args:
        models: the files.
        threads: threads of each runtime; with one, the process is pinned to one CPU.
        seconds: the time for the timed runs on a quiet machine; at least 24 runs of each model.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions, by name, or by `input[axis]` for unnamed ones.
        inputs: values by the name of the input, which also determine symbolic dimensions.
        runtimes: names of engines, such as onnxruntime and openvino; every model is run in each runtime that can run it.
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
    given, paths = inputs or {}, list(map(Path, models))
    interfaces = list(map(read_interface, paths))
    sizes, inferred, feeds = same_inputs(paths, interfaces, dims or {}, given, seed)
    cpus, loaded = usable_cpus(), [find_engine(name) for name in runtimes]
    with pinned(threads) as cpu:
        cases, exclusions = _runnable_cases(zip(paths, interfaces, feeds, strict=True), loaded, threads, progress)
        progress("running in turns")
        is_foreign = any(case.runtime.name != OnnxRuntime.name for case in cases)
        blocks = measure_in_turns(
            [partial(case.create, threads) for case in cases],
            lambda run: [run],
            threads=threads,
            seconds=seconds,
            clock=engine_clock(threads) if is_foreign else None,
            max_seconds=3 * max(seconds, 10.0),
        )
        pairs = [(case, speed_ups(blocks, number)[0]) for number, case in enumerate(cases)]
        reports = []
        for case, found in pairs:
            progress(f"profiling {case.label}")
            reports.append(case.report(found, threads, given))
    machine = MachineReport(cpu=processor_name(), cpus=cpus, threads=threads, pinned_to=cpu)
    return BenchReport(
        layoutopt_version=VERSION,
        machine=machine,
        seed=seed,
        dims=sizes,
        blocks=len(blocks),
        rounds=sum(len(block.runs[0][0]) for block in blocks),
        null=pairs[0][1].null,
        models=reports,
        warnings=[
            *exclusions,
            *input_caveats(cases, inferred),
            *machine_caveats(machine),
            *(caveat for case, found in pairs[1:] or pairs for caveat in speed_caveats(case.label, found)),
        ],
    )


def _runnable_cases(
    models: Iterable[tuple[Path, Interface, Feed]],
    runtimes: Sequence[Engine],
    threads: int,
    progress: Callable[[str], None],
) -> tuple[list[BenchCase], list[str]]:
    """The cases that can run, and the reasons for leaving out others; an error if no runtime can run a model."""
    cases: list[BenchCase] = []
    exclusions: list[str] = []
    for path, interface, feed in models:
        errors: list[ModelError] = []
        for runtime in runtimes:
            progress(f"loading {path.name}")
            action = "load"
            try:
                session = runtime.load(str(path), threads)
                action = "run"
                outputs = session.run(feed)
            except Exception as error:  # the runtimes' exceptions have no common base
                errors.append(_model_error(error, path, runtime, action))
                continue
            named = zip(interface.outputs, outputs, strict=True)
            types = [f"{name} {getattr(y, 'dtype', type(y).__name__)} {getattr(y, 'shape', '')}" for name, y in named]
            turn, letter = divmod(len(cases), len(ascii_uppercase))
            cases.append(BenchCase(f"{ascii_uppercase[letter]}{turn or ''}", path, runtime, feed, types))
        if len(errors) == len(runtimes):
            raise errors[0]
        exclusions += [f"left out: {each.where}: {each.what}" for each in errors]
    return cases, exclusions


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
