"""The stage `measure` of a job: runs of the original and the rewritten model in turns, in the runtime that runs the result."""

import os
from collections.abc import Mapping
from functools import partial
from time import process_time

import onnx_ir

from layoutopt.driver.job import Job
from layoutopt.driver.prices import VARIABLE
from layoutopt.errors import LayoutoptError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes, symbols
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.report.schema import MeasuredReport, MeasurementReport
from layoutopt.runtime.errors import RUN_ERRORS, RUN_OR_MEMORY_ERRORS, error_message
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs, Style, sizes_text
from layoutopt.timing.speed_up import LONG_RUN, SizedFeed, SpeedUp, measure_speed_up
from layoutopt.verification import MAX_PREPACKED_BYTES, Runnable, RunnableCopies

_MAX_RUN_SECONDS = 5.0
"""Processor time per thread of a run of the original above which it is not measured: a measurement has at least 24 runs."""


def measure(
    job: Job,
    source: onnx_ir.Model,
    graph: Graph,
    samples: SampleInputs,
    final: onnx_ir.Model,
    copies: RunnableCopies,
) -> str:
    """Measure the speed-up, and return the reason why the original should stay; empty unless a loss is shown.

    The report of the measurement is in `job.measurement`, also where nothing can be measured: then with the reason.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its graph, planned.
        samples: the generator of inputs.
        final: the rewritten model.
        copies: the models as Runnables.
    """
    reason, found, skipped = obstacle(job, source), list[SpeedUp](), list[dict[str, int]]()
    if not reason:
        job.progress("measuring")
        try:
            original = Runnable.of(job.path) if job.path else copies.of(source)
            found, skipped = _speed_ups(job, graph, samples, original, copies.of(final))
        except RUN_OR_MEMORY_ERRORS as error:
            reason = error_message(error)
    rows = [_row(each) for each in found]
    job.measurement = MeasurementReport(threads=job.options.threads, reason=reason, sizes=rows, skipped=skipped)
    return reason_to_keep(found)


def obstacle(job: Job, source: onnx_ir.Model) -> str:
    """The reason why nothing can be measured; empty if there is none."""
    block = job.context.block
    if not job.options.measure or os.environ.get(VARIABLE):
        return "off"
    if not job.dialect.is_native:
        return f"{job.runtime.name} is not the onnxruntime of this machine"
    if block and block != blocked_channels():
        return f"this machine has no blocks of {block} channels"
    is_large = weight_bytes(source) > MAX_PREPACKED_BYTES
    return f"the original has more than {MAX_PREPACKED_BYTES // 1_000_000} MB of weights" if is_large else ""


def _speed_ups(
    job: Job, graph: Graph, samples: SampleInputs, original: Runnable, rewritten: Runnable
) -> tuple[list[SpeedUp], list[dict[str, int]]]:
    """The speed-up at the sizes that the plan is for, first, and at its guard points; and the sizes that do not run.

    Raises:
        LayoutoptError: the original does not run at the sizes of the plan, or the machine is busy.
    """
    threads = job.options.threads
    session = original.timed_session(threads)
    sizes = measured_sizes(graph, job.context.sizes)
    found_feeds = [feed_at(session, samples, each, threads) for each in sizes]
    del session
    if found_feeds[0] is None:
        raise LayoutoptError(
            f"the original does not run within {_MAX_RUN_SECONDS:.0f} s of processor time on random inputs"
        )
    feeds = [each for each in found_feeds if each is not None]
    is_long = min(each.seconds for each in feeds) >= LONG_RUN * threads
    before, after = (partial(each.timed_session, threads) for each in (original, rewritten))
    found = measure_speed_up(before, after, feeds, threads, is_long=is_long)
    for each in found:
        if each.disturbance:
            hint = "run it again without other programs"
            raise LayoutoptError(f"this machine is busy: {each.disturbance}{_at(each.sizes)}", hint=hint)
    return found, [each for each, feed in zip(sizes, found_feeds, strict=True) if feed is None]


def feed_at(session: Session, samples: SampleInputs, sizes: Mapping[str, int], threads: int = 1) -> SizedFeed | None:
    """Inputs on which the original runs; None if there are none, a run takes too long, or memory is too small.

    Args:
        session: a session of the original.
        samples: the generator of inputs.
        sizes: of symbolic dimensions, by name.
        threads: of the session, whose processor times count together.
    """
    limit = _MAX_RUN_SECONDS * threads
    for style in Style:
        try:
            feed = samples.feed(session, sizes, style)
            begin = process_time()
            session.run(None, feed, limit)
        except (TimeoutError, MemoryError):
            return None
        except RUN_ERRORS:
            continue
        passed = process_time() - begin
        return SizedFeed(sizes, feed, passed) if passed <= limit else None
    return None


def measured_sizes(graph: Graph, sizes: Sizes) -> list[dict[str, int]]:
    """The sizes of the symbolic dimensions, by name, at every point and guard point."""
    points = (*sizes.points, *sizes.guards)
    named = [{each.name: point[each.dim] for each in symbols(graph.inputs)} for point in points]
    return [each for number, each in enumerate(named) if each not in named[:number]]


def _row(found: SpeedUp) -> MeasuredReport:
    return MeasuredReport(
        sizes=dict(found.sizes),
        seconds_before=found.before,
        seconds_after=found.after,
        speed_up=found.runs.value,
        low=found.runs.low,
        high=found.runs.high,
        null=(found.null.low, found.null.high),
        creation_speed_up=found.creation,
        sessions=found.blocks,
    )


def reason_to_keep(found: list[SpeedUp]) -> str:
    """The reason to leave the original alone: a loss that is shown at some size; otherwise empty."""
    for each in found:
        if each.runs.verdict == "slower":  # the whole interval is below 1
            interval = f"{each.runs.low:.2f} to {each.runs.high:.2f}"
            return f"measured, the result is slower: {interval} times as fast{_at(each.sizes)}"
    return ""


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {sizes_text(sizes)}" if sizes else ""
