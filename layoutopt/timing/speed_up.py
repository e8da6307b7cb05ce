"""The speed-up of models over a first one, measured in a few seconds: of a rewritten model over the original, and in `bench`.

Runs come in blocks, each with new sessions, so that no model keeps a better memory placement throughout. In a block the models,
such as A and B, run in the order A B B A, so that a steady drift cancels; the next block begins with B. With one thread, the
time of a run is the processor time of this thread, which other processes do not lengthen by much. With several, it is wall
time, and one session exists at a time, because idle threads poll for work on the same CPUs: the runs of A, those of B, and in
the next block those of B first. Large models are measured like that with one thread, too.

The first run of a session does not count: it allocates memory and finds no weights in the caches. In the second run,
onnxruntime allocates in one piece what the first one required. If that is new memory of the system, whose page faults lengthen
a run by up to a third, the second run does not count either.

The machine is quiet enough if the original is as fast as itself in the same blocks, the null ratio, and if the blocks agree
on the speed-up. If not, the measurement goes on with further blocks. In the end, a wide interval counts if its lower end shows
half of the speed-up and it contains the ratio of the fastest runs. The times that limit a measurement are processor times.

A measurement ends after three blocks or more (early stopping) once the machine is quiet and the lower end of the interval shows
half of the speed-up or more. Blocks that agree by chance end it sooner, so intervals of fewer than twelve blocks are wider by
`_EARLY_WIDTH`. Losses do not end it.
"""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import TypeAlias, TypeVar

from layoutopt.record import Record
from layoutopt.timing.interleaved import Action, in_rounds, page_faults, pinned, timed, without_collections
from layoutopt.timing.statistics import Ratio, null_ratio, ratio

_BLOCKS = 12
_MAX_BLOCKS = 36  # on a busy machine
_MIN_BLOCKS = 3
_MAX_SECONDS = 30.0  # after which no further block begins, for models that load or run slowly
_MAX_ROUNDS = 200  # in a block
_MAX_FAULTS = 2000  # per second of a second round that counts: 0.5 % of its time, at 2.5 us for a page fault
_MAX_NULL_WIDTH = 0.03  # of the interval of the null ratio on a quiet machine
_EARLY_WIDTH = 1.15  # tests/unit/test_noisy_machines.py counts how often such intervals contain the truth, too

Clock: TypeAlias = Callable[[], float]
Run: TypeAlias = Callable[[], object]
S = TypeVar("S")


class SpeedUp(Record):
    """A measured speed-up; seconds are medians of the blocks, those of runs of the fastest runs in them."""

    before: float  # seconds of a run of the first model
    after: float  # and of the other one
    fastest: float  # the ratio of the fastest runs of all blocks
    runs: Ratio
    null: Ratio  # the time of the first model divided by its own in the neighbouring rounds
    creation_after: float  # seconds of the creation of a session of the other model
    creation: float  # the median ratio of the times of session creation

    @property
    def disturbance(self) -> str:
        """The reason why the machine was too busy for a measurement; empty if it was not."""
        null, runs = self.null, self.runs
        # or as narrow as the gain or loss
        is_narrow = null.high - null.low <= max(_MAX_NULL_WIDTH, runs.low - 1, 1 - runs.high)
        if null.verdict != "no difference shown" or not is_narrow:
            return f"the original is {null.low:.2f} to {null.high:.2f} times as fast as itself"
        is_clear = runs.low**2 > runs.value and runs.low <= self.fastest <= runs.high
        if not runs.is_precise and not is_clear:
            disagree = f"{runs.disturbed} of {runs.blocks} blocks disagree with the fastest runs"
            return f"the speed-up may be {runs.low:.2f} to {runs.high:.2f}, and {disagree}"
        return ""


class Block(Record):
    """The times of one block, in seconds, per model."""

    created: list[float]  # of session creation
    runs: list[list[list[float]]]  # per size


def engine_clock(threads: int) -> Clock:
    """The clock of runs in other engines than onnxruntime, which may compute one thread's work in a thread of their own."""
    return process_time if threads == 1 else perf_counter


