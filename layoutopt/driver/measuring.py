"""The stage `measure` of a job: runs of the original and the rewritten model in turns, in the runtime that runs the result."""

import os
from collections.abc import Mapping, Sequence
from functools import partial

import onnx_ir
from msgspec.structs import replace

from layoutopt.driver.job import Job
from layoutopt.driver.prices import VARIABLE, may_gain
from layoutopt.errors import LayoutoptError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes, symbols
from layoutopt.ir.types import DType
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.report.schema import MeasuredReport, MeasurementReport
from layoutopt.runtime.errors import RUN_ERRORS, RUN_OR_MEMORY_ERRORS, error_message
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.sample_inputs import Feed, SampleInputs, Style, sizes_text
from layoutopt.timing.speed_up import Run, SpeedUp, engine_clock, measure_in_turns, speed_ups
from layoutopt.verification import MAX_PREPACKED_BYTES, Runnable, RunnableCopies
from layoutopt.verification.runnable import AnySession

_MAX_RUN_SECONDS = 5.0
"""Processor time per thread of a run of the original above which it is not measured: a measurement has at least 18 runs."""

_MAX_PAIRED_BYTES = 200_000_000
"""Weights of the original above which sessions of one model exist at a time: two of 256 MB take 1.3 GB, one takes 0.8 GB."""


def measure(
    job: Job,
    source: onnx_ir.Model,
    graph: Graph,
    samples: SampleInputs,
    final: onnx_ir.Model,
    copies: RunnableCopies,
) -> str:
    """Measure the speed-up, and return the reason why the original should stay, or an empty string.

    The report of the measurement is in `job.measurement`, also where nothing can be measured: then with the reason.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its graph, planned.
        samples: the generator of inputs.
        final: the rewritten model.
        copies: the models as Runnables.
    """
    reason, rows, skipped = obstacle(job, source), list[MeasuredReport](), list[dict[str, int]]()
    kept = ""  # the reason if nothing is measured
    if not reason:
        job.progress("measuring")
        try:
            original = Runnable(job.path, has_float16=graph.has_dtype(DType.FLOAT16)) if job.path else copies.of(source)
            models = [replace(each, engine=job.engine) for each in (original, copies.of(final))]
            sizes = measured_sizes(graph, job.context.sizes)
            is_paired = weight_bytes(source) <= _MAX_PAIRED_BYTES
            rows, skipped = measured_rows(models, samples, sizes, job.options.threads, is_paired=is_paired)
        except RUN_OR_MEMORY_ERRORS as error:
            program = f"{job.engine.name}: " if job.engine is not None else ""
            reason = f"{program}{error_message(error)}"
            if job.context.has_to_gain and not may_gain(job.gain, job.context.growth.requests):
                kept = f"no gain is estimated, and none is measured: {reason}"
    job.measurement = MeasurementReport(threads=job.options.threads, reason=reason, sizes=rows, skipped=skipped)
    return kept or reason_to_keep(rows)


def obstacle(job: Job, source: onnx_ir.Model) -> str:
    """The reason why nothing can be measured; empty if there is none."""
    block = job.context.block
    if not job.options.measure or os.environ.get(VARIABLE):
        return "off"
    if not job.dialect.is_native and job.engine is None:
        return f"{job.runtime.name} is not the onnxruntime of this machine"
    if block and block != blocked_channels():
        return f"this machine has no blocks of {block} channels"
    is_large = weight_bytes(source) > MAX_PREPACKED_BYTES
    return f"the original has more than {MAX_PREPACKED_BYTES // 1_000_000} MB of weights" if is_large else ""


def measured_rows(
    models: Sequence[Runnable], samples: SampleInputs, sizes: Sequence[dict[str, int]], threads: int, *, is_paired: bool
) -> tuple[list[MeasuredReport], list[dict[str, int]]]:
    """The speed-up of the second of two models at every size, and the sizes at which onnxruntime does not run the first one.

    Args:
        models: the original and the rewritten model.
        samples: the generator of inputs.
        sizes: of the symbolic dimensions, by name; those of the plan first.
        threads: of the sessions.
        is_paired: whether sessions of both models exist at the same time.

    Raises:
        LayoutoptError: the original does not run at the sizes of the plan, or the machine is busy.
    """
    feeds: list[Feed | None] = []
    is_foreign = models[0].engine is not None

    def runs_of(session: AnySession) -> list[Run]:
        if not feeds:  # it is the first session of the original
            session_for_inputs = replace(models[0], engine=None).timed_session(threads) if is_foreign else session
            feeds.extend(feed_at(session_for_inputs, samples, each, threads) for each in sizes)
        if feeds[0] is None:
            limit = f"{_MAX_RUN_SECONDS:.0f} s of processor time"
            raise LayoutoptError(f"the original does not run within {limit} on random inputs")
        return [partial(session.run, None, feed) for feed in feeds if feed is not None]

    sessions = [partial(each.timed_session, threads) for each in models]
    clock = engine_clock(threads) if is_foreign else None
    blocks = measure_in_turns(sessions, runs_of, threads=threads, clock=clock, is_paired=is_paired, stops_early=True)
    pairs = list(zip(sizes, feeds, strict=True))
    measured = [each for each, feed in pairs if feed is not None]
    rows = [row(each, found) for each, found in zip(measured, speed_ups(blocks, 1), strict=True)]
    return rows, [each for each, feed in pairs if feed is None]


def feed_at(session: AnySession, samples: SampleInputs, sizes: Mapping[str, int], threads: int) -> Feed | None:
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
            session.run(None, feed, limit)
        except (TimeoutError, MemoryError):
            return None
        except RUN_ERRORS:
            continue
        return feed
    return None


def measured_sizes(graph: Graph, sizes: Sizes) -> list[dict[str, int]]:
    """The sizes of the symbolic dimensions, by name, at every point and guard point."""
    points = (*sizes.points, *sizes.guards)
    named = [{each.name: point[each.dim] for each in symbols(graph.inputs)} for point in points]
    return [each for number, each in enumerate(named) if each not in named[:number]]


def row(sizes: dict[str, int], found: SpeedUp) -> MeasuredReport:
    """The report of a speed-up.

    Raises:
        LayoutoptError: the machine is busy.
    """
    if found.disturbance:
        hint = "run it again without other programs"
        raise LayoutoptError(f"this machine is busy: {found.disturbance}{_at(sizes)}", hint=hint)
    return MeasuredReport(
        sizes=sizes,
        seconds_before=found.before,
        seconds_after=found.after,
        speed_up=found.runs.value,
        low=found.runs.low,
        high=found.runs.high,
        null=(found.null.low, found.null.high),
        creation_speed_up=found.creation,
        sessions=found.runs.blocks,
    )


def reason_to_keep(rows: Sequence[MeasuredReport]) -> str:
    """The reason to leave the original alone; otherwise empty.

    It is a loss that is shown at some size, or a loss that is more likely than a gain at the sizes of the plan.
    """
    for number, each in enumerate(rows):
        if each.high < 1 or (number == 0 and each.speed_up < 1):
            found = "the result is slower" if each.high < 1 else "no gain is shown"
            return f"measured, {found}: {each.low:.2f} to {each.high:.2f} times as fast{_at(each.sizes)}"
    return ""


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {sizes_text(sizes)}" if sizes else ""
