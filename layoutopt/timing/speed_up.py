"""The speed-up of models over a first one, measured in a few seconds: of a rewritten model over the original, and in `bench`.

Runs come in blocks, each with new sessions, so that no model keeps a better memory placement throughout. In a block the models,
such as A and B, run in the order A B B A, so that a steady drift cancels; the next block begins with B. With one thread, the
time of a run is the processor time of this thread, which other processes do not lengthen by much. With several, it is wall
time, and one session exists at a time, because idle threads poll for work on the same CPUs.

The machine is quiet enough if the original is as fast as itself in the same blocks, the null ratio, and if the blocks agree
on the speed-up. If not, the measurement goes on with further blocks. The times that limit a measurement are processor times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol, TypeAlias

from layoutopt.timing.interleaved import Action, IsOver, in_rounds, pinned, timed, without_collections
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


Create: TypeAlias = Callable[[], Sequence[Callable[[], object]]]
"""Creates a session of a model, and returns its run at every size."""


@dataclass(frozen=True, slots=True)
class SizedFeed:
    """Inputs of both models, with the sizes of symbolic dimensions, by name."""

    sizes: Mapping[str, int]
    feed: Feed


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """A measured speed-up.

    Attributes:
        before: seconds of a run of the original, the median of the fastest runs of the blocks.
        after: the same for the rewritten model.
        runs: the time of the original divided by that of the rewritten model.
        null: the time of the original divided by its own in the neighbouring rounds.
        creation: the median ratio of the times of session creation.
        blocks: the number of blocks.
        sizes: of symbolic dimensions, by name.
    """

    before: float
    after: float
    runs: Ratio
    null: Ratio
    creation: float
    blocks: int
    sizes: Mapping[str, int] = field(default_factory=dict)

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
class Block:
    """The times of one block, in seconds.

    Attributes:
        created: of session creation, one list per model.
        runs: of runs, one list of lists per model: one per size.
    """

    created: list[list[float]]
    runs: list[list[list[float]]]


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Models, the number of sizes at which they run, and the clocks.

    Attributes:
        models: create sessions.
        num_sizes: the number of sizes.
        clock: of runs and session creation.
        budget_clock: of the limits.
    """

    models: Sequence[Create]
    num_sizes: int
    clock: Clock
    budget_clock: Clock

    def paired_block(self, seconds: float, starts_last: bool) -> Block:
        """A block in which the sessions of all models exist at the same time."""
        block, numbers = self._empty_block(), range(len(self.models))
        runs = {number: self._created(number, block) for number in (reversed(numbers) if starts_last else numbers)}
        for size in range(self.num_sizes):
            actions = [timed(runs[number][size], self.clock) for number in numbers]
            for number, times in enumerate(self._timed(actions, 2, size, seconds, starts_last)):
                block.runs[number][size] += times
        return block

    def sequential_block(self, seconds: float, starts_last: bool) -> Block:
        """A block in which one session exists at a time; a time is that of the fastest of several runs."""
        block, numbers = self._empty_block(), list(range(len(self.models)))[:: -1 if starts_last else 1]
        runs: Sequence[Callable[[], object]] = ()
        last = None
        for number in [*numbers, *reversed(numbers)]:
            if number != last:
                runs = ()  # the session is freed before the next one exists
                runs, last = self._created(number, block), number
            for size, run in enumerate(runs):
                (times,) = self._timed([timed(run, self.clock)], 1, size, seconds / (2 * len(numbers)))
                block.runs[number][size].append(min(times))
        return block

    def _timed(
        self, actions: Sequence[Action], rounds: int, size: int, seconds: float, starts_last: bool = False
    ) -> list[list[float]]:
        """The times of actions after warm-up runs, in a multiple of a number of rounds."""
        in_rounds(actions, _ends_after(_WARM_UP, 0.0))
        end = _ends_after(rounds, seconds / (2 if size else 1))
        return in_rounds(actions, end, starts_last=starts_last, clock=self.budget_clock)

    def _empty_block(self) -> Block:
        return Block([[] for _ in self.models], [[[] for _ in range(self.num_sizes)] for _ in self.models])

    def _created(self, number: int, block: Block) -> Sequence[Callable[[], object]]:
        begin = self.clock()
        runs = self.models[number]()
        block.created[number].append(self.clock() - begin)
        return runs


