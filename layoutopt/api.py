"""The one call: a model in, a model out, with the plan and the report.

read -> lift -> passes (fold, plan, cast, pack) -> lower to a dialect -> emit -> check -> verify
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from os import PathLike
from time import perf_counter
from typing import ParamSpec, TypeAlias

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.acceptance import Acceptance
from layoutopt.account import agreeing, cast_reports, counts, op_reports, outcome_reports
from layoutopt.cost import CostModel, sized
from layoutopt.cost_models import find_target
from layoutopt.dialects import DIALECTS
from layoutopt.errors import FormatError, InvariantError, LayoutoptError, ModelError, PinError
from layoutopt.formats import Format, lookup
from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.kernels import blocked_channels
from layoutopt.ops import rules
from layoutopt.ops.bodies import insides
from layoutopt.pass_base import Mode, Moment, Note, Pass, PassContext, PassResult, Pipeline, Watch
from layoutopt.passes import RemoveDead, default_pipeline
from layoutopt.planner import Plan
from layoutopt.report import Counts, DimReport, NoteReport, PassReport, PlanReport, Report, VerificationReport
from layoutopt.sizes import Dims, Sizes, as_range
from layoutopt.stamp import KEY, Stamp
from layoutopt.verify import Verification, verify_models
from layoutopt.version import VERSION

Model: TypeAlias = str | PathLike[str] | onnx.ModelProto | onnx_ir.Model
Progress: TypeAlias = Callable[[str], None]
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        model: the optimised model; the original one where it was left alone.
        plan: what the planner decided; None where the model had been optimised like this already.
        report: everything else, as data.
        graph: the planned graph, with formats and casts, before it was lowered.
        source: the file or message that `model` is the unchanged content of, if it was left alone.
    """

    model: onnx_ir.Model
    plan: Plan | None
    report: Report
    graph: Graph
    source: str | onnx.ModelProto | None = None

    @property
    def proto(self) -> onnx.ModelProto:
        """The model as a message of onnx; a copy of the one that was handed in where it was left alone."""
        message = onnx.ModelProto()
        if isinstance(self.source, onnx.ModelProto):
            message.CopyFrom(self.source)
        else:
            message.ParseFromString(onnx_io.to_bytes(self.model))
        return message

    def save(self, path: str | PathLike[str], *, external_data: str | None = None) -> None:
        """Write the model, whole or not at all; one that was left alone is copied byte for byte.

        Raises:
            OutputError: if it cannot be written; nothing is changed then.
        """
        if self.source is not None and external_data is None and not onnx_io.has_external_data(self.model):
            onnx_io.copy(self.source, path)
        else:
            onnx_io.write(self.model, path, external_data)


def _with_valid_models(function: Callable[_P, Result]) -> Callable[_P, Result]:
    """Blame the model where a rule or pass stumbles over it and onnxruntime cannot run it either.

    The standard has many rules that neither onnx's checker nor its inference looks at: a mean of four axes, a perm of the wrong
    length. What stumbles over a model that can be run is a bug of ours.
    """

    @wraps(function)
    def blaming(*args: _P.args, **kwargs: _P.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, LayoutoptError) and not isinstance(error, FormatError | InvariantError):
                raise
            model = kwargs.get("model", args[0] if args else None)
            source = model if isinstance(model, str | PathLike) else onnx_io.to_bytes(_read(model))  # type: ignore[arg-type]
            verdict = verify_models(source, source)
            if verdict.status != "not verified":
                raise
            name = str(model) if isinstance(model, str | PathLike) else "model"
            raise ModelError(verdict.reason, where=name, hint="export the model again") from error

    return blaming


