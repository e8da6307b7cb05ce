"""The prices of a job from kernels timed on this machine, if the result is for this machine."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import onnx_ir

from layoutopt.cost import CostModel
from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.registry import HOST, host_target
from layoutopt.driver.gain import gain_at_target_prices, gain_at_timed_prices
from layoutopt.driver.job import Job
from layoutopt.errors import ArgumentError, TargetError
from layoutopt.files import path_text, scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.kernel_times import (
    KernelStore,
    Machine,
    RefinedPlan,
    RequestedTimes,
    default_folder,
    refine_prices,
    time_graphs,
)
from layoutopt.kernel_times.baseline import optimised_graph
from layoutopt.passes.base import PassContext
from layoutopt.passes.planning import has_quantized_ops
from layoutopt.planner import Plan
from layoutopt.report.schema import PricesReport
from layoutopt.runtime.errors import RUN_OR_MEMORY_ERRORS

VARIABLE = "LAYOUTOPT_NO_MEASURE"
"""An environment variable: if it is not empty, nothing is measured or timed, as with `measure=False, calibrate=False`."""

MAX_SECONDS = 5.0
"""Seconds of the processor for timing the kernels of plans, and as many for those of tilings; earlier runs count as well."""


def calibrated_plan(
    job: Job, source: onnx_ir.Model, graph: Graph, context: PassContext, plan_with: Callable[[CostModel], Plan]
) -> tuple[CostModel, Plan]:
    """The plan at measured prices with its cost model; the target's own prices if kernels of this machine do not count.

    Args:
        job: the call of `optimize`, whose `calibration` and `gain` get the reports.
        source: the original.
        graph: the graph, unplanned.
        context: the state of the passes.
        plan_with: plans at the prices of a cost model.
    """
    model = context.cost_model
    reason = _obstacle(job, graph)
    first = plan_with(model)
    if not reason and first.stopped:
        reason = "the time limit ended planning"
    if not reason and isinstance(model, RooflineModel):
        store = _store(job)
        times = RequestedTimes(store, MAX_SECONDS)
        with scratch_folder() as folder:
            original = _optimised_original(job, source, graph, folder)
            found = refine_prices(graph, model, context.sizes, first, plan_with, times, original, job.progress)
        if found is not None:
            job.calibration, job.gain = _report(found, times, store.machine), gain_at_timed_prices(found)
            context.time_graphs = partial(_tiling_times, job, RequestedTimes(store, MAX_SECONDS), job.calibration)
            return found.model, found.plan
        reason = "the time limit ended planning at the times of kernels"
    job.calibration = PricesReport(reason=reason)
    job.gain = gain_at_target_prices(graph, model, context.sizes, first, chooses_blocked_formats=job.dialect.is_native)
    return model, first


def _report(found: RefinedPlan, times: RequestedTimes, machine: Machine) -> PricesReport:
    return PricesReport(
        timed=times.num_newly_timed,
        known=found.num_timed,
        share=found.timed_share,
        skipped=len(times.skipped),
        seconds=found.seconds,
        cpu=machine.cpu,
    )


def _tiling_times(
    job: Job, times: RequestedTimes, plan_report: PricesReport, graphs: Sequence[Graph]
) -> list[float | None]:
    """The times of lowered graphs, whose number is added to the report on the plan."""
    found = time_graphs(graphs, times)
    numbers = {
        "timed": plan_report.timed + times.num_newly_timed,
        "skipped": plan_report.skipped + len(times.skipped),
    }
    job.calibration = plan_report.model_copy(update=numbers)
    return found


def _optimised_original(job: Job, source: onnx_ir.Model, graph: Graph, folder: Path) -> Graph | None:
    """The original as onnxruntime runs it; None if it has float16, does not load, or is too large to be optimised for it."""
    if graph.has_dtype(DType.FLOAT16):  # its kernels are not timed
        return None
    original = job.runnable_original(source, has_float16=False, folder=folder)
    if original.is_large:
        return None
    try:
        return optimised_graph(original, folder)
    except RUN_OR_MEMORY_ERRORS:
        return None


def _obstacle(job: Job, graph: Graph) -> str:
    """The reason why the prices of the target count; empty if there is none."""
    options = job.options
    if not options.calibrate or os.environ.get(VARIABLE):
        return "off"
    if options.profile is None and not _is_host(options.target):
        return f"{job.target_model.name} is not this machine"
    if not job.dialect.is_native or not isinstance(job.context.cost_model, RooflineModel):
        return "only kernels of onnxruntime on this machine are timed"
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
        return KernelStore(Machine.current(job.options.threads), default_folder())
    path = Path(job.options.profile)
    try:
        return KernelStore.of_file(path)
    except ValueError as error:
        hint = f"give a file like those in {default_folder()}"
        raise ArgumentError(str(error), where=path_text(path), hint=hint) from None


__all__ = ["MAX_SECONDS", "calibrated_plan"]
