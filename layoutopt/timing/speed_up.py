"""The speed-up of a rewritten model over the original in stock onnxruntime, measured in a few seconds.

The two models run in turns. Runs come in blocks with new sessions, so that neither model keeps a better memory placement
throughout. With one thread, the time of a run is the processor time of this thread, which other processes do not
lengthen by much. With several, it is wall time, and one session exists at a time, because idle threads poll for work on the
same CPUs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any, Protocol, TypeAlias

from layoutopt.timing.interleaved import IsOver, in_rounds, pinned, timed, without_collections
from layoutopt.timing.statistics import Blocks, MedianEstimate, Ratio, median_estimate, ratio

SECONDS = 1.0
"""Time for the timed runs at the first sizes; half of it at each of the others."""

BLOCKS = 6
"""Blocks with new sessions: the smallest number with a confidence interval of 95 %."""

_MIN_BLOCKS = 2
_MAX_SECONDS = 3.0  # after which no further block begins, for models that load or run slowly
_CLEAR_SECONDS = 1.5  # after which a clear result ends the measurement: small models have had six blocks by then
_CLEAR_BLOCKS = 3
_CLEAR_SPEED_UP = 1.05  # in each of the blocks, at every size
_MAX_ROUNDS = 200  # in a block

_SLOWER = 0.99  # a median below it counts as slower, however wide its confidence interval

Feed: TypeAlias = Mapping[str, Any]
Clock: TypeAlias = Callable[[], float]


class Runs(Protocol):
    """A session."""

    def run(self, names: Sequence[str] | None, feeds: Feed) -> Sequence[Any]:
        """The outputs."""


Create: TypeAlias = Callable[[], Runs]
"""Creates a session of a model."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a measurement.

    Attributes:
        run: seconds before and after a run.
        creation: seconds before and after session creation.
        is_paired: whether the sessions of both models exist at the same time.
    """

    run: Clock
    creation: Clock
    is_paired: bool

    @classmethod
    def of(cls, threads: int, clock: Clock | None) -> "Clocks":
        """The clocks for a number of threads; `clock` replaces all of them."""
        return cls(clock or (thread_time if threads == 1 else perf_counter), clock or perf_counter, threads == 1)


@dataclass(frozen=True, slots=True)
class SizedFeed:
    """Inputs of both models, with the sizes of symbolic dimensions, by name."""

    sizes: Mapping[str, int]
    feed: Feed


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """A measured speed-up.

    Attributes:
        sizes: of symbolic dimensions, by name.
        before: seconds of a run of the original.
        after: seconds of a run of the rewritten model.
        runs: the time of the original divided by that of the rewritten model, round by round.
        creation: the same for session creation.
        blocks: the number of sessions of each model.
    """

    sizes: Mapping[str, int]
    before: MedianEstimate
    after: MedianEstimate
    runs: Ratio
    creation: Ratio
    blocks: int

    @property
    def is_slower(self) -> bool:
        """Whether a run of the rewritten model takes longer."""
        return self.runs.verdict == "slower" or self.runs.median < _SLOWER

    @property
    def is_faster(self) -> bool:
        """Whether runs are faster, or session creation is and runs are not slower."""
        return not self.is_slower and "faster" in (self.runs.verdict, self.creation.verdict)


def measure_speed_up(
    original: Create,
    rewritten: Create,
    feeds: Sequence[SizedFeed],
    threads: int = 1,
    seconds: float = SECONDS,
    clock: Clock | None = None,
    blocks: int = BLOCKS,
    max_seconds: float = _MAX_SECONDS,
    *,
    ends_when_clear: bool = False,
) -> list[SpeedUp]:
    """The speed-up at every size.

    Args:
        original: creates a session of the original.
        rewritten: creates a session of the rewritten model.
        feeds: the inputs at every size.
        threads: threads of the sessions; with one, the process is pinned to one CPU.
        seconds: time for the timed runs at the first sizes.
        clock: the clock of runs and session creation, in seconds; by default that of the module's docstring.
        blocks: the number of blocks with new sessions.
        max_seconds: the time after which no further block begins.
        ends_when_clear: whether no further block begins after 1.5 s if the rewritten model is clearly faster.
    """
    models = [original, rewritten]
    clocks = Clocks.of(threads, clock)
    created: list[list[list[float]]] = [[], []]
    runs_of: list[list[list[list[float]]]] = [[[] for _ in feeds] for _ in models]
    begin, block = perf_counter(), 0
    with pinned(threads), without_collections():
        while block < blocks and (block < _MIN_BLOCKS or perf_counter() - begin < max_seconds):
            if ends_when_clear and perf_counter() - begin > _CLEAR_SECONDS and _is_clearly_faster(runs_of):
                break
            for number, creation, runs in _block(models, feeds, clocks, seconds / blocks, block % 2 == 1):
                created[number].append([creation])
                for size, times in enumerate(runs):
                    runs_of[number][size].append(times)
            block += 1
    creation_ratio = ratio(created[0], created[1])
    return [
        SpeedUp(
            each.sizes, median_estimate(before), median_estimate(after), ratio(before, after), creation_ratio, block
        )
        for each, before, after in zip(feeds, *runs_of, strict=True)
    ]


def _is_clearly_faster(runs_of: Sequence[Sequence[Blocks]]) -> bool:
    """Whether there are enough blocks, and the rewritten model is clearly faster in each of them, at every size."""
    pairs = (zip(before, after, strict=True) for before, after in zip(*runs_of, strict=True))
    speed_ups = [[median(a / b for a, b in zip(*block, strict=True)) for block in blocks] for blocks in pairs]
    return all(len(each) >= _CLEAR_BLOCKS and min(each) >= _CLEAR_SPEED_UP for each in speed_ups)


def _block(
    models: Sequence[Create], feeds: Sequence[SizedFeed], clocks: Clocks, seconds: float, starts_last: bool
) -> Iterable[tuple[int, float, list[list[float]]]]:
    """One block: for every model, its number, the seconds of session creation, and the times of its runs at every size."""
    order = list(enumerate(models))
    if starts_last:
        order.reverse()
    if clocks.is_paired:
        sessions = [(number, *_created(create, clocks)) for number, create in order]
        times = _timed([session for _, _, session in sessions], feeds, seconds, clocks.run)
        return [(number, creation, times[each]) for each, (number, creation, _) in enumerate(sessions)]
    found = []
    for number, create in order:
        creation, session = _created(create, clocks)
        (times_of_one,) = _timed([session], feeds, seconds / len(models), clocks.run)
        found.append((number, creation, times_of_one))
        del session
    return _as_long(found)


def _created(create: Create, clocks: Clocks) -> tuple[float, Runs]:
    begin = clocks.creation()
    session = create()
    return clocks.creation() - begin, session


def _timed(
    sessions: Sequence[Runs], feeds: Sequence[SizedFeed], seconds: float, clock: Clock
) -> list[list[list[float]]]:
    """The times of every session at every size."""
    found: list[list[list[float]]] = [[] for _ in sessions]
    for number, each in enumerate(feeds):
        actions = [timed(partial(session.run, None, each.feed), clock) for session in sessions]
        limit = seconds if number == 0 else seconds / 2
        in_rounds(actions, _ends_after(1, 0.0))  # warm-up
        for session, times in enumerate(in_rounds(actions, _ends_after(_MAX_ROUNDS, limit)).times):
            found[session].append(times)
    return found


def _as_long(found: list[tuple[int, float, list[list[float]]]]) -> list[tuple[int, float, list[list[float]]]]:
    """The same with equally many times of each model, which pair them."""
    shortest = [min(map(len, times)) for times in zip(*(runs for _, _, runs in found), strict=True)]
    return [
        (number, creation, [times[:count] for times, count in zip(runs, shortest, strict=True)])
        for number, creation, runs in found
    ]


def _ends_after(rounds: int, seconds: float) -> IsOver:
    return lambda done, passed: done >= rounds or (done >= 1 and passed >= seconds)


__all__ = ["Feed", "SizedFeed", "SpeedUp", "measure_speed_up"]
