"""The one call: a model in, a model out, with the plan and the report.

read -> lift -> passes (fold, plan, cast, pack) -> lower to a dialect -> emit -> check -> verify
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from time import perf_counter
from typing import TypeAlias

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.cost import CostModel, sized
from layoutopt.cost.size_growth import MAX_GROWTH, Growth
from layoutopt.dialects import DIALECTS
from layoutopt.dialects.compact import compact
from layoutopt.dialects.lowering import Dialect
from layoutopt.driver import arguments
from layoutopt.driver.arguments import Model, Target
from layoutopt.driver.garbage_collection import rare_collections
from layoutopt.driver.model_faults import blamed_on, is_loadable, run_alone
from layoutopt.driver.result import Result
from layoutopt.errors import ModelError, PinError, UnverifiedError, VerificationError
from layoutopt.files import path_text
from layoutopt.formats import Format
from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.deferred import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Sizes, as_range, symbols
from layoutopt.ops import rules
from layoutopt.ops.bodies import insides
from layoutopt.passes import RemoveDead, default_pipeline
from layoutopt.passes.base import Mode, Moment, Note, Pass, PassContext, PassResult, Pipeline, Watch
from layoutopt.planner import Plan
from layoutopt.report.builder import (
    agreeing,
    cast_reports,
    counts,
    dim_reports,
    growth_report,
    op_reports,
    outcome_reports,
    size_notes,
)
from layoutopt.report.schema import Counts, NoteReport, PassReport, PlanReport, Report, VerificationReport
from layoutopt.report.stamp import KEY, Stamp
from layoutopt.runtime.baking import bake, forget_inner_types
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.runtime.evaluate import defer, evaluate, is_foldable
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.sample_inputs import Given, InputSet, SampleInputs, given_ranges, input_sets, prepare_inputs
from layoutopt.verification import CutCandidates, EquivalenceGate, Verification
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_UNVERIFIED = "say --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"

_RUN_TO_VERIFY = 1_900_000_000
"""Bytes of weights up to which a model with symbolic dimensions is run to find sizes; a larger one is no single message."""

_RUN_TO_PLAN = 100_000_000
"""The same without verification, which must not need the memory for the weights."""


def optimize(
    model: Model,
    target: Target = "cpu",
    *,
    dialect: str | None = None,
    mode: Mode = "inference",
    pins: Mapping[str, Format | str] | None = None,
    dims: Dims | None = None,
    inputs: Given | None = None,
    verify: bool = True,
    allow_unverified: bool = False,
    time_limit: float | None = None,
    max_growth: float = MAX_GROWTH,
    count_moves: bool = False,
    strict: bool = False,
    custom_ops: Libraries = (),
    pipeline: Pipeline | None = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
    sizes_found: Callable[[Sizes], None] | None = None,
) -> Result:
    """Choose a memory format for every tensor of a model and rewrite it.

    Args:
        model: a path, the bytes of a file, a binary file object, or a model of onnx or onnx_ir, which is not changed.
        target: a target's name ("gpu-hopper"; "cpu" for this machine), the path of a target file, or a cost model. Several
            with commas between ("gpu-hopper,ascend-910b"), or a list of names and cost models, make one plan, whose largest
            regret on any of them is the least: `report.plan.targets`.
        dialect: "functions", "ascend", "onnxruntime" or "ops"; None for the target's own.
        mode: "inference" packs weights ahead of time; "training" leaves them and their casts in the graph.
        pins: formats that graph inputs, outputs or other values must have, by name: a Format or a name like "NHWC".
        dims: sizes of symbolic dimensions to plan for and to verify at, or ranges of them, by name, or by `input[axis]` where
            they have none: {"batch": 1, "height": (256, 1024)}. They stay symbolic, and the result is right at every size.
        inputs: arrays by the name of the input, or several sets of them: the result is compared with the original on these, and
            on small perturbations of them, rather than on random inputs. Symbolic dimensions take their sizes.
        verify: compare the result with the original, on random inputs unless some are given.
        allow_unverified: return a result that could not be compared with the original; by default that is an error.
        time_limit: seconds for planning, candidates to solver, after which the best plan so far is used, with its gap.
        max_growth: how many times as large all constants together may become, 1 MiB aside; 1.0 for no growth. What grows them
            is selected by estimated gain per byte: `report.growth`.
        count_moves: prove how few casts and transposes a plan could have, too: `report.plan.least_moves`.
        strict: refuse a model with a fault that onnxruntime tolerates; else it is repaired, and a note of the report names it.
        custom_ops: shared libraries with kernels of custom operators, with which onnxruntime folds constants and verifies.
        pipeline: passes to run in place of the default ones.
        watch: called before and after every pass, with the graph.
        progress: called with the name of every step as it begins.
        sizes_found: called with the sizes that the model is planned for, before the first pass.

    Raises:
        ArgumentError, TargetError, FormatError, DimensionError: if an argument is wrong; before the model is read.
        ExtensionError: if a library of kernels, or an extension of an installed package, cannot be loaded.
        ModelError, PinError, DimensionError, InputError: if the model is not valid, has no such tensor or dimension, or does
            not take the inputs.
        VerificationError: if the result computes something else; there is no result then.
        UnverifiedError: if the result could not be compared with the original; there is no result then.
        MemoryError: if there is too little memory.
    """
    arguments.check_time_limit(time_limit)
    arguments.check_pipeline(pipeline)
    arguments.check_callbacks(watch=watch, progress=progress)
    job = _Job.make(model, target, dialect, mode, pins, dims, max_growth)
    progress = progress or (lambda step: None)
    job.given_inputs = input_sets(inputs)
    with rare_collections(), kernel_libraries(custom_ops), blamed_on(job.given, job.dims):
        return _optimized(
            job,
            verify=verify,
            allow_unverified=allow_unverified,
            time_limit=time_limit,
            count_moves=count_moves,
            strict=strict,
            pipeline=pipeline,
            watch=watch,
            progress=progress,
            sizes_found=sizes_found,
        )


def _optimized(
    job: "_Job",
    *,
    verify: bool,
    allow_unverified: bool,
    time_limit: float | None,
    count_moves: bool,
    strict: bool,
    pipeline: Pipeline | None,
    watch: Watch | None,
    progress: Progress,
    sizes_found: Callable[[Sizes], None] | None,
) -> Result:
    """`optimize`, once its arguments are checked."""
    mode = job.mode
    progress("reading")
    source = _read(job.given, strict=strict)
    job.take_sizes_of_inputs(source)
    spoken = DIALECTS[job.dialect]
    context = PassContext(
        job.cost_model,
        mode,
        job.pins,
        time_limit,
        is_foldable=is_foldable,
        evaluate=evaluate,
        defer=defer,
        infer=onnx_io.infer_again,
        kernels=spoken.kernels,
        counts_moves=count_moves,
        measure=onnx_io.measure,
        whole_units=spoken.keeps_units,
    )
    if job.is_done(source):
        graph = onnx_io.lift(onnx_io.inline(source, DOMAIN), strict=strict)
        samples, context.sizes = job.samples(source, graph, verify=verify)
        reason = "it has been optimised like this before"
        return job.finish(source, graph, context, reason, samples if verify else None)
    if mode == "inference" and onnx_io.has_training(source):
        graph = onnx_io.lift(source, strict=strict)
        samples, context.sizes = job.samples(source, graph, verify=verify)
        reason = "its training information binds its weights by name"
        return job.finish(source, graph, context, reason, samples if verify else None)
    progress("lifting")
    inlined = onnx_io.inline_functions(onnx_io.inline(source, DOMAIN), lambda kind: kind in rules())
    context.notes += [Note("inline", name, reason) for name, reason in inlined.kept]
    graph = onnx_io.lift(inlined.model, strict=strict)
    context.growth = Growth(job.stamp.max_growth, stored_bytes(graph.nest()))
    if missing := next((name for name in job.pins if graph.find(name) is None), None):
        raise PinError("there is no such tensor to pin", where=missing, hint="name a tensor of the model")
    progress("inferring sizes")
    samples, context.sizes = job.samples(source, graph, verify=verify)
    if sizes_found is not None:
        sizes_found(context.sizes)
    job.before = counts(graph)
    gate = EquivalenceGate(job.name, job.path, job.pins, samples, spoken.is_native, CutCandidates.of(graph))
    pipeline = pipeline or default_pipeline(mode)
    job.passes = pipeline.run(graph, context, _reporting(watch, progress))
    if not job.pins and _is_pointless(context.plan, pipeline, job.passes):
        return job.finish(source, graph, context, _why_unchanged(context.plan), samples if verify else None)
    progress("writing ONNX")
    lowered = spoken.lower(graph, context.growth)
    compact(lowered)
    for each in reversed(insides(lowered)):
        RemoveDead().run(each, context)  # shapes that were computed for ops which read them off their operands now
    emitted = onnx_io.emit(lowered)
    onnx_io.check(emitted)
    bake_emitted = partial(_baked, job, emitted, spoken, spoken.block(graph), context, progress)
    final = bake_emitted()
    if verify:
        progress("verifying")
        job.verification = gate.judge(graph, lowered, source, emitted, final)
        if job.verification.misdeclared:  # onnxruntime fuses by declared shapes
            for name in job.verification.misdeclared:
                context.notes.append(
                    Note("read", name, "has another shape than it declares: the declaration is dropped")
                )
            onnx_io.forget_output_shapes(emitted, job.verification.misdeclared)
            final = bake_emitted()
            job.verification = gate.judge(graph, lowered, source, emitted, final)
        if job.verification.status == "not verified" and not allow_unverified:
            raise UnverifiedError(f"not verified: {job.verification.reason}", where=job.name, hint=_UNVERIFIED)
    if final is not emitted:
        forget_inner_types(final)
    final.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(final))
    return job.finish(final, graph, context)


def _baked(
    job: "_Job", model: onnx_ir.Model, dialect: Dialect, block: int, context: PassContext, progress: Progress
) -> onnx_ir.Model:
    """What onnxruntime's optimiser makes of a model for this machine; the model itself if it is for another one.

    Raises:
        VerificationError: onnxruntime loads the original, and not the rewritten model.
    """
    if not dialect.is_native or block not in (0, blocked_channels()):
        return model
    progress("baking")
    try:
        # A model without blocks has no guard either, so it has to stay without.
        return bake(model, packs=block > 0)
    except ModelError as error:
        if is_loadable(job.given):
            raise VerificationError(error.what, where=job.name, hint="please report it with the model") from error
        context.notes.append(Note("bake", error.where, error.what))  # an op of another library, perhaps
        return model


@dataclass(slots=True)
class _Job:
    """One call of `optimize`: what is asked for, and what has been found out so far."""

    name: str
    cost_model: CostModel
    dialect: str
    mode: Mode
    pins: dict[str, Format]
    dims: Dims
    stamp: Stamp
    given: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model
    given_inputs: tuple[InputSet, ...] = ()
    start: float = field(default_factory=perf_counter)
    before: Counts = field(default_factory=lambda: Counts(casts=0, transposes=0, weight_casts=0))
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None

    @classmethod
    def make(
        cls,
        model: Model,
        target: Target,
        dialect: str | None,
        mode: Mode,
        pins: Mapping[str, Format | str] | None,
        dims: Dims | None,
        max_growth: float,
    ) -> "_Job":
        """Check the arguments."""
        arguments.check_model(model)
        arguments.check_mode(mode)
        arguments.check_max_growth(max_growth)
        formats, sizes = arguments.checked_pins(pins), arguments.checked_dims(dims)
        cost_model = arguments.cost_model_of(target)
        dialect = arguments.checked_dialect(dialect, cost_model)
        stamp = Stamp(
            cost_model.name,
            dialect,
            mode,
            tuple((name, str(format)) for name, format in sorted(formats.items())),
            tuple((name, as_range(given)) for name, given in sorted(sizes.items())),
            max_growth,
        )
        name = path_text(model) if isinstance(model, str | PathLike) else "model"
        return cls(name, cost_model, dialect, mode, formats, sizes, stamp, arguments.as_message(model))

    @property
    def path(self) -> str | None:
        """The file that the model came from."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """What to fall back on, byte for byte, where the model is left alone."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def take_sizes_of_inputs(self, model: onnx_ir.Model) -> None:
        """Give symbolic dimensions the sizes that given inputs have.

        Raises:
            InputError: the model does not take the inputs.
        """
        if self.given_inputs:
            said = {name: as_range(given) for name, given in self.dims.items()}
            ranges = given_ranges(onnx_io.declared_inputs(model), self.given_inputs, said)
            self.dims, self.stamp = ranges, replace(self.stamp, dims=tuple(sorted(ranges.items())))

    def samples(self, model: onnx_ir.Model, graph: Graph, *, verify: bool) -> tuple[SampleInputs, Sizes]:
        """How inputs are made for verification, and the sizes to plan for; the model is run unless it is large."""
        size = sum(tensor.nbytes for _, tensor in onnx_io.weights(model))
        may_run = bool(symbols(graph.inputs)) and size <= (_RUN_TO_VERIFY if verify else _RUN_TO_PLAN)
        source = self.path or (onnx_io.to_bytes(model) if may_run else b"")
        return prepare_inputs(source, graph, self.dims, self.given_inputs, may_run=may_run)

    def is_done(self, model: onnx_ir.Model) -> bool:
        """Whether the model has been optimised like this before, and is as it was then."""
        return KEY in model.metadata_props and self.stamp.matches(model.metadata_props, onnx_io.fingerprint(model))

    def finish(
        self,
        model: onnx_ir.Model,
        graph: Graph,
        context: PassContext,
        unchanged: str = "",
        samples: SampleInputs | None = None,
    ) -> Result:
        """Build the result.

        Args:
            model: the model to hand out.
            graph: what the passes made of it.
            context: of the passes.
            unchanged: why the model was left alone, if it was.
            samples: inputs on which a model that was left alone is run, if it is to be run.
        """
        if unchanged and samples is not None:
            self.verification = run_alone(model, self.path, samples)
        after = self.before if unchanged else counts(graph)
        sizes = context.sizes
        cost_model = sized(self.cost_model, sizes)
        repairs = [Note("read", where, reason) for where, reason in graph.repairs]
        context.notes[:] = [*repairs, *context.notes, *size_notes(sizes)]
        report = Report(
            layoutopt_version=VERSION,
            model=self.name,
            target=self.cost_model.name,
            dialect=self.dialect,
            mode=self.mode,
            changed=not unchanged,
            reason=unchanged,
            plan=_plan_report(context.plan, context.least_moves, graph),
            before=self.before,
            after=after,
            dims=dim_reports(sizes),
            ops=op_reports(graph, cost_model, whole_units=context.whole_units),
            casts=cast_reports(graph, cost_model, sizes),
            passes=[PassReport(name=each.name, changed=each.changed, seconds=each.seconds) for each in self.passes],
            notes=[NoteReport(source=each.source, where=each.where, reason=each.reason) for each in context.notes],
            growth=None
            if unchanged
            else growth_report(context.growth, sum(tensor.nbytes for _, tensor in onnx_io.weights(model))),
            verification=_verification_report(self.verification, bool(unchanged)),
            seconds=perf_counter() - self.start,
        )
        return Result(model, context.plan, report, graph, self.source if unchanged else None, self.path)


