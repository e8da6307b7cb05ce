"""Measurements of each model: memory, session creation, timed rounds, profile.

Rounds come in blocks. A block creates new sessions of all models, so that no model keeps a better memory placement throughout,
and runs them in turns. Memory is measured in a separate process, profiles in separate sessions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from layoutopt.bench.bench_inputs import Feed
from layoutopt.bench.bench_report import Memory, Profile
from layoutopt.bench.interleaved import Action, IsOver, Rounds, in_rounds
from layoutopt.bench.peak_memory import measure_memory
from layoutopt.bench.runtimes import Runtime, Session, first_run, open_session
from layoutopt.errors import ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.interface import Interface

Progress: TypeAlias = Callable[[str], None]

BLOCKS = 6  # the smallest number with a confidence interval of 95 %
FEWEST, MOST = 2, 1_000  # rounds in a block of limited time
PROFILED = (3, 20, 2.0)  # runs with profiling: smallest and largest number, and time limit in seconds


@dataclass(frozen=True, slots=True)
class Entry:
    """A model, its runtime and its inputs."""

    label: str
    path: Path
    runtime: Runtime
    interface: Interface
    feed: Feed


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of all entries, in their order.

    Attributes:
        created: seconds to create a session, one round per block.
        timed: seconds per run, block by block.
        results: names, types and shapes of the outputs, as text.
        profiles: time per op type.
    """

    created: list[Rounds]
    timed: list[Rounds]
    results: list[list[str]]
    profiles: list[Profile]


def measure_memories(entries: Sequence[Entry], threads: int, progress: Progress) -> list[Memory | ModelError]:
    """The peak memory of each entry in a separate process, or the error of loading or running it."""
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
) -> Measurements:
    """Measure session creation, runs and profiles.

    Args:
        entries: the models.
        threads: threads of each runtime.
        warm_up: untimed rounds of each block.
        limits: the end condition of each block.
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
    return Measurements([each[0] for each in blocks], [each[1] for each in blocks], blocks[-1][2], profiles)


def by_time(seconds: float) -> list[IsOver]:
    """End conditions of blocks that take `seconds` together, with at least two rounds each."""
    return [lambda done, passed: done >= MOST or (done >= FEWEST and passed >= seconds / BLOCKS)] * BLOCKS


def by_count(rounds: int) -> list[IsOver]:
    """End conditions of blocks that have `rounds` rounds together."""
    blocks = min(BLOCKS, rounds)
    return [_after(rounds * (block + 1) // blocks - rounds * block // blocks) for block in range(blocks)]


def _after(rounds: int) -> IsOver:
    return lambda done, passed: done >= rounds


def _block(
    entries: Sequence[Entry], threads: int, warm_up: int, limit: IsOver, starts_last: bool
) -> tuple[Rounds, Rounds, list[list[str]]]:
    """Session creation, timed rounds, and the outputs as text."""
    sessions: dict[str, Session] = {}
    created = in_rounds([_creation(sessions, entry, threads) for entry in entries], _after(1), starts_last=starts_last)
    results = [_output_texts(entry, sessions[entry.label]) for entry in entries]
    actions = [_run(sessions[entry.label], entry.feed) for entry in entries]
    in_rounds(actions, _after(warm_up - 1))  # the first warm-up run gave the results
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
        del outputs  # outside of the next run's time
        return passed

    return run


def _output_texts(entry: Entry, session: Session) -> list[str]:
    outputs = first_run(entry.runtime, session, entry.feed, entry.path)
    return [_output_text(name, value) for name, value in zip(entry.interface.outputs, outputs, strict=True)]


def _output_text(name: str, value: Any) -> str:
    return f"{name} {getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}"


def _profile(entry: Entry, threads: int) -> Profile:
    fewest, most, enough = PROFILED
    with scratch_folder() as folder:
        session = entry.runtime.open_profiled(entry.path, threads, folder)
        session.run(entry.feed)
        is_over: IsOver = lambda done, passed: done >= most or (done >= fewest and passed >= enough)  # noqa: E731
        in_rounds([_run(session, entry.feed)], is_over)
        return session.profile(skipped=1)
