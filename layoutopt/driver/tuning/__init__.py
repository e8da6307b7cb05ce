"""The stage `tune`: variants of planning and rewriting, measured whole against the best version so far, until time is up.

knobs         decisions by estimates, and their other settings
proposal      the knobs of a planned model
search        the order in which variants are tried
plan_parts    the kernels and conversions of a plan, with their estimated seconds
learning      prices that are learnt from measured variants
variant_job   one variant as a call of `optimize`
trials        one variant: rewritten, compared, measured
"""

from dataclasses import replace
from math import log
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx_ir

from layoutopt import onnx_io
from layoutopt.cost import sized
from layoutopt.driver.calibration import VARIABLE
from layoutopt.driver.job import Job
from layoutopt.driver.measuring import feed_at, measured_sizes, obstacle
from layoutopt.driver.rewriting import Rewritten
from layoutopt.driver.tuning.knobs import Changes
from layoutopt.driver.tuning.learning import LearntPrices
from layoutopt.driver.tuning.proposal import knobs_of
from layoutopt.driver.tuning.search import Search, Stopped, Trial, run_trials
from layoutopt.driver.tuning.trials import CONFIRMATION_SECONDS, Trials, Version
from layoutopt.driver.tuning.variant_job import plan_key, report_like
from layoutopt.files import scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.report.schema import LearntPriceReport, TuningReport, VariantReport
from layoutopt.runtime.errors import error_message
from layoutopt.sample_inputs import SampleInputs
from layoutopt.timing.speed_up import SizedFeed
from layoutopt.timing.statistics import MedianEstimate
from layoutopt.verification import MAX_PREPACKED_BYTES, as_runnable
from layoutopt.verification.original_runs import RUN_OR_MEMORY_ERRORS

_MOST_LEARNT = 20  # in a report
_SMALLEST_CORRECTION = 0.05


def tuned(
    job: Job, source: onnx_ir.Model, graph: Graph, samples: SampleInputs, rewritten: onnx_ir.Model | None
) -> Rewritten:
    """The fastest version that was found. `tuning` of its job is the report.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its graph, planned.
        samples: the generator of inputs.
        rewritten: the first result; None if the original is faster.
    """
    first = Rewritten(job, graph, samples, rewritten)
    seconds = job.options.tune
    assert seconds is not None
    begin = perf_counter()
    job.tuning = TuningReport(seconds=seconds, reason=_obstacle(job))
    if job.tuning.reason:
        return first
    job.progress("tuning")
    with scratch_folder() as folder:
        try:
            trials = _trials(job, source, graph, samples, rewritten, folder)
        except RUN_OR_MEMORY_ERRORS as error:
            job.tuning = job.tuning.model_copy(update={"reason": error_message(error)})
            return first
        if isinstance(trials, str):
            job.tuning = job.tuning.model_copy(update={"reason": trials})
            return first
        return _searched(job, trials, first, begin)


def _obstacle(job: Job) -> str:
    """The reason why no variant can be tried; empty if there is none."""
    if job.context.plan is None:
        return job.context.reason_to_keep
    reason = job.measurement.reason if job.measurement is not None else ""
    reason = reason or obstacle(job)
    return f"measurements are off ({VARIABLE})" if reason == "off" else reason


