"""The prices of a job from kernels timed on this machine, if the result is for this machine.

The estimated gain of a plan over the original as the runtime runs it by itself (`GainReport`) has one of three baselines:

    other runtimes                folded graph in canonical formats
    onnxruntime                   folded graph in onnxruntime's default formats
    onnxruntime, kernels timed    original after onnxruntime's optimiser, in its default formats
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.cost import CostModel, priced_with
from layoutopt.cost.size_growth import GrowthRequest
from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.registry import HOST, host_target
from layoutopt.dialects.onnxruntime.winograd import Winograd
from layoutopt.driver.job import Job
from layoutopt.errors import ArgumentError, InvariantError, TargetError
from layoutopt.files import path_text, scratch_folder
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import DType
from layoutopt.kernel_times.prices import (
    RefinedPlan,
    UsedKernel,
    kernels_in_default_formats,
    refine_plan,
    total_seconds,
)
from layoutopt.kernel_times.store import KernelStore, Machine, RequestedTimes, default_folder
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.ops import View, rule_of
from layoutopt.passes.base import PlanWith
from layoutopt.passes.casts import PretransformWeights
from layoutopt.passes.planning import has_quantized_ops
from layoutopt.planner import Plan
from layoutopt.planner.problem import TOLERANCE
from layoutopt.report.schema import GainReport, PricesReport
from layoutopt.report.units import seconds
from layoutopt.runtime.engines import Engine
from layoutopt.runtime.errors import RUN_OR_MEMORY_ERRORS
from layoutopt.runtime.session import EXTERNAL_WEIGHTS
from layoutopt.verification import MAX_PREPACKED_BYTES, Runnable, as_runnable

VARIABLE = "LAYOUTOPT_NO_MEASURE"
"""An environment variable: if it is not empty, nothing is measured or timed, as with `measure=False, calibrate=False`."""

_WITHOUT_BLOCKS = ("NchwcTransformer", "ConvActivationFusion", "ConvAddActivationFusion")

MAX_SECONDS = 5.0
"""Seconds of the processor for timing the kernels of plans, and as many for those of tilings; earlier runs count as well."""


def calibrated_plan(job: Job, source: onnx_ir.Model, graph: Graph, plan_with: PlanWith) -> tuple[CostModel, Plan]:
    """The plan at measured prices with its cost model; the target's own prices if kernels of this machine do not count.

    Args:
        job: the call of `optimize`, whose `calibration` and `gain` get the reports.
        source: the original.
        graph: the graph, unplanned.
        plan_with: plans at the prices of a cost model.
    """
    context, model = job.context, job.context.cost_model
    reason = _obstacle(job, graph)
    first = plan_with(model)
    if not reason and first.stopped:
        reason = "the time limit ended planning"
    if not reason and isinstance(job.target_model, RooflineModel):
        store = _store(job)
        times = RequestedTimes(store, MAX_SECONDS, job.engine)
        with scratch_folder() as folder:
            original = _optimised_original(job, source, graph, folder)
            restricted = None if job.engine is None else _restricted(job, job.engine, source, graph)
            found = refine_plan(
                graph, job.target_model, context.sizes, plan_with, times, first, original, job.progress, restricted
            )
        if found is not None:
            job.calibration, job.gain = _report(found, times, store.machine), gain_at_timed_prices(found)
            context.time_graphs = RequestedTimes(store, MAX_SECONDS, job.engine).of_graphs
            return found.model, found.plan
        reason = "the time limit ended planning at the times of kernels"
    job.calibration = PricesReport(reason=reason)
    runtime = {"chooses_blocked_formats": job.dialect.is_native, "assigns_formats": job.runtime.kernels == "target"}
    job.gain = gain_at_target_prices(graph, model, context.sizes, first, **runtime)
    return model, first


def _restricted(job: Job, engine: Engine, source: onnx_ir.Model, graph: Graph) -> Callable[[CostModel], CostModel]:
    """Restricts a cost model to the runtime of a job, with the Transposes of the original that its engine does not execute."""
    absorbed = dict[str, Format]()
    with suppress(*RUN_OR_MEMORY_ERRORS):  # it does not run the original
        layers = engine.load(job.path or onnx_io.to_bytes(source), job.options.threads).layers()
        moves = [each for each in layers if each.moves]
        for op in graph.ops:
            rule, is_absorbed = rule_of(op), op.name and not any(each.computes(op) for each in moves)
            if op.kind == "Transpose" and is_absorbed and isinstance(rule, View) and op.x.rank:
                format = rule.output_format(op, Format.canonical(op.x.rank))
                absorbed |= {op.y.tensor: format} if format is not None else {}
    return lambda measured: priced_with(job.runtime.restricted(measured), absorbed_tensors=absorbed)


def _report(found: RefinedPlan, times: RequestedTimes, machine: Machine) -> PricesReport:
    known = [each for each in found.kernels if each.is_timed]
    return PricesReport(
        timed=times.num_newly_timed,
        known=len(known),
        share=total_seconds(known) / (total_seconds(found.kernels) or 1.0),
        skipped=len(times.skipped),
        seconds=found.seconds,
        cpu=machine.cpu,
    )


def _optimised_original(job: Job, source: onnx_ir.Model, graph: Graph, folder: Path) -> Graph | None:
    """The original as onnxruntime runs it; None if it has float16, does not load, or is too large to be optimised for it."""
    if job.engine is not None or graph.has_dtype(DType.FLOAT16):  # its kernels are not timed
        return None
    if weight_bytes(source) > MAX_PREPACKED_BYTES:
        return None
    original = Runnable(job.path) if job.path is not None else as_runnable(source, folder / "original.onnx")
    saved = folder / "optimised.onnx"  # its large weights stay in the folder
    try:
        original.save_optimised(saved, EXTERNAL_WEIGHTS, threads=1, disabled=_WITHOUT_BLOCKS)
        return inference.lift(onnx_io.read(saved))
    except RUN_OR_MEMORY_ERRORS:
        return None


def _obstacle(job: Job, graph: Graph) -> str:
    """The reason why the prices of the target count; empty if there is none."""
    options = job.options
    if not options.calibrate or os.environ.get(VARIABLE):
        return "off"
    if options.profile is None and not _is_host(options.target):
        return f"{job.target_model.name} is not this machine"
    is_timed = job.dialect.is_native or job.engine is not None
    if not is_timed or not isinstance(job.target_model, RooflineModel):
        return f"kernels of {job.runtime.name} are not timed on this machine"
    return "kernels of quantised models are not timed" if has_quantized_ops(graph) else ""


def _is_host(target: object) -> bool:
    try:
        return target in (HOST, host_target())
    except TargetError:
        return False


def _store(job: Job) -> KernelStore:
    """The times of kernels: those of a profile, or those in the user's cache folder.

    Raises:
        ArgumentError: the profile is no file of kernel times.
    """
    if job.options.profile is None:
        return KernelStore(Machine.current(job.options.threads, job.engine), default_folder())
    path = Path(job.options.profile)
    try:
        return KernelStore.of_file(path)
    except ValueError as error:
        hint = f"give a file like those in {default_folder()}"
        raise ArgumentError(str(error), where=path_text(path), hint=hint) from None


_NEGLIGIBLE = 1e-3  # of the time of the original


def gain_at_target_prices(
    graph: Graph, model: CostModel, sizes: Sizes, plan: Plan, *, chooses_blocked_formats: bool, assigns_formats: bool
) -> GainReport | None:
    """The gain of a plan at the prices of the target; None for several targets.

    Args:
        graph: the graph, unplanned.
        model: the cost model.
        sizes: the sizes of symbolic dimensions.
        plan: the plan.
        chooses_blocked_formats: whether the runtime chooses blocked formats by itself.
        assigns_formats: whether it has kernels in other formats than the canonical ones, and propagates these formats.
    """
    if plan.outcomes:
        return None
    kernels: list[UsedKernel] = []
    if chooses_blocked_formats and not has_quantized_ops(graph):
        kernels = kernels_in_default_formats(graph, model, sizes)
    if kernels:
        return GainReport(baseline="folded", seconds_before=total_seconds(kernels), seconds_after=plan.seconds)
    return GainReport(
        baseline="folded",
        seconds_before=plan.baseline,
        seconds_greedy=plan.greedy if assigns_formats else None,
        seconds_after=plan.seconds,
    )


def gain_at_timed_prices(found: RefinedPlan) -> GainReport:
    """The gain of a plan for onnxruntime at measured prices; over the graph in canonical formats if an extent is not known."""
    return GainReport(
        baseline=found.baseline,
        seconds_before=found.baseline_seconds or found.plan.baseline,
        seconds_after=found.plan.seconds,
    )


def within_growth(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> GainReport | None:
    """The gain without that of constants that exceed the permitted growth of the file.

    Args:
        gain: the gain of the plan, for which all constants may be packed; and Winograd used, if kernels were timed.
        requests: the requests for growth, of which those that were declined count: packed constants, which are converted at run
            time instead, and Winograd's.
    """
    if gain is None:
        return None
    sources = {PretransformWeights.name, *([Winograd.name] if gain.baseline == "optimised" else [])}
    lost = sum(each.seconds for each in requests if not each.is_accepted and each.source in sources)
    return gain.model_copy(update={"seconds_after": gain.seconds_after + lost})


def reason_of_loss(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> str:
    """The reason to keep the original if the plan is estimated to be slower; empty if it is not.

    Args:
        gain: the gain of the plan.
        requests: the requests for growth.
    """
    gain = within_growth(gain, requests)
    if gain is None or gain.seconds_after <= gain.seconds_before * (1 + _NEGLIGIBLE):
        return ""
    slower = f"{seconds(gain.seconds_before)} -> {seconds(gain.seconds_after)}"
    growth = "" if all(each.is_accepted for each in requests) else ", within the permitted growth of the file"
    return f"the best plan is estimated to be slower than the original{growth}: {slower}"


def may_gain(gain: GainReport | None, requests: Iterable[GrowthRequest]) -> bool:
    """Whether the plan is estimated to be faster, or has no estimate."""
    gain = within_growth(gain, requests)
    return gain is None or gain.seconds_after < gain.seconds_before * (1 - _NEGLIGIBLE)


def check_bound(plan: Plan) -> None:
    """Check that the lower bound has the prices of the estimates.

    Raises:
        InvariantError: it exceeds the estimated time of the plan.
    """
    if plan.lower_bound > plan.seconds * (1 + TOLERANCE):
        what = f"the lower bound {plan.lower_bound:g} s exceeds the estimated {plan.seconds:g} s of the plan"
        raise InvariantError(what, hint="this is a bug; please report it with the model")
