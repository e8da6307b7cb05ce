"""The stage `measure` of a job: runs of the original and the rewritten model in turns, in the runtime that runs the result."""

import os
from collections.abc import Mapping
from time import perf_counter

import onnx_ir

from layoutopt.driver.calibration import VARIABLE
from layoutopt.driver.job import Job
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes, point_of_range, symbols
from layoutopt.ir.types import DType
from layoutopt.onnx_io.writer.serialize import weight_bytes
from layoutopt.report.schema import MeasuredReport, MeasurementReport
from layoutopt.runtime.errors import error_message
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs, Style, sizes_text
from layoutopt.timing.speed_up import SizedFeed, SpeedUp, measure_speed_up
from layoutopt.verification import MAX_PREPACKED_BYTES, Runnable, RunnableCopies
from layoutopt.verification.original_runs import RUN_ERRORS, RUN_OR_MEMORY_ERRORS

_MAX_RUN_SECONDS = 5.0
"""Time of a run of the original above which it is not measured: a measurement has at least eight runs."""


def measure(
    job: Job,
    source: onnx_ir.Model,
    graph: Graph,
    samples: SampleInputs,
    final: onnx_ir.Model,
    copies: RunnableCopies,
) -> str:
    """Measure the speed-up, and return the reason why the original should stay; empty if the rewritten model is faster.

    The report of the measurement is in `job.measurement`, also where nothing can be measured: then with the reason.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its graph, planned.
        samples: the generator of inputs.
        final: the rewritten model.
        copies: the models as Runnables.
    """
    job.measurement = MeasurementReport(threads=job.options.threads, reason=obstacle(job))
    if job.measurement.reason:
        return ""
    job.progress("measuring")
    found, reason = list[SpeedUp](), ""
    if max(weight_bytes(source), weight_bytes(final)) > MAX_PREPACKED_BYTES:
        reason = f"more than {MAX_PREPACKED_BYTES // 1_000_000} MB of weights"
    else:
        try:
            original = Runnable.of(job.path, graph.has_dtype(DType.FLOAT16)) if job.path else copies.of(source)
            found = _speed_ups(job, graph, samples, original, copies.of(final))
            reason = "" if found else f"the original does not run within {_MAX_RUN_SECONDS:.0f} s on random inputs"
        except RUN_OR_MEMORY_ERRORS as error:
            reason = error_message(error)
    rows = [_row(each) for each in found]
    job.measurement = MeasurementReport(threads=job.options.threads, reason=reason, sizes=rows)
    return reason_to_keep(found)


def obstacle(job: Job) -> str:
    """The reason why nothing can be measured; empty if there is none."""
    block = job.context.block
    if not job.options.measure or os.environ.get(VARIABLE):
        return "off"
    if not job.dialect.is_native:
        return f"{job.runtime.name} is not the onnxruntime of this machine"
    if block and block != blocked_channels():
        return f"this machine has no blocks of {block} channels"
    return ""


def _speed_ups(job: Job, graph: Graph, samples: SampleInputs, original: Runnable, rewritten: Runnable) -> list[SpeedUp]:
    """The speed-up at the sizes that the plan is for, first, and at its guard points; without sizes that do not run."""
    threads = job.options.threads
    session = original.timed_session(threads)
    found = [feed_at(session, samples, sizes) for sizes in measured_sizes(graph, job.context.sizes)]
    del session
    feeds = [each for each in found if each is not None]
    if found[0] is None:
        return []
    return measure_speed_up(
        lambda: original.timed_session(threads),
        lambda: rewritten.timed_session(threads),
        feeds,
        threads,
        ends_when_clear=True,
    )


def feed_at(session: Session, samples: SampleInputs, sizes: Mapping[str, int]) -> SizedFeed | None:
    """Inputs on which the original runs; None if there are none, a run takes too long, or memory is too small."""
    for style in Style:
        try:
            feed = samples.feed(session, sizes, style)
            begin = perf_counter()
            session.run(None, feed, _MAX_RUN_SECONDS)
        except (TimeoutError, MemoryError):
            return None
        except RUN_ERRORS:
            continue
        return SizedFeed(sizes, feed) if perf_counter() - begin <= _MAX_RUN_SECONDS else None
    return None


def measured_sizes(graph: Graph, sizes: Sizes) -> list[dict[str, int]]:
    """The sizes of the symbolic dimensions, by name, at every point and guard point."""
    points = [
        {name: point_of_range(each, at) for name, each in sizes.ranges.items()} for at in range(len(sizes.points))
    ]
    guards = [{each.name: guard[each.dim] for each in symbols(graph.inputs)} for guard in sizes.guards]
    return [each for number, each in enumerate([*points, *guards]) if each not in [*points, *guards][:number]]


def _row(found: SpeedUp) -> MeasuredReport:
    return MeasuredReport(
        sizes=dict(found.sizes),
        seconds_before=found.before.median,
        seconds_after=found.after.median,
        speed_up=found.runs.median,
        low=found.runs.low,
        high=found.runs.high,
        creation_speed_up=found.creation.median,
        sessions=found.blocks,
    )


def reason_to_keep(found: list[SpeedUp]) -> str:
    """The reason to leave the original alone; empty if the rewritten model is faster, or nothing was measured."""
    for each in found:
        if each.is_slower:
            at = f" at {sizes_text(each.sizes)}" if each.sizes else ""
            return f"measured, the result is slower: {each.runs.median:.2f} times as fast{at}"
    if found and not any(each.is_faster for each in found):
        runs = found[0].runs
        return f"measured, the result is not faster: {runs.low:.2f} to {runs.high:.2f} times as fast"
    return ""


__all__ = ["feed_at", "measure", "measured_sizes", "obstacle", "reason_to_keep"]
