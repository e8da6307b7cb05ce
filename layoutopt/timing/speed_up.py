"""The speed-up of a rewritten model over the original in stock onnxruntime, measured in a few seconds.

Runs come in blocks, each with new sessions, so that neither model keeps a better memory placement throughout. In a block the
two models, A and B, run in the order A B B A, so that a steady drift cancels; the next block begins with B. With one thread,
the time of a run is the processor time of this thread, which other processes do not lengthen by much. With several, it is
wall time, and one session exists at a time, because idle threads poll for work on the same CPUs.

The machine is quiet enough if the original is as fast as itself in the same blocks, the null ratio, and if the blocks agree
on the speed-up. If not, the measurement goes on with further blocks. The times that limit a measurement are processor times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol, TypeAlias

from layoutopt.timing.interleaved import IsOver, in_rounds, pinned, timed, without_collections
from layoutopt.timing.statistics import Ratio, is_quiet, null_ratio, ratio

SECONDS = 1.0
"""Time for the timed runs at the first sizes in the first blocks; half of it at each of the others."""

BLOCKS = 12
_MAX_BLOCKS = 36  # on a busy machine
_MIN_BLOCKS = 3
_MAX_SECONDS = 30.0  # after which no further block begins, for models that load or run slowly
_MAX_ROUNDS = 200  # in a block
_WARM_UP = 2  # runs: the second one of convnext_tiny, in turns with another model, takes a tenth longer than later ones

Feed: TypeAlias = Mapping[str, Any]
Clock: TypeAlias = Callable[[], float]


class Runs(Protocol):
    """A session."""

    def run(self, names: Sequence[str] | None, feeds: Feed) -> Sequence[Any]:
        """The outputs."""


Create: TypeAlias = Callable[[], Runs]
"""Creates a session of a model."""


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
        before: seconds of a run of the original, the median of the fastest runs of the blocks.
        after: the same for the rewritten model.
        runs: the time of the original divided by that of the rewritten model.
        null: the time of the original divided by its own in the neighbouring rounds.
        creation: the median ratio of the times of session creation.
        blocks: the number of blocks.
    """

    sizes: Mapping[str, int]
    before: float
    after: float
    runs: Ratio
    null: Ratio
    creation: float
    blocks: int

    @property
    def disturbance(self) -> str:
        """The reason why the machine was too busy for a measurement; empty if it was not."""
        null, runs = self.null, self.runs
        if not is_quiet(null):
            return f"the original is {null.low:.2f} to {null.high:.2f} times as fast as itself"
        if not runs.is_precise:
            disagree = f"{runs.disturbed} of {runs.blocks} blocks disagree with the fastest runs"
            return f"the speed-up may be {runs.low:.2f} to {runs.high:.2f}, and {disagree}"
        return ""

    @property
    def is_slower(self) -> bool:
        """Whether a loss is shown: the whole interval of the speed-up is below 1."""
        return self.runs.verdict == "slower"


@dataclass(frozen=True, slots=True)
class _Block:
    """The times of one block, in seconds.

    Attributes:
        created: of session creation, one list per model.
        runs: of runs, one list of lists per model: one per size.
    """

    created: list[list[float]]
    runs: list[list[list[float]]]


