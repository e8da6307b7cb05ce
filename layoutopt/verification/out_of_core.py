"""Out-of-core comparison: models whose weights do not fit into memory are compared segment by segment, one in memory at a time.

The original is divided into segments of consecutive nodes whose weights fit. Each segment computes some common values of both
models from earlier ones, and is a model of its own in both (`submodels`). The original's segment runs first; the rewritten one
gets its values, and has to agree up to the rounding of one segment, by the same limits as in `segments`. If all segments agree,
the models are equivalent.

    x -> [ weights 1 ] -> q      q -> [ weights 2 ] -> p      p -> [ weights 3 ] -> y

Values that are no common values are computed again by every segment that reads them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import onnx_ir

from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.interface import Interface, declared_inputs
from layoutopt.runtime.available_memory import available_bytes
from layoutopt.runtime.errors import error_message, is_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs, Style
from layoutopt.verification.cut_candidates import CutCandidates
from layoutopt.verification.observed_values import ObservedValue
from layoutopt.verification.original_runs import (
    COMPARED_SIZES,
    RUN_ERRORS,
    RUN_OR_MEMORY_ERRORS,
    Run,
    TimeLimits,
    misdeclared_outputs,
)
from layoutopt.verification.other_blocks import defined_block, with_definitions
from layoutopt.verification.random_numbers import with_seeds
from layoutopt.verification.request import Request
from layoutopt.verification.rounding_spread import RoundingSpread
from layoutopt.verification.segments import CutRun, compare_runs, differing_tensors, exposed_session
from layoutopt.verification.submodels import Part, WeightlessModel, session_bytes
from layoutopt.verification.verdict import Comparison, Verification
from layoutopt.verification.whole_model import depends_on_inputs

MAX_SEGMENT_BYTES = 512_000_000
"""Bytes of weights of one segment, unless one node has more."""

MEMORY_PER_SEGMENT = 8
"""The available memory divided by the weights of one segment, which onnxruntime copies, as float32 if they have 16 bits."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The same segment of both models.

    Attributes:
        original: the nodes of the original, and the names of the values at its ends.
        rewritten: those of the rewritten model; None if the original runs alone.
        inside: the common values that both compute within it.
        names: the names in the original of the values at the ends of both.
    """

    original: Part
    rewritten: Part | None
    inside: tuple[ObservedValue, ...]
    names: tuple[str, ...]


def out_of_core_memory(*models: onnx_ir.Model) -> int | None:
    """The available memory in bytes, if one of the models is too large for a session of the whole model; otherwise None."""
    memory = available_bytes()
    return memory if memory is not None and max(map(session_bytes, models)) > memory else None


def compare_out_of_core(
    original: onnx_ir.Model,
    rewritten: onnx_ir.Model,
    common: Sequence[ObservedValue],
    candidates: CutCandidates,
    request: Request,
    memory: int,
) -> Verification:
    """Compare two models segment by segment, one segment in memory at a time.

    Args:
        original: the reference model.
        rewritten: the model to check.
        common: the values that both compute.
        candidates: the values at which the original can be cut.
        request: pins, test inputs, seed and time limits; the limits hold for each segment.
        memory: the bytes that may be allocated.
    """
    ours, theirs = (WeightlessModel.of(each, candidates.has_float16) for each in (original, rewritten))
    block = packed_block(node.name for node in theirs.message.graph.node)
    theirs = theirs.edited(with_definitions)
    if candidates.has_random_ops:
        ours, theirs = ours.edited(with_seeds), theirs.edited(with_seeds)
    interface = Interface(declared_inputs(original), tuple(ours.outputs))
    found = OutOfCoreComparison(ours, theirs, common, candidates, interface, request, memory).verdict()
    return replace(found, defined_block=defined_block(block))


def run_out_of_core(model: onnx_ir.Model, graph: Graph, inputs: SampleInputs, memory: int) -> Verification:
    """Run a model once, one segment in memory at a time: "passed" if onnxruntime can run it, otherwise "not verified".

    Args:
        model: the model.
        graph: its graph.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
        memory: the bytes that may be allocated.
    """
    candidates = CutCandidates.of(graph)
    common = [ObservedValue(name, name, Format.canonical(0)) for name in candidates.names]
    weightless = WeightlessModel.of(model, candidates.has_float16)
    interface = Interface(declared_inputs(model), tuple(weightless.outputs))
    request = Request(inputs=inputs)
    return OutOfCoreComparison(weightless, None, common, candidates, interface, request, memory).verdict()


def divide(
    original: WeightlessModel, rewritten: WeightlessModel | None, common: Iterable[ObservedValue], limit: int
) -> list[Segment]:
    """The segments of two models, in the order in which they can run.

    Args:
        original: the reference model.
        rewritten: the model to compare with it; None if the original runs alone.
        common: values that both models compute.
        limit: bytes of the weights of one segment of the original.
    """
    theirs = original.producers if rewritten is None else rewritten.producers
    values = {
        each.original: each for each in common if each.original in original.producers and each.rewritten in theirs
    }
    stages = _stages(original, values, limit)
    stage_of = {name: stages[index] for name, index in original.producers.items()}
    last = stages[-1] if stages else 0
    needed: dict[str, None] = dict.fromkeys(original.outputs)
    segments = []
    for stage in range(last, -1, -1):
        targets = [name for name in needed if stage_of.get(name, last) == stage]
        if not targets:
            continue
        before = {name: each for name, each in values.items() if stage_of[name] < stage}
        part = original.part(targets, before)
        names = dict.fromkeys([*part.inputs, *targets])
        other = None
        if rewritten is not None:
            given = {each.rewritten: name for name, each in before.items()}
            other = rewritten.part([values[name].rewritten if name in values else name for name in targets], given)
            names |= dict.fromkeys(given.get(name, name) for name in other.inputs)
        needed |= dict.fromkeys(name for name in names if name in before)
        inside = _inside(values, stage_of, stage, part, other, original, rewritten)
        segments.append(Segment(part, other, tuple(inside), tuple(names)))
    return segments[::-1]


def _stages(original: WeightlessModel, common: Mapping[str, ObservedValue], limit: int) -> list[int]:
    """The number of the segment of every node: a new one begins behind a common value where the weights exceed the limit."""
    ends = {original.producers[name] for name in common}
    sizes = [original.weight_bytes(index) for index in range(len(original.message.graph.node))]
    begins, start, end, nbytes = set[int](), 0, 0, 0
    for index, size in enumerate(sizes):
        if nbytes + size > limit and end > start:
            begins.add(end)
            start, nbytes = end, sum(sizes[end:index])
        nbytes += size
        if index in ends:
            end = index + 1
    stages, stage = [], 0
    for index in range(len(sizes)):
        stage += index in begins
        stages.append(stage)
    return stages


def _inside(
    values: Mapping[str, ObservedValue],
    stage_of: Mapping[str, int],
    stage: int,
    part: Part,
    other: Part | None,
    original: WeightlessModel,
    rewritten: WeightlessModel | None,
) -> Iterator[ObservedValue]:
    """The common values of a stage that both parts compute."""
    ours, theirs = set(part.nodes), set() if other is None else set(other.nodes)
    for name, each in values.items():
        if stage_of[name] != stage or original.producers[name] not in ours:
            continue
        if rewritten is None or rewritten.producers[each.rewritten] in theirs:
            yield each


@dataclass(slots=True)
class _SizedRun:
    """One run of the original: the inputs, and the values that later segments need."""

    run: Run
    values: dict[str, Any]


@dataclass(slots=True)
class OutOfCoreComparison:
    """A comparison of two models, or a run of one, whose weights do not fit into memory.

    Attributes:
        original: the reference model.
        rewritten: the model to check; None to run the original alone.
        common: the values that both models compute.
        candidates: the values at which the original can be cut.
        interface: the inputs of the original.
        request: pins, test inputs, seed and time limits; the limits hold for each segment.
        memory: the bytes that may be allocated.
    """

    original: WeightlessModel
    rewritten: WeightlessModel | None
    common: Sequence[ObservedValue]
    candidates: CutCandidates
    interface: Interface
    request: Request
    memory: int
    _comparisons: list[Comparison] = field(default_factory=list)
    _misdeclared: dict[str, str] = field(default_factory=dict)
    _depends_on_inputs: bool = False
    _differing: frozenset[str] = frozenset()

    def verdict(self) -> Verification:
        """Compare all segments; "not verified" where the original cannot be run, or memory is too small for a segment."""
        limit = min(MAX_SEGMENT_BYTES, self.memory // MEMORY_PER_SEGMENT)
        segments = divide(self.original, self.rewritten, self.common, limit)
        failures: list[str] = []
        for style in Style:
            runs = self._first_runs(style)
            self._comparisons, self._misdeclared, self._depends_on_inputs = [], {}, False
            for number, segment in enumerate(segments):
                try:
                    self._run(segment, runs, failures)
                except RUN_OR_MEMORY_ERRORS as error:
                    return self._not_run(segment, error)
                if not runs:
                    break
                _release(runs, segments[number + 1 :])
            if runs:
                return self._found(runs, len(segments))
        return Verification("not verified", f"the original cannot be run{failures[0]}")

    def _found(self, runs: Sequence[_SizedRun], count: int) -> Verification:
        sizes = tuple(dict.fromkeys(tuple(each.run.sizes.items()) for each in runs if each.run.sizes))
        if self.rewritten is None:
            return Verification("passed", sizes=sizes)
        reason = f"segment by segment, one of {count} in memory at a time"
        verdict = Verification.of(self._comparisons, self._depends_on_inputs or len(runs) < 2, sizes, reason)
        if verdict.status == "failed" and self._misdeclared:
            reason = next(iter(self._misdeclared.values()))
            return Verification("not verified", reason, misdeclared=tuple(self._misdeclared))
        if verdict.status == "failed":
            return replace(verdict, reason=f"segment by segment {verdict.reason}", tensors=self._differing)
        return verdict

    def _not_run(self, segment: Segment, error: Exception) -> Verification:
        """The verdict where a segment of one of the models cannot be loaded or run."""
        where = f"the segment of {segment.original.outputs[0]}"
        if is_out_of_memory(error):
            size = segment.original.nbytes / 1e6
            reason = f"there is too little memory for {where}, with {size:,.0f} MB of weights"
        else:
            reason = f"{where} cannot be run by itself: {error_message(error)}"
        return Verification("not verified", reason)

    def _first_runs(self, style: Style) -> list[_SizedRun]:
        """The inputs of up to `COMPARED_SIZES` sizes, two sets of them at the first; one set if the original runs alone."""
        inputs, runs = self.request.inputs, list[_SizedRun]()
        done: dict[int, int] = {}
        for sample in inputs.sets(self.interface, self.request.seed, style):
            at = done.get(sample.group, 0)
            if at == COMPARED_SIZES or (runs and self.rewritten is None):
                continue
            done[sample.group] = at + 1
            feeds = islice(sample.feeds, 1 if at or self.rewritten is None else 2)
            runs += [_SizedRun(Run(sample.sizes, feed, ()), dict(feed)) for feed in feeds]
        return runs

    def _run(self, segment: Segment, runs: list[_SizedRun], failures: list[str]) -> None:
        """Run one segment of both models; runs at which that of the original fails are removed."""
        present = [each for each in segment.inside if self._is_cut(each, segment)]
        cuts = self.candidates.cuts(present)
        ends = {each.original: each for each in self.common}
        limits = TimeLimits(self.request.limits.run, self.request.limits.spread)
        request = replace(self.request, observed=[ends[name] for name in segment.names if name in ends], limits=limits)
        with scratch_folder() as folder:
            original = self.original.runnable(segment.original, runs[0].values, folder, "original.data")
            cut_runs = self._original_runs(exposed_session(original, cuts, request), segment, runs, failures)
            if self.rewritten is None or segment.rewritten is None or not runs:
                return
            values = {ends[name].rewritten if name in ends else name: x for name, x in runs[0].values.items()}
            rewritten = self.rewritten.runnable(segment.rewritten, values, folder, "rewritten.data")
            spread, comparisons = compare_runs(original, rewritten, cuts, request, cut_runs)
        self._comparisons += comparisons
        self._differing |= differing_tensors(original, cuts, comparisons)
        outputs = [name for name in segment.original.outputs if name in self.original.outputs]
        if outputs and len(cut_runs) > 1 and cut_runs[0].run.sizes == cut_runs[1].run.sizes:
            sets = [replace(each.run, outputs=[each.values[name] for name in outputs]) for each in cut_runs]
            self._depends_on_inputs |= depends_on_inputs(sets, outputs, RoundingSpread(spread))

    def _is_cut(self, value: ObservedValue, segment: Segment) -> bool:
        """Whether a value is at the end of a segment, or must be cut within it."""
        must_be_cut = value.original in self.candidates.required or value.original in self.candidates.before_saturation
        return must_be_cut or value.original in segment.original.outputs

    def _original_runs(
        self, session: Session, segment: Segment, runs: list[_SizedRun], failures: list[str]
    ) -> list[CutRun]:
        """The runs of the original's segment; the values at its end are added to those of each run."""
        given = [each.name for each in session.get_inputs()]
        found = []
        for each in tuple(runs):
            try:
                outputs = session.run(None, {name: each.values[name] for name in given}, self.request.limits.run)
            except RUN_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                failures.append(f"{each.run.at_sizes}: {error_message(error)}")
                runs.remove(each)
                continue
            contradictions = misdeclared_outputs(session, outputs)
            self._misdeclared |= {
                name: contradictions[name] for name in contradictions if name in self.original.outputs
            }
            feed = {name: each.values[name] for name in segment.names if name in each.values}
            found.append(CutRun.of(session, replace(each.run, feed=feed), outputs))
            each.values |= {name: found[-1].values[name] for name in segment.original.outputs}
        return found


def _release(runs: Sequence[_SizedRun], later: Sequence[Segment]) -> None:
    """Drop the values that no later segment reads; graph inputs stay."""
    needed = {name for each in later for name in each.names}
    for each in runs:
        kept = needed | set(each.run.feed)
        each.values = {name: value for name, value in each.values.items() if name in kept}


__all__ = ["OutOfCoreComparison", "compare_out_of_core", "divide", "out_of_core_memory", "run_out_of_core"]
