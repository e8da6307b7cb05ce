"""What is measured of each model: memory, creation, timed rounds, profile.

Rounds come in blocks. A block makes the sessions of all models anew, so that none has the better place in memory all along;
it runs them in turns while all are alive. A process of its own measures memory, a session of its own is profiled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from layoutopt.bench.inputs import Feed
from layoutopt.bench.memory import measure_memory
from layoutopt.bench.paired import Action, IsOver, Rounds, in_rounds
from layoutopt.bench.report import Memory, Profile
from layoutopt.bench.runtimes import Runtime, Session, first_run, open_session
from layoutopt.errors import ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.interface import Interface

Progress: TypeAlias = Callable[[str], None]

BLOCKS = 6  # the fewest that have a confidence interval of 95 %
FEWEST, MOST = 2, 1_000  # rounds in a block, where their number follows from the time
PROFILED = (3, 20, 2.0)  # runs with profiling: at least, at most, and the seconds after which it is enough


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in a runtime, and what it is run on."""

    label: str
    path: Path
    runtime: Runtime
    interface: Interface
    feed: Feed


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of all entries, in their order.

    Attributes:
        created: seconds for a session, a round per block.
        timed: seconds for a run, block by block.
        results: names, types and shapes of what came out.
        profiles: of the kernels.
    """

    created: list[Rounds]
    timed: list[Rounds]
    results: list[list[str]]
    profiles: list[Profile]


def weigh(entries: Sequence[Entry], threads: int, progress: Progress) -> list[Memory | ModelError]:
    """The memory of each, in a process of its own, or why it cannot be loaded or run."""
    found: list[Memory | ModelError] = []
    for entry in entries:
        progress(f"measuring the memory of {entry.path.name}")
        try:
            found.append(measure_memory(entry.path, entry.runtime.name, threads, entry.feed))
        except ModelError as error:
            found.append(error)
    return found


def measure(
    entries: Sequence[Entry], threads: int, warm_up: int, limits: Sequence[IsOver], progress: Progress
) -> Measured:
    """Measure everything but the memory.

    Args:
        entries: what to measure.
        threads: of each runtime.
        warm_up: rounds of each block that do not count.
        limits: when each block is over.
        progress: called with the name of each step.

    Raises:
        ModelError: a model cannot be loaded or run.
    """
    blocks = []
    for number, limit in enumerate(limits):
        progress(f"running in turns, block {number + 1} of {len(limits)}")
        blocks.append(_block(entries, threads, warm_up, limit, starts_last=number % 2 == 1))
    profiles = []
    for entry in entries:
        progress(f"profiling {entry.label}")
        profiles.append(_profile(entry, threads))
    return Measured([each[0] for each in blocks], [each[1] for each in blocks], blocks[-1][2], profiles)


def by_time(seconds: float) -> list[IsOver]:
    """Blocks that take so many seconds together, and have two rounds at least."""
    return [lambda done, passed: done >= MOST or (done >= FEWEST and passed >= seconds / BLOCKS)] * BLOCKS


def by_count(rounds: int) -> list[IsOver]:
    """Blocks that have so many rounds together."""
    blocks = min(BLOCKS, rounds)
    return [_after(rounds * (block + 1) // blocks - rounds * block // blocks) for block in range(blocks)]


def _after(rounds: int) -> IsOver:
    return lambda done, passed: done >= rounds


def _block(
    entries: Sequence[Entry], threads: int, warm_up: int, limit: IsOver, starts_last: bool
) -> tuple[Rounds, Rounds, list[list[str]]]:
    """Creation, timed rounds, and what came out, in words."""
    sessions: dict[str, Session] = {}
    created = in_rounds([_creation(sessions, entry, threads) for entry in entries], _after(1), starts_last=starts_last)
    results = [_words(entry, sessions[entry.label]) for entry in entries]
    actions = [_run(sessions[entry.label], entry.feed) for entry in entries]
    in_rounds(actions, _after(warm_up - 1))  # the first was for the results
    return created, in_rounds(actions, limit, starts_last=starts_last), results


def _creation(sessions: dict[str, Session], entry: Entry, threads: int) -> Action:
    def create() -> float:
        begin = perf_counter()
        session = open_session(entry.runtime, entry.path, threads)
        passed = perf_counter() - begin
        sessions[entry.label] = session
        return passed

    return create


def _run(session: Session, feed: Feed) -> Action:
    def run() -> float:
        begin = perf_counter()
        outputs = session.run(feed)
        passed = perf_counter() - begin
        del outputs  # not in the time of the next
        return passed

    return run


def _words(entry: Entry, session: Session) -> list[str]:
    outputs = first_run(entry.runtime, session, entry.feed, entry.path)
    return [_word(name, value) for name, value in zip(entry.interface.outputs, outputs, strict=True)]


def _word(name: str, value: Any) -> str:
    return f"{name} {getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}"


def _profile(entry: Entry, threads: int) -> Profile:
    fewest, most, enough = PROFILED
    with scratch_folder() as folder:
        session = entry.runtime.open_profiled(entry.path, threads, folder)
        session.run(entry.feed)
        is_over: IsOver = lambda done, passed: done >= most or (done >= fewest and passed >= enough)  # noqa: E731
        in_rounds([_run(session, entry.feed)], is_over)
        return session.profile(skipped=1)