def _read(model: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model, *, strict: bool = False) -> onnx_ir.Model:
    if isinstance(model, onnx_ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return onnx_io.from_message(model, strict=strict)
    return onnx_io.read(model, strict=strict)


def _reporting(watch: Watch | None, progress: Progress) -> Watch:
    def both(moment: Moment, step: Pass, graph: Graph) -> None:
        if moment == "before":
            progress(step.name)
        if watch is not None:
            watch(moment, step, graph)

    return both


def _is_pointless(plan: Plan | None, pipeline: Pipeline, results: list[PassResult]) -> bool:
    """Whether nothing was gained: no better plan, and no pass changed anything that is a reason to rewrite the model."""
    if plan is not None and plan.improves:
        return False
    reasons = {step.name for step in pipeline.passes if step.is_reason}
    return not any(result.changed and result.name in reasons for result in results)


def _why_unchanged(plan: Plan | None) -> str:
    """The reason for which a model is left alone that no pass and no plan makes faster."""
    if plan is not None and plan.stopped:
        return f"the time limit ended planning ({plan.stopped}) before a faster plan was found"
    return "no other formats are estimated to be faster"


def _plan_report(plan: Plan | None, least_moves: int | None, graph: Graph) -> PlanReport | None:
    if plan is None:
        return None
    return PlanReport(
        targets=outcome_reports(graph, plan),
        agreeing=agreeing(plan.outcomes) if plan.outcomes else None,
        seconds_before=plan.baseline,
        seconds_after=plan.seconds,
        lower_bound=plan.lower_bound,
        gap=plan.gap,
        optimal=plan.optimal,
        stopped=plan.stopped,
        least_moves=least_moves,
    )


def _verification_report(verdict: Verification | None, unchanged: bool) -> VerificationReport:
    if unchanged and verdict is not None and verdict.status == "not verified":
        return VerificationReport(status=verdict.status, reason=verdict.reason.replace("the original", "the model", 1))
    if unchanged:
        return VerificationReport(status="passed", reason="the model is the original")
    if verdict is None:
        return VerificationReport(status="off")
    worst = verdict.worst
    return VerificationReport(
        status=verdict.status,
        reason=verdict.reason,
        largest_error=worst.error if worst is not None else None,
        rounding=verdict.spread,
        tolerance=worst.tolerance if worst is not None else None,
        outputs_depend_on_inputs=verdict.sensitive if verdict.comparisons else None,
        sizes=[dict(each) for each in verdict.sizes],
    )