@_with_valid_models
def optimize(
    model: Model,
    target: str | CostModel = "cpu",
    *,
    dialect: str | None = None,
    mode: Mode = "inference",
    pins: Mapping[str, Format | str] | None = None,
    dims: Dims | None = None,
    verify: bool = True,
    time_limit: float | None = None,
    count_moves: bool = False,
    pipeline: Pipeline | None = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> Result:
    """Choose a memory format for every tensor of a model and rewrite it.

    Args:
        model: a path, or a model of onnx or onnx_ir, which is not changed.
        target: a target's name ("gpu-hopper"; "cpu" for this machine), the path of a target file, or a cost model. Several
            with commas between ("gpu-hopper,ascend-910b") make one plan, whose largest regret on any of them is the least:
            `report.plan.targets`.
        dialect: "functions", "ascend", "onnxruntime" or "ops"; None for the target's own.
        mode: "inference" packs weights ahead of time; "training" leaves them and their casts in the graph.
        pins: formats that graph inputs, outputs or other values must have, by name: a Format or a name like "NHWC".
        dims: sizes of symbolic dimensions to plan for and to verify at, or ranges of them, by name, or by `input[axis]` where
            they have none: {"batch": 1, "height": (256, 1024)}. They stay symbolic, and the result is right at every size.
        verify: compare the result with the original on random inputs.
        time_limit: seconds for the planner, past which it returns the best plan so far with its gap.
        count_moves: prove how few casts and transposes a plan could have, too: `report.plan.least_moves`.
        pipeline: passes to run in place of the default ones.
        watch: called before and after every pass, with the graph.
        progress: called with the name of every step as it begins.

    Raises:
        ModelError, TargetError, FormatError, PinError, DimensionError: if an argument is wrong.
        VerificationError: if the result computes something else; there is no result then.
    """
    progress = progress or (lambda step: None)
    job = _Job.make(model, target, dialect, mode, pins or {}, dims or {})
    progress("reading")
    source = _read(model)
    spoken = DIALECTS[job.dialect]
    context = PassContext(
        job.cost_model,
        mode,
        job.pins,
        time_limit,
        is_foldable=onnx_io.is_foldable,
        evaluate=onnx_io.evaluate,
        infer=onnx_io.infer_again,
        kernels=spoken.kernels,
        counts_moves=count_moves,
        measure=onnx_io.measure,
        whole_units=spoken.keeps_units,
    )
    if job.is_done(source):
        graph = onnx_io.lift(onnx_io.inline(source, DOMAIN))
        context.sizes = Sizes.of(graph.inputs, job.dims)
        return job.finish(source, graph, context, unchanged="it has been optimised like this before")
    if mode == "inference" and onnx_io.has_training(source):
        graph = onnx_io.lift(source)
        context.sizes = Sizes.of(graph.inputs, job.dims)
        return job.finish(source, graph, context, unchanged="its training information binds its weights by name")
    progress("lifting")
    inlined = onnx_io.inline_functions(onnx_io.inline(source, DOMAIN), lambda kind: kind in rules())
    context.notes += [Note("inline", name, reason) for name, reason in inlined.kept]
    graph = onnx_io.lift(inlined.model)
    if missing := next((name for name in job.pins if graph.find(name) is None), None):
        raise PinError("there is no such tensor to pin", where=missing, hint="name a tensor of the model")
    context.sizes = Sizes.of(graph.inputs, job.dims)
    job.before = counts(graph)
    acceptance = Acceptance.of(graph, job.name, job.path, job.pins, job.dims, is_native=spoken.is_native)
    pipeline = pipeline or default_pipeline(mode)
    job.passes = pipeline.run(graph, context, _reporting(watch, progress))
    if not job.pins and _is_pointless(context.plan, pipeline, job.passes):
        return job.finish(source, graph, context, unchanged="no other formats are estimated to be faster")
    progress("writing ONNX")
    lowered = spoken.lower(graph)
    for each in reversed(insides(lowered)):
        RemoveDead().run(each, context)  # shapes that were computed for ops which read them off their operands now
    emitted = onnx_io.emit(lowered)
    onnx_io.check(emitted)
    final = emitted
    block = spoken.block(graph)
    if spoken.is_native and block in (0, blocked_channels()):
        progress("settling")
        try:
            # A model without blocks has no guard either, so it has to stay without.
            final = onnx_io.settle(emitted, packs=block > 0)
        except ModelError as error:  # somebody else's op, perhaps: verification says whether the original can be run
            context.notes.append(Note("settle", error.where, error.what))
    if verify:
        progress("verifying")
        job.verification = acceptance.judge(graph, lowered, source, emitted, final)
    if final is not emitted:
        onnx_io.forget_inner_types(final)
    final.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(final))
    return job.finish(final, graph, context)


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
    given: Model
    start: float = field(default_factory=perf_counter)
    before: Counts = field(default_factory=lambda: Counts(casts=0, transposes=0, weight_casts=0))
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None

    @classmethod
    def make(
        cls,
        model: Model,
        target: str | CostModel,
        dialect: str | None,
        mode: Mode,
        pins: Mapping[str, Format | str],
        dims: Dims,
    ) -> "_Job":
        """Check the arguments."""
        cost_model = find_target(target) if isinstance(target, str) else target
        dialect = dialect or cost_model.dialect
        if dialect not in DIALECTS:
            raise LayoutoptError("no such dialect", where=dialect, hint=f"there are {', '.join(sorted(DIALECTS))}")
        formats = {name: lookup(pin) if isinstance(pin, str) else pin for name, pin in pins.items()}
        stamp = Stamp(
            cost_model.name,
            dialect,
            mode,
            tuple((name, str(format)) for name, format in sorted(formats.items())),
            tuple((name, as_range(given)) for name, given in sorted(dims.items())),
        )
        name = str(model) if isinstance(model, str | PathLike) else "model"
        return cls(name, cost_model, dialect, mode, formats, dims, stamp, model)

    @property
    def path(self) -> str | None:
        """The file that the model came from."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """What to fall back on, byte for byte, where the model is left alone."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def is_done(self, model: onnx_ir.Model) -> bool:
        """Whether the model has been optimised like this before, and is as it was then."""
        return KEY in model.metadata_props and self.stamp.matches(model.metadata_props, onnx_io.fingerprint(model))

    def finish(self, model: onnx_ir.Model, graph: Graph, context: PassContext, unchanged: str = "") -> Result:
        """The result; `unchanged` says why the model was left alone, if it was."""
        after = self.before if unchanged else counts(graph)
        sizes = context.sizes
        cost_model = sized(self.cost_model, sizes)
        context.notes += _assumptions(sizes)
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
            dims=[
                DimReport(name=name, low=low, high=high, assumed=name in sizes.assumed)
                for name, (low, high) in sizes.ranges.items()
            ],
            ops=op_reports(graph, cost_model, whole_units=context.whole_units),
            casts=cast_reports(graph, cost_model, sizes),
            passes=[PassReport(name=each.name, changed=each.changed, seconds=each.seconds) for each in self.passes],
            notes=[NoteReport(source=each.source, where=each.where, reason=each.reason) for each in context.notes],
            verification=_verification_report(self.verification, bool(unchanged)),
            seconds=perf_counter() - self.start,
        )
        return Result(model, context.plan, report, graph, self.source if unchanged else None)


def _assumptions(sizes: Sizes) -> list[Note]:
    """What is taken for granted of dimensions, and how to say it better."""
    return [
        Note(
            "sizes",
            name,
            f"nobody says how large it is: planned for {sizes.ranges[name][0]}; give its size, or a range",
        )
        for name in sizes.assumed
    ]


def _read(model: Model) -> onnx_ir.Model:
    if isinstance(model, onnx_ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return onnx_io.from_message(model)
    return onnx_io.read(model)


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
        least_moves=least_moves,
    )


def _verification_report(verdict: Verification | None, unchanged: bool) -> VerificationReport:
    if unchanged:
        return VerificationReport(status="passed", reason="the model is the original")
    if verdict is None:
        return VerificationReport(status="off")
    worst = verdict.worst
    return VerificationReport(
        status=verdict.status,
        reason=verdict.reason,
        largest_error=worst.error if worst is not None else None,
        tolerance=worst.tolerance if worst is not None else None,
        outputs_depend_on_inputs=verdict.sensitive if verdict.comparisons else None,
        sizes=[dict(each) for each in verdict.sizes],
    )
