"""The speed-up of models over a first one, measured in a few seconds: of a rewritten model over the original, and in `bench`.

Runs come in blocks, each with new sessions, so that no model keeps a better memory placement throughout. In a block the models,
such as A and B, run in the order A B B A, so that a steady drift cancels; the next block begins with B. With one thread, the
time of a run is the processor time of this thread, which other processes do not lengthen by much. With several, it is wall
time, and one session exists at a time, because idle threads poll for work on the same CPUs.

The machine is quiet enough if the original is as fast as itself in the same blocks, the null ratio, and if the blocks agree
on the speed-up. If not, the measurement goes on with further blocks. The times that limit a measurement are processor times.

Twelve blocks of a model whose run takes 0.1 s take ten seconds. Where runs are long, a measurement ends after three blocks or
more (early stopping) once the machine is quiet and the lower end of the interval shows half of the speed-up or more. Blocks
that agree by chance end it sooner, so intervals of fewer than twelve blocks are wider by `_EARLY_WIDTH`. Losses do not end it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any, TypeAlias

from msgspec import field
from msgspec.structs import replace

from layoutopt.record import Record
from layoutopt.timing.interleaved import IsOver, in_rounds, pinned, timed, without_collections
from layoutopt.timing.statistics import Ratio, is_quiet, null_ratio, ratio

SECONDS = 1.0
"""Time for the timed runs at the first sizes in the first blocks; half of it at each of the others."""

BLOCKS = 12
_MAX_BLOCKS = 36  # on a busy machine
_MIN_BLOCKS = 3
_MAX_SECONDS = 30.0  # after which no further block begins, for models that load or run slowly
_MAX_ROUNDS = 200  # in a block
_WARM_UP = 2  # runs: in the second, onnxruntime allocates its memory as the first one required
_EARLY_WIDTH = 1.15  # tests/unit/test_noisy_machines.py counts how often such intervals contain the truth, too

LONG_RUN = 0.02
"""Seconds of a run of the first model from which runs are long: there is no time for more than four of them in a block."""

Feed: TypeAlias = Mapping[str, Any]
Clock: TypeAlias = Callable[[], float]


Run: TypeAlias = Callable[[], object]
Create: TypeAlias = Callable[[], Sequence[Run]]
"""Creates a session of a model, and returns its run at every size."""


class SizedFeed(Record):
    """Inputs of both models, with the sizes of symbolic dimensions, by name, and the processor time of a run if it is known."""

    sizes: Mapping[str, int]
    feed: Feed
    seconds: float = 0.0


class SpeedUp(Record):
    """A measured speed-up; seconds are medians of the blocks, those of runs of the fastest runs in them."""

    before: float  # seconds of a run of the original
    after: float  # and of the rewritten model
    runs: Ratio
    null: Ratio  # the time of the original divided by its own in the neighbouring rounds
    creation_after: float  # seconds of the creation of a session of the rewritten model
    creation: float  # the median ratio of the times of session creation
    blocks: int
    sizes: Mapping[str, int] = field(default_factory=dict)  # of symbolic dimensions, by name

    @property
    def disturbance(self) -> str:
        """The reason why the machine was too busy for a measurement; empty if it was not."""
        null, runs = self.null, self.runs
        if not is_quiet(null, runs.low - 1):
            return f"the original is {null.low:.2f} to {null.high:.2f} times as fast as itself"
        if not runs.is_precise:
            disagree = f"{runs.disturbed} of {runs.blocks} blocks disagree with the fastest runs"
            return f"the speed-up may be {runs.low:.2f} to {runs.high:.2f}, and {disagree}"
        return ""


class Block(Record):
    """The times of one block, in seconds."""

    created: list[list[float]]  # of session creation, per model
    runs: list[list[list[float]]]  # per model and size


class _Measurement(Record):
    """Models, the number of sizes at which they run, and the clocks.

    If it is paired, the sessions of all models exist at the same time, and all times count. Otherwise one session exists at a
    time, and the time of its fastest run counts.
    """

    models: Sequence[Create]
    num_sizes: int
    clock: Clock  # of runs and session creation
    budget_clock: Clock  # of the limits
    is_paired: bool

    def block(self, seconds: float, starts_last: bool) -> Block:
        """The times of one block, with some seconds for the timed runs at the first size; the last model may run first."""
        order = list(range(len(self.models)))[:: -1 if starts_last else 1]
        turns = [order] if self.is_paired else [[number] for number in (*order, *reversed(order))]
        block = Block([[] for _ in order], [[[] for _ in range(self.num_sizes)] for _ in order])
        runs: dict[int, Sequence[Run]] = {}
        for turn in turns:
            if runs.keys() != set(turn):
                runs = {}  # the session is freed before the next one exists
                runs = {number: self._created(number, block) for number in turn}
            self._run(runs, block, seconds / len(turns))
        return block

    def _created(self, number: int, block: Block) -> Sequence[Run]:
        begin = self.clock()
        runs = self.models[number]()
        block.created[number].append(self.clock() - begin)
        return runs

    def _run(self, runs: Mapping[int, Sequence[Run]], block: Block, seconds: float) -> None:
        """Add the times of sessions in rounds at each size, after warm-up runs."""
        for size in range(self.num_sizes):
            actions = [timed(each[size], self.clock) for each in runs.values()]
            in_rounds(actions, lambda done, passed: done >= _WARM_UP)
            limit = seconds / (2 if size else 1)
            rounds = in_rounds(actions, _ends_after(limit), clock=self.budget_clock)
            for number, times in zip(runs, rounds, strict=True):
                block.runs[number][size] += times if self.is_paired else [min(times)]


def measure_in_turns(
    models: Sequence[Create],
    num_sizes: int = 1,
    threads: int = 1,
    seconds: float = SECONDS,
    clock: Clock | None = None,
    max_seconds: float = _MAX_SECONDS,
    is_long: bool = False,
) -> list[Block]:
    """The times of models in turns, in more blocks on a machine that is too busy for a speed-up over the first model.

    Args:
        models: create sessions.
        num_sizes: the number of sizes at which each model runs.
        threads: threads of the sessions; with one, the process is pinned to one CPU.
        seconds: time for the timed runs at the first size, in the first blocks.
        clock: the clock of everything, in seconds; by default those of the module's docstring.
        max_seconds: the processor time per thread after which no further block begins; there are three blocks at least.
        is_long: whether runs are long, so that the measurement may stop early.
    """
    is_paired = threads == 1
    budget_clock = clock or (lambda: process_time() / threads)
    clock = clock or (thread_time if is_paired else perf_counter)
    measurement = _Measurement(models, num_sizes, clock, budget_clock, is_paired)
    found: list[Block] = []
    with pinned(threads), without_collections():
        begin = budget_clock()
        while True:
            found.append(measurement.block(seconds / BLOCKS, len(found) % 2 == 1))
            if len(found) < _MIN_BLOCKS:
                continue
            is_full = len(found) % BLOCKS == 0
            checked = range(1, len(models)) if is_full or is_long else ()
            others = [each for number in checked for each in speed_ups(found, number)]
            is_measured = not any(each.disturbance for each in others)
            is_enough = is_full and (is_measured or len(found) == _MAX_BLOCKS)
            # More blocks would hardly change that it is a speed-up.
            may_stop_early = is_long and is_measured and all(each.runs.low**2 > each.runs.value for each in others)
            if is_enough or may_stop_early or budget_clock() - begin >= max_seconds:
                return found


def measure_speed_up(
    original: Callable[[], Any],
    rewritten: Callable[[], Any],
    feeds: Sequence[SizedFeed],
    threads: int = 1,
    seconds: float = SECONDS,
    **limits: Any,
) -> list[SpeedUp]:
    """The speed-up at every size, of models whose sessions the functions create; the limits are those of `measure_in_turns`."""

    def create(model: Callable[[], Any]) -> Sequence[Run]:
        session = model()
        return [partial(session.run, None, each.feed) for each in feeds]

    models = [partial(create, each) for each in (original, rewritten)]
    blocks = measure_in_turns(models, len(feeds), threads, seconds, **limits)
    return [replace(found, sizes=each.sizes) for found, each in zip(speed_ups(blocks, 1), feeds, strict=True)]


def speed_ups(blocks: Sequence[Block], number: int) -> list[SpeedUp]:
    """The speed-up of a model over the first one at every size."""
    pairs = [(block.created[0], block.created[number]) for block in blocks]
    created = median(min(after) for _, after in pairs)
    creation = median(before / after for both in pairs for before, after in zip(*both, strict=False))
    found = []
    for size in range(len(blocks[0].runs[0])):
        before, after = ([block.runs[each][size] for block in blocks] for each in (0, number))
        medians = median(map(min, before)), median(map(min, after))
        runs = ratio(before, after)
        if len(blocks) < BLOCKS and runs.value > 1:  # a loss takes all blocks that there is time for
            runs = ratio(before, after, _EARLY_WIDTH)
        found.append(SpeedUp(*medians, runs, null_ratio(before), created, creation, len(blocks)))
    return found


def _ends_after(seconds: float) -> IsOver:
    """The end after an even number of rounds, when the time is over or there are many rounds."""
    return lambda done, passed: done > 0 and done % 2 == 0 and (passed >= seconds or done >= _MAX_ROUNDS)