def measure_in_turns(
    models: Sequence[Create],
    num_sizes: int = 1,
    threads: int = 1,
    seconds: float = SECONDS,
    clock: Clock | None = None,
    blocks: int = BLOCKS,
    max_seconds: float = _MAX_SECONDS,
    max_blocks: int = _MAX_BLOCKS,
) -> list[Block]:
    """The times of models in turns, in more blocks on a machine that is too busy for a speed-up over the first model.

    Args:
        models: create sessions.
        num_sizes: the number of sizes at which each model runs.
        threads: threads of the sessions; with one, the process is pinned to one CPU.
        seconds: time for the timed runs at the first size.
        clock: the clock of everything, in seconds; by default those of the module's docstring.
        blocks: the number of blocks on a quiet machine.
        max_seconds: the processor time per thread after which no further block begins; there are three blocks at least.
        max_blocks: the number of blocks on a busy machine.
    """
    subjects = _Subjects(
        models,
        num_sizes,
        clock or (thread_time if threads == 1 else perf_counter),
        clock or (lambda: process_time() / threads),
    )
    make = subjects.paired_block if threads == 1 else subjects.sequential_block
    found: list[Block] = []
    with pinned(threads), without_collections():
        begin, planned = subjects.budget_clock(), blocks
        while True:
            found.append(make(seconds / blocks, len(found) % 2 == 1))
            is_late = len(found) >= _MIN_BLOCKS and subjects.budget_clock() - begin >= max_seconds
            if is_late or len(found) >= planned:
                others = range(1, len(models))
                if is_late or planned >= max_blocks or not any(_is_disturbed(found, number) for number in others):
                    return found
                planned = min(planned + blocks, max_blocks)


def measure_speed_up(
    original: Callable[[], Runs],
    rewritten: Callable[[], Runs],
    feeds: Sequence[SizedFeed],
    threads: int = 1,
    seconds: float = SECONDS,
    **limits: Any,
) -> list[SpeedUp]:
    """The speed-up at every size.

    Args:
        original: creates a session of the original.
        rewritten: creates a session of the rewritten model.
        feeds: the inputs at every size.
        threads: threads of the sessions.
        seconds: time for the timed runs at the first sizes.
        limits: further arguments of `measure_in_turns`.
    """

    def create(model: Callable[[], Runs]) -> Sequence[Callable[[], object]]:
        session = model()
        return [partial(session.run, None, each.feed) for each in feeds]

    models = [partial(create, each) for each in (original, rewritten)]
    blocks = measure_in_turns(models, len(feeds), threads, seconds, **limits)
    return [replace(found, sizes=each.sizes) for found, each in zip(speed_ups(blocks, 1), feeds, strict=True)]


def speed_ups(blocks: Sequence[Block], number: int) -> list[SpeedUp]:
    """The speed-up of a model over the first one at every size."""
    created = ([block.created[each] for block in blocks] for each in (0, number))
    pairs = zip(*created, strict=True)
    creation = median(before / after for both in pairs for before, after in zip(*both, strict=False))
    found = []
    for size in range(len(blocks[0].runs[0])):
        before, after = ([block.runs[each][size] for block in blocks] for each in (0, number))
        null = null_ratio(before)
        assert null is not None, "each block has two rounds at least"
        medians = [median(map(min, all_times)) for all_times in (before, after)]
        found.append(SpeedUp(medians[0], medians[1], ratio(before, after), null, creation, len(blocks)))
    return found


def _is_disturbed(blocks: Sequence[Block], number: int) -> bool:
    return any(each.disturbance for each in speed_ups(blocks, number))


def _ends_after(rounds: int, seconds: float) -> IsOver:
    """The end after a multiple of a number of rounds, when the time is over or there are many rounds."""
    return lambda done, passed: done > 0 and done % rounds == 0 and (passed >= seconds or done >= _MAX_ROUNDS)