def measure_in_turns(
    models: Sequence[Callable[[], S]],
    runs_of: Callable[[S], Sequence[Run]],
    *,
    threads: int = 1,
    seconds: float = 1.0,
    clock: Clock | None = None,
    max_seconds: float = _MAX_SECONDS,
    is_paired: bool = True,
    stops_early: bool = False,
) -> list[Block]:
    """The times of models in turns, in more blocks on a machine that is too busy for a speed-up over the first model.

    Args:
        models: create sessions.
        runs_of: the runs of a session at every size, which may take time; the first session is one of the first model.
        threads: threads of the sessions; with one, the process is pinned to one CPU.
        seconds: time for the timed runs at the first size in the first blocks; half of it at each of the others.
        clock: the clock of everything, in seconds; by default those of the module's docstring.
        max_seconds: the processor time per thread after which no further block begins; there are three blocks at least.
        is_paired: whether sessions of all models exist at the same time, if there is one thread.
        stops_early: whether it may end after fewer than twelve blocks.
    """
    is_paired = is_paired and threads == 1
    budget_clock = clock or (lambda: process_time() / threads)
    clock = clock or (thread_time if threads == 1 else perf_counter)

    def add_times(block: Block, numbers: Sequence[int], limit: float) -> None:
        """Add the times of new sessions of some models, which are freed at the end."""
        runs = []
        for number in numbers:
            begin = clock()
            session = models[number]()
            block.created[number] = clock() - begin
            runs.append(runs_of(session))
        for size, each in enumerate(zip(*runs, strict=True)):
            actions = [timed(run, clock) for run in each]
            rounds = _warm_rounds(actions, limit / (2 if size else 1), budget_clock)
            for number, times in zip(numbers, rounds, strict=True):
                block.runs[number].append(times)

    found: list[Block] = []
    with pinned(threads), without_collections():
        begin = budget_clock()
        while True:
            order = list(range(len(models)))[:: -1 if len(found) % 2 else 1]
            turns = [order] if is_paired else [[number] for number in order]
            found.append(Block([0.0 for _ in models], [[] for _ in models]))
            for turn in turns:
                add_times(found[-1], turn, seconds / _BLOCKS / len(turns))
            if len(found) < _MIN_BLOCKS:
                continue
            is_full = len(found) % _BLOCKS == 0
            checked = range(1, len(models)) if is_full or stops_early else ()
            others = [each for number in checked for each in speed_ups(found, number)]
            is_measured = all(each.runs.is_precise and not each.disturbance for each in others)
            is_enough = is_full and (is_measured or len(found) == _MAX_BLOCKS)
            # More blocks would hardly change that it is a speed-up.
            is_clear = stops_early and is_measured and all(each.runs.low**2 > each.runs.value for each in others)
            if is_enough or is_clear or budget_clock() - begin >= max_seconds:
                return found


def _warm_rounds(actions: Sequence[Action], seconds: float, clock: Clock) -> list[list[float]]:
    """The times of an even number of rounds, until the time is over, without the first one or two."""
    starts: list[tuple[float, float]] = []  # of every round: the seconds so far, and the page faults

    def num_cold() -> int:
        (begin, before), (end, after) = starts[1:3]
        return 1 if after - before <= _MAX_FAULTS * (end - begin) else 2

    def is_over(done: int, passed: float) -> bool:
        starts.append((passed, page_faults()))
        if done < 2:
            return False
        warm = done - num_cold()
        return warm > 0 and warm % 2 == 0 and (passed - starts[num_cold()][0] >= seconds or warm >= _MAX_ROUNDS)

    rounds = in_rounds(actions, is_over, clock=clock)
    return [times[num_cold() :] for times in rounds]


def speed_ups(blocks: Sequence[Block], number: int) -> list[SpeedUp]:
    """The speed-up of a model over the first one at every size."""
    created = median(block.created[number] for block in blocks)
    creation = median(block.created[0] / block.created[number] for block in blocks)
    found = []
    for size in range(len(blocks[0].runs[0])):
        before, after = ([block.runs[each][size] for block in blocks] for each in (0, number))
        first, other = list(map(min, before)), list(map(min, after))
        runs = ratio(before, after)
        if len(blocks) < _BLOCKS and runs.value > 1:  # a loss takes all blocks that there is time for
            runs = ratio(before, after, _EARLY_WIDTH)
        medians, fastest = (median(first), median(other)), min(first) / min(other)
        found.append(SpeedUp(*medians, fastest, runs, null_ratio(before), created, creation))
    return found