def _trials(
    job: Job,
    source: onnx_ir.Model,
    graph: Graph,
    samples: SampleInputs,
    rewritten: onnx_ir.Model | None,
    folder: Path,
) -> Trials | str:
    """The trials from the first result on; or the reason why there can be none."""
    has_float16 = graph.has_dtype(DType.FLOAT16)
    original = job.runnable_original(source, has_float16, folder)
    runnable = original if rewritten is None else as_runnable(rewritten, folder / "b.onnx", has_float16)
    if original.is_large:
        return f"more than {MAX_PREPACKED_BYTES // 1_000_000} MB of weights"
    session = original.timed_session(job.options.threads)
    sizes = measured_sizes(graph, replace(job.context.sizes, guards=()))
    found = [feed_at(session, samples, each) for each in sizes]
    feeds: list[SizedFeed] = [each for each in found if each is not None]
    if len(feeds) < len(found):
        return "the original does not run on random inputs, or takes too long"
    begin = perf_counter()
    expected: list[list[Any]] = [session.run(None, each.feed) for each in feeds]
    run_seconds = (perf_counter() - begin) / len(feeds)
    measured = job.measurement.sizes if job.measurement is not None else []
    speed_up = measured[0].speed_up if measured else None
    version = Version(
        job,
        graph,
        samples,
        runnable,
        over_original=1.0 if rewritten is None else speed_up or 1.0,
        over_first=1.0 if rewritten is not None else 1 / speed_up if speed_up else None,
    )
    is_rewritten = rewritten is not None
    found_trials = Trials(
        version, source, job.context.cost_model, feeds, expected, run_seconds, folder, is_rewritten=is_rewritten
    )
    assert job.context.plan is not None
    found_trials.known_plans.add(plan_key(job.context.plan.signatures, Changes().besides_plan))
    if rewritten is not None:
        found_trials.known_files.add(onnx_io.fingerprint(rewritten))
    return found_trials


def _searched(job: Job, trials: Trials, first: Rewritten, begin: float) -> Rewritten:
    """Try variants until time is up, and return the best version."""
    context, plan = job.context, job.context.plan
    assert plan is not None and job.tuning is not None
    is_timed = job.calibration is not None and not job.calibration.reason
    knobs = knobs_of(plan, job.passes, sized(context.cost_model, context.sizes), context.block, is_timed=is_timed)
    start = trials.best
    remaining = job.tuning.seconds - (perf_counter() - begin)
    search = Search(knobs)
    found, stopped = run_trials(search, trials.evaluate, remaining, perf_counter, CONFIRMATION_SECONDS)
    best, over_first = trials.best, None
    is_over_first = best.candidate is not None and first.model is not None
    if is_over_first and stopped != "interrupted":
        job.progress("measuring the chosen variant")
        found_over = trials.confirmed(start)
        over_first = found_over[0].runs
        has_gain = any(each.runs.verdict == "faster" for each in found_over)
        if not has_gain or any(each.is_slower for each in found_over):
            best = start
    report = _report(job.tuning, found, stopped, best, over_first, perf_counter() - begin)
    report = report.model_copy(
        update={"learnt": _learnt(search.prices), "runs_learnt_from": len(search.prices.observations)}
    )
    if best.candidate is None:
        job.tuning = report
        return first
    best.job.tuning = report
    report_like(job, best.job, best.graph, context.cost_model, best.variant.changes)
    return Rewritten(best.job, best.graph, best.samples, best.candidate.stamped())


def _report(
    given: TuningReport,
    found: list[Trial],
    stopped: Stopped,
    best: Version,
    over_first: MedianEstimate | None,
    spent: float,
) -> TuningReport:
    chosen = best.variant.text if best.candidate is not None else ""
    rows = [_row(each, chosen) for each in found]
    return given.model_copy(
        update={
            "spent": spent,
            "stopped": stopped,
            "chosen": chosen,
            "over_first": over_first.median if over_first is not None else None,
            "low": over_first.low if over_first is not None else None,
            "high": over_first.high if over_first is not None else None,
            "variants": rows,
        }
    )


def _row(trial: Trial, chosen: str) -> VariantReport:
    name = trial.variant.text
    return VariantReport(
        name=name,
        outcome="chosen" if name == chosen and trial.outcome == "faster" else trial.outcome,
        gain=trial.gain,
        low=trial.low,
        high=trial.high,
        speed_up=trial.over_original,
        over_first=trial.over_first,
        estimated_extra=trial.estimated_extra,
        seconds=trial.seconds,
        reason=trial.reason,
    )


def _learnt(prices: LearntPrices) -> list[LearntPriceReport]:
    """The prices with the largest corrections."""
    found = sorted(prices.factors.items(), key=lambda each: -abs(log(each[1])))
    return [
        LearntPriceReport(
            kind="conversion" if len(key) == 3 else "kernel", name=key[0], formats=" -> ".join(key[1:]), factor=factor
        )
        for key, factor in found[:_MOST_LEARNT]
        if abs(factor - 1) > _SMALLEST_CORRECTION
    ]


__all__ = ["tuned"]
