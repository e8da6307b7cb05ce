"""Measurements of each model: memory, session creation, timed rounds, profile.

Rounds are grouped in blocks. A block creates new sessions of all models, so that no model keeps a better memory placement in
all rounds, and runs them in turns. Memory is measured in a separate process, profiles in separate sessions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from layoutopt.bench.bench_inputs import Feed
from layoutopt.bench.bench_report import PeakMemory, Profile
from layoutopt.bench.peak_memory import measure_memory
from layoutopt.bench.runtimes import Runtime, Session, first_run, open_session
from layoutopt.errors import ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.interface import Interface
from layoutopt.timing.interleaved import Action, IsOver, Rounds, in_rounds, timed
from layoutopt.timing.speed_up import BLOCKS

Progress: TypeAlias = Callable[[str], None]

MIN_ROUNDS, MAX_ROUNDS = 2, 1_000  # rounds in a block of limited time
PROFILE_RUNS = (3, 20, 2.0)  # runs with profiling: smallest and largest number, and time limit in seconds


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A model, its runtime and its inputs."""

    label: str
    path: Path
    runtime: Runtime
    interface: Interface
    feed: Feed


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of all cases, in their order.

    Attributes:
        created: seconds to create a session, one round per block.
        timed: seconds per run, block by block.
        output_types: names, types and shapes of the outputs, as text.
        profiles: time per op type.
    """

    created: list[Rounds]
    timed: list[Rounds]
    output_types: list[list[str]]
    profiles: list[Profile]


def measure_memories(
    cases: Sequence[BenchCase], threads: int, progress: Progress, *, measures_anonymous: bool = False
) -> list[PeakMemory | ModelError]:
    """The memory of each case in a separate process, or the error of loading or running it."""
    found: list[PeakMemory | ModelError] = []
    for case in cases:
        progress(f"measuring the memory of {case.path.name}")
        try:
            found.append(measure_memory(case.path, case.runtime.name, threads, case.feed, measures_anonymous))
        except ModelError as error:
            found.append(error)
    return found


def measure(
    cases: Sequence[BenchCase], threads: int, warm_up: int, limits: Sequence[IsOver], progress: Progress
) -> Measurements:
    """Measure session creation, runs and profiles.

    Args:
        cases: the models.
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
        blocks.append(_block(cases, threads, warm_up, limit, starts_last=number % 2 == 1))
    profiles = []
    for case in cases:
        progress(f"profiling {case.label}")
        profiles.append(_profile(case, threads))
    return Measurements([each[0] for each in blocks], [each[1] for each in blocks], blocks[-1][2], profiles)


def by_time(seconds: float) -> list[IsOver]:
    """End conditions of blocks that take `seconds` together, with at least two rounds each."""
    return [lambda done, passed: done >= MAX_ROUNDS or (done >= MIN_ROUNDS and passed >= seconds / BLOCKS)] * BLOCKS


def by_count(rounds: int) -> list[IsOver]:
    """End conditions of at least two blocks that have `rounds` rounds together, two or more each if there are enough."""
    blocks = max(2, min(BLOCKS, rounds // 2))
    return [_after(rounds * (block + 1) // blocks - rounds * block // blocks) for block in range(blocks)]


def _after(rounds: int) -> IsOver:
    return lambda done, passed: done >= rounds


def _block(
    cases: Sequence[BenchCase], threads: int, warm_up: int, limit: IsOver, starts_last: bool
) -> tuple[Rounds, Rounds, list[list[str]]]:
    """Session creation, timed rounds, and the outputs as text."""
    sessions: dict[str, Session] = {}
    created = in_rounds([_creation(sessions, case, threads) for case in cases], _after(1), starts_last=starts_last)
    output_types = [_output_types(case, sessions[case.label]) for case in cases]
    actions = [timed(partial(sessions[case.label].run, case.feed)) for case in cases]
    in_rounds(actions, _after(warm_up - 1))  # the first warm-up run was for the output types
    return created, in_rounds(actions, limit, starts_last=starts_last), output_types


def _creation(sessions: dict[str, Session], case: BenchCase, threads: int) -> Action:
    def create() -> float:
        begin = perf_counter()
        session = open_session(case.runtime, case.path, threads)
        passed = perf_counter() - begin
        sessions[case.label] = session
        return passed

    return create


def _output_types(case: BenchCase, session: Session) -> list[str]:
    outputs = first_run(case.runtime, session, case.feed, case.path)
    return [_output_type(name, value) for name, value in zip(case.interface.outputs, outputs, strict=True)]


def _output_type(name: str, value: Any) -> str:
    return f"{name} {getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}"


def _profile(case: BenchCase, threads: int) -> Profile:
    min_runs, max_runs, limit = PROFILE_RUNS
    with scratch_folder() as folder:
        session = case.runtime.open_profiled(case.path, threads, folder)
        session.run(case.feed)
        is_over: IsOver = lambda done, passed: done >= max_runs or (done >= min_runs and passed >= limit)  # noqa: E731
        in_rounds([timed(partial(session.run, case.feed))], is_over)
        return session.profile(skipped=1)
