"""Trials: a variant is rewritten, compared with the original, and measured in turns with the best version until then.

rewrite -> same plan or file as before? -> outputs -> two blocks, twice -> twelve blocks if these are promising -> verification
-> measurement against the original at every size -> the new best version
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx_ir

from layoutopt import onnx_io
from layoutopt.cost import CostModel, sized
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import lift
from layoutopt.driver.measuring import measure, obstacle
from layoutopt.driver.rewriting import Candidate, rewritten_candidate
from layoutopt.driver.tuning.knobs import Changes
from layoutopt.driver.tuning.learning import ESTIMATE_DEVIATION, TIMED_DEVIATION, MeasuredRatio, Observation, Parts
from layoutopt.driver.tuning.plan_parts import PlanPart, plan_parts, total_seconds
from layoutopt.driver.tuning.search import Trial, Variant
from layoutopt.driver.tuning.variant_job import variant_job
from layoutopt.files import scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.planner import NoFurtherPlanError
from layoutopt.runtime.errors import error_message
from layoutopt.sample_inputs import SampleInputs
from layoutopt.timing.speed_up import BLOCKS, SizedFeed, SpeedUp, measure_speed_up
from layoutopt.timing.statistics import CONFIDENCE
from layoutopt.verification import Runnable, RunnableCopies, as_runnable

SMALLEST_GAIN = 1.01
"""The median speed-up below which a variant is not faster: new sessions of one file differ by as much."""

_SCREENINGS = 2  # one alone takes noise for a gain too often
_SCREENING_BLOCKS = 2
_SCREENING_SECONDS = 0.4
_SECONDS = 1.0
_MIN_ROUNDS = 2  # in a block
_MAX_SECONDS = 15.0
"""The time after which no further block begins, for models that load or run slowly."""

CONFIRMATION_SECONDS = 8.0
"""The same for the measurement of the chosen variant against the first plan."""

_MIN_BLOCKS = 4  # for a variant to be faster
_LARGEST_DIFFERENCE = 1e-2  # relative to the largest magnitude of an output; verification decides beyond it


@dataclass(frozen=True, slots=True)
class Version:
    """A model that may be returned: the original, the first result, or that of a variant which has won.

    Attributes:
        job: the job that made it.
        graph: its planned graph.
        samples: the generator of inputs.
        runnable: the model for sessions.
        parts: the parts of its plan; None for the original.
        candidate: the rewritten model of a variant.
        over_original: its speed-up over the original.
        over_first: its speed-up over the first plan; None if that was not measured.
        variant: its settings.
    """

    job: Job
    graph: Graph
    samples: SampleInputs
    runnable: Runnable
    parts: Parts | None = None
    candidate: Candidate | None = None
    over_original: float = 1.0
    over_first: float | None = None
    variant: Variant = field(default_factory=Variant)


class Trials:
    """Tries variants of one job.

    Attributes:
        best: the best version until now.
    """

    def __init__(
        self,
        first: Version,
        source: onnx_ir.Model,
        cost_model: CostModel,
        feeds: Sequence[SizedFeed],
        expected: Sequence[Sequence[Any]],
        run_seconds: float,
        folder: Path,
        *,
        is_rewritten: bool,
    ) -> None:
        """Start at a version.

        Args:
            first: the first result, or the original.
            source: the original.
            cost_model: the cost model of the first plan.
            feeds: inputs at the sizes of the plan.
            expected: the outputs of the original on them.
            run_seconds: the time of one run of the original.
            folder: the folder for the files of versions.
            is_rewritten: whether the version is the first result.
        """
        self.best = first
        self.known_plans: set[Hashable] = set()
        self.known_files: set[str] = set()
        self._first = first.job
        self._source = source
        self._cost_model = cost_model
        self._feeds = feeds
        self._expected = expected
        self._run_seconds = run_seconds
        self._folder = folder
        self._first_parts = self.parts(first.job, first.graph)
        self._first_seconds = total_seconds(self._first_parts) or 1.0
        self._first_over_original = _measured_ratio(first.job)
        if is_rewritten:
            self.best = replace(first, parts=self._first_parts)

    def evaluate(self, variant: Variant) -> Trial:
        """Try a variant; an exception of layoutopt or onnxruntime is the outcome `failed`."""
        self._first.progress(f"tuning: {variant.text}")
        begin = perf_counter()
        try:
            found = self._tried(variant)
        except (MemoryError, NoFurtherPlanError) as error:
            found = Trial(variant, "not possible", reason=error_message(error))
        except Exception as error:  # a variant that cannot be made must not end the call
            found = Trial(variant, "failed", reason=error_message(error))
        return replace(found, seconds=perf_counter() - begin)

    def _tried(self, variant: Variant) -> Trial:
        job = variant_job(self._first, variant.changes, self._cost_model, self.known_plans)
        graph, samples = lift(job, self._source)
        candidate = rewritten_candidate(job, self._source, graph, samples)
        if candidate is None:
            return Trial(variant, "same file", reason=job.context.reason_to_keep)
        if reason := obstacle(job):
            return Trial(variant, "not possible", reason=reason)
        fingerprint = onnx_io.fingerprint(candidate.final)
        if fingerprint in self.known_files:
            return Trial(variant, "same file")
        self.known_files.add(fingerprint)
        assert job.context.plan is not None
        variant = variant.with_plan_rank(job.context.plan.rank)
        with scratch_folder() as folder:
            copies = RunnableCopies(folder, self.best.runnable.has_float16)
            runnable = copies.of(candidate.final)
            is_verified = not self._agrees(runnable)
            if is_verified:
                candidate.verify(copies)
            found = self._compared(runnable)
            parts = self.parts(job, graph)
            trial = self._trial(variant, found, parts)
            if trial.outcome != "faster":
                return trial
            if not is_verified:
                candidate.verify(copies)
            if reason := measure(job, self._source, graph, samples, candidate.final, copies):
                return replace(trial, outcome="not faster", reason=reason)
        assert job.measurement is not None
        over_original = next((each.speed_up for each in job.measurement.sizes), trial.over_original or 1.0)
        path = self._folder / f"{len(self.known_files)}.onnx"
        runnable = as_runnable(candidate.final, path, self.best.runnable.has_float16)
        self.best = Version(job, graph, samples, runnable, parts, candidate, over_original, trial.over_first, variant)
        return replace(trial, over_original=over_original)

    def parts(self, job: Job, graph: Graph) -> Parts:
        """The parts of the plan of a job, at the prices of the first plan."""
        context = job.context
        return plan_parts(graph, sized(self._cost_model, context.sizes), keeps_qdq_groups=context.keeps_qdq_groups)

    def _agrees(self, runnable: Runnable) -> bool:
        """Whether the outputs are about those of the original, so that verification can wait until the variant is faster."""
        session = runnable.timed_session(self._first.options.threads)
        pairs = zip(self._feeds, self._expected, strict=True)
        return all(are_close(expected, session.run(None, each.feed)) for each, expected in pairs)

    def _compared(self, runnable: Runnable) -> list[SpeedUp]:
        """The speed-up over the best version at the sizes of the plan: twelve blocks if two and again two are promising."""
        for _ in range(_SCREENINGS):
            screening = self._speed_ups(self.best.runnable, runnable, _SCREENING_SECONDS, _SCREENING_BLOCKS)
            if not is_promising(screening):
                return screening
        return self._speed_ups(self.best.runnable, runnable)

    def confirmed(self, first: Version) -> list[SpeedUp]:
        """The speed-up of the best version over the first one, measured once more."""
        return self._speed_ups(first.runnable, self.best.runnable, max_seconds=CONFIRMATION_SECONDS)

    def _speed_ups(
        self,
        one: Runnable,
        other: Runnable,
        seconds: float = _SECONDS,
        blocks: int = BLOCKS,
        max_seconds: float = _MAX_SECONDS,
    ) -> list[SpeedUp]:
        """The speed-up of one model over another at the sizes of the plan, in `seconds` or more if a run takes long."""
        threads = self._first.options.threads
        seconds = max(seconds, 2 * blocks * _MIN_ROUNDS * self._run_seconds)
        return measure_speed_up(
            lambda: one.timed_session(threads),
            lambda: other.timed_session(threads),
            self._feeds,
            threads,
            seconds,
            blocks=blocks,
            max_seconds=max_seconds,
            max_blocks=blocks,
        )

    def _trial(self, variant: Variant, found: Sequence[SpeedUp], parts: Parts) -> Trial:
        runs, best = found[0].runs, self.best
        changes = variant.changes
        is_plan_of_same_ops = changes.besides_plan == Changes().besides_plan
        return Trial(
            variant,
            "faster" if is_faster(found) else "not faster",
            gain=runs.value,
            low=runs.low,
            high=runs.high,
            over_original=runs.value * best.over_original,
            over_first=None if best.over_first is None else runs.value * best.over_first,
            estimated_extra=total_seconds(parts) / self._first_seconds - 1 if is_plan_of_same_ops else None,
            observation=self._observation(changes, parts, found),
        )

    def _observation(self, changes: Changes, parts: Parts, found: Sequence[SpeedUp]) -> Observation | None:
        """The observation of prices; None if the variant and the best version differ otherwise than by the plan.

        The prices of the plan are means over several sizes, and a measurement at one of them is not.
        """
        best = self.best
        is_about_plan = changes.besides_plan == best.variant.changes.besides_plan and not changes.has_target_prices
        if not is_about_plan or len(found) > 1:
            return None
        runs = found[0].runs
        ratio = MeasuredRatio.of(runs.value, runs.low, runs.high, CONFIDENCE)
        if best.parts is not None:
            return Observation.of(best.parts, parts, ratio, self._deviation)
        if self._first_over_original is None:
            return None
        return Observation.of(self._first_parts, parts, ratio.over(self._first_over_original), self._deviation)

    def _deviation(self, part: PlanPart) -> float:
        """The standard deviation of the correction of a price."""
        if part.op is None or part.signature is None:
            return ESTIMATE_DEVIATION
        return TIMED_DEVIATION if self._first.has_times(part.op, part.signature) else ESTIMATE_DEVIATION


def _measured_ratio(job: Job) -> MeasuredRatio | None:
    """The measured speed-up of the first plan over the original; None if it was not measured."""
    sizes = job.measurement.sizes if job.measurement is not None else []
    return MeasuredRatio.of(sizes[0].speed_up, sizes[0].low, sizes[0].high, CONFIDENCE) if sizes else None


def is_promising(found: Sequence[SpeedUp]) -> bool:
    """Whether a variant may be faster: by its median at one size at least, and slower at none."""
    return _has_gain(found) and not any(each.runs.value < 1 / SMALLEST_GAIN for each in found)


def is_faster(found: Sequence[SpeedUp]) -> bool:
    """Whether a variant is faster beyond the noise at one size at least, and slower at none."""
    gains = [each for each in found if each.runs.verdict == "faster" and each.blocks >= _MIN_BLOCKS]
    return _has_gain(gains) and not any(each.is_slower for each in found)


def _has_gain(found: Sequence[SpeedUp]) -> bool:
    return any(each.runs.value >= SMALLEST_GAIN for each in found)


def are_close(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    """Whether outputs have equal types and shapes, and differ by less than 1 % of the largest magnitude of each."""
    return len(expected) == len(actual) and all(map(_is_close, expected, actual))


def _is_close(expected: Any, actual: Any) -> bool:
    is_array = isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray)
    if not is_array or expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.dtype.kind != "f" or not np.isfinite(expected).all():
        return bool(np.array_equal(expected, actual))
    magnitude = np.abs(expected).max(initial=0.0)
    return bool(np.abs(expected - actual).max(initial=0.0) <= _LARGEST_DIFFERENCE * magnitude)


__all__ = ["CONFIRMATION_SECONDS", "SMALLEST_GAIN", "Trials", "Version", "are_close", "is_faster", "is_promising"]