@dataclass(frozen=True, slots=True)
class _Subjects:
    """The two models, their inputs, and the clocks.

    Attributes:
        models: create sessions of the original and of the rewritten model.
        feeds: the inputs at every size.
        clock: of runs and session creation.
        budget_clock: of the limits.
    """

    models: Sequence[Create]
    feeds: Sequence[SizedFeed]
    clock: Clock
    budget_clock: Clock

    def paired_block(self, seconds: float, starts_last: bool) -> _Block:
        """A block in which the sessions of both models exist at the same time."""
        block = self._empty_block()
        order = [1, 0] if starts_last else [0, 1]
        sessions = {number: self._created(number, block) for number in order}
        for size, (each, limit) in enumerate(self._limits(seconds)):
            actions = [timed(partial(sessions[number].run, None, each.feed), self.clock) for number in (0, 1)]
            in_rounds(actions, _ends_after(_WARM_UP, 0.0))
            found = in_rounds(actions, _ends_after(2, limit), starts_last=starts_last, clock=self.budget_clock)
            for number, times in enumerate(found.times):
                block.runs[number][size] += times
        return block

    def sequential_block(self, seconds: float, starts_last: bool) -> _Block:
        """A block in which one session exists at a time; a time is that of the fastest of several runs."""
        block = self._empty_block()
        session, last = None, None
        for number in [1, 0, 0, 1] if starts_last else [0, 1, 1, 0]:
            if number != last:
                session = None  # freed before the next one exists
                session, last = self._created(number, block), number
            assert session is not None
            for size, (each, limit) in enumerate(self._limits(seconds / 4)):
                action = [timed(partial(session.run, None, each.feed), self.clock)]
                in_rounds(action, _ends_after(_WARM_UP, 0.0))
                found = in_rounds(action, _ends_after(1, limit), clock=self.budget_clock)
                block.runs[number][size].append(min(found.times[0]))
        return block

    def _empty_block(self) -> _Block:
        return _Block([[], []], [[[] for _ in self.feeds] for _ in self.models])

    def _limits(self, seconds: float) -> Iterator[tuple[SizedFeed, float]]:
        """The inputs of every size and the time for them."""
        for number, each in enumerate(self.feeds):
            yield each, seconds if number == 0 else seconds / 2

    def _created(self, number: int, block: _Block) -> Runs:
        begin = self.clock()
        session = self.models[number]()
        block.created[number].append(self.clock() - begin)
        return session


def measure_speed_up(
    original: Create,
    rewritten: Create,
    feeds: Sequence[SizedFeed],
    threads: int = 1,
    seconds: float = SECONDS,
    clock: Clock | None = None,
    blocks: int = BLOCKS,
    max_seconds: float = _MAX_SECONDS,
    max_blocks: int = _MAX_BLOCKS,
) -> list[SpeedUp]:
    """The speed-up at every size.

    Args:
        original: creates a session of the original.
        rewritten: creates a session of the rewritten model.
        feeds: the inputs at every size.
        threads: threads of the sessions; with one, the process is pinned to one CPU.
        seconds: time for the timed runs at the first sizes.
        clock: the clock of everything, in seconds; by default those of the module's docstring.
        blocks: the number of blocks on a quiet machine.
        max_seconds: the processor time per thread after which no further block begins; there are three blocks at least.
        max_blocks: the number of blocks on a busy machine.
    """
    subjects = _Subjects(
        [original, rewritten],
        feeds,
        clock or (thread_time if threads == 1 else perf_counter),
        clock or (lambda: process_time() / threads),
    )
    make = subjects.paired_block if threads == 1 else subjects.sequential_block
    found: list[_Block] = []
    with pinned(threads), without_collections():
        begin, planned = subjects.budget_clock(), blocks
        while True:
            found.append(make(seconds / blocks, len(found) % 2 == 1))
            is_late = len(found) >= _MIN_BLOCKS and subjects.budget_clock() - begin >= max_seconds
            if is_late or len(found) >= planned:
                speed_ups = _speed_ups(feeds, found)
                if is_late or planned >= max_blocks or not any(each.disturbance for each in speed_ups):
                    return speed_ups
                planned = min(planned + blocks, max_blocks)


def _speed_ups(feeds: Sequence[SizedFeed], blocks: Sequence[_Block]) -> list[SpeedUp]:
    creation = median(before / after for block in blocks for before, after in zip(*block.created, strict=False))
    found = []
    for size, each in enumerate(feeds):
        before, after = ([block.runs[number][size] for block in blocks] for number in (0, 1))
        null = null_ratio(before)
        assert null is not None, "each block has two rounds at least"
        medians = [median(map(min, all_times)) for all_times in (before, after)]
        found.append(SpeedUp(each.sizes, medians[0], medians[1], ratio(before, after), null, creation, len(blocks)))
    return found


def _ends_after(rounds: int, seconds: float) -> IsOver:
    """The end after a multiple of a number of rounds, when the time is over or there are many rounds."""
    return lambda done, passed: done > 0 and done % rounds == 0 and (passed >= seconds or done >= _MAX_ROUNDS)


__all__ = ["BLOCKS", "Feed", "SizedFeed", "SpeedUp", "measure_speed_up"]
