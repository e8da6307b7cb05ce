"""Timing of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from math import inf
from statistics import fmean
from time import process_time
from typing import Protocol, TypeVar

import numpy as np
import onnxruntime

from layoutopt.ir.types import Array
from layoutopt.kernel_times.kernel_session import KernelSession, ScratchMemory
from layoutopt.kernel_times.run_overhead import RunOverhead, TinySessions
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.timing.interleaved import in_rounds, without_collections

MAX_INTERLEAVED = 96
"""Kernels that run in the same rounds."""

_SPACING = 8  # kernels between two measurements of the overhead
_MIN_SECONDS = 1e-7  # seconds of a kernel that is not slower than a run of a tiny op
_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class TimingBudget:
    """How often kernels are run.

    Attributes:
        repetitions: repetitions of all rounds. The time of a kernel is the least of them, since a disturbance that lasts
            seconds affects one repetition only.
        min_rounds: the smallest number of rounds in a repetition.
        max_rounds: the largest number.
        seconds: of the processor per kernel, thread and repetition, after which no round begins beyond the smallest number.
    """

    repetitions: int
    min_rounds: int
    max_rounds: int
    seconds: float


CAREFUL = TimingBudget(repetitions=2, min_rounds=4, max_rounds=20, seconds=0.015)
"""For estimates of a whole run."""
QUICK = TimingBudget(repetitions=1, min_rounds=2, max_rounds=24, seconds=0.008)
"""For plans, which compare kernels. A batch of slow kernels has two rounds."""


class TimedModel(Protocol):
    """A model of a single kernel."""

    @property
    def key(self) -> str:
        """The identifier of the kernel in the store."""

    @property
    def is_optimised(self) -> bool:
        """Whether onnxruntime optimises the model."""

    @property
    def is_view(self) -> bool:
        """Whether the result is the first operand in another shape, whose elements a network does not copy."""

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The ONNX model; its random constants are from the generator."""

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of the model."""


_Model = TypeVar("_Model", bound=TimedModel)


def time_kernels(
    kernels: Iterable[_Model], threads: int = 1, budget: TimingBudget = CAREFUL, end: float = inf
) -> Iterator[tuple[_Model, float | None]]:
    """Each kernel with its seconds within a network; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels.
        threads: threads of onnxruntime; with one, the time is that of the processor, without other processes.
        budget: how often each runs.
        end: kernels without sessions at this time, in seconds of `process_time`, are left out, but for the first two.
    """
    pending = list(kernels)
    _share_arena()
    with without_collections():
        repetitions = [_repetition(pending, threads, budget, end) for _ in range(budget.repetitions)]
    for kernel, times in zip(pending, zip_longest(*repetitions), strict=False):
        measured = [each for each in times if each is not None]
        yield kernel, min(measured, default=None)


def _repetition(kernels: Sequence[TimedModel], threads: int, budget: TimingBudget, end: float) -> list[float | None]:
    """One repetition: the times of the kernels, without those at the end whose sessions were not created in time."""
    found: list[float | None] = []
    for start in range(0, len(kernels), MAX_INTERLEAVED):
        found += _in_turns(kernels[start : start + MAX_INTERLEAVED], threads, budget, end)
        if process_time() >= end:
            break
    return found


@cache
def _share_arena() -> None:
    """Create the arena that all sessions of kernels use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    with suppress(*RUNTIME_ERRORS):  # the program that imports layoutopt has registered one
        onnxruntime.create_and_register_allocator(cpu, None)


def _in_turns(kernels: Sequence[TimedModel], threads: int, budget: TimingBudget, end: float) -> Iterator[float | None]:
    """The time of every kernel; None if onnxruntime does not run it alone.

    The overhead of a run is measured in the same rounds, between the kernels: the speed of a shared machine changes from second
    to second, and a run takes up to four times as long when other kernels have just used the caches.
    """
    sessions: list[KernelSession | None] = []
    scratch = ScratchMemory()
    for kernel in kernels:
        sessions.append(_session_of(kernel, threads, scratch))
        if len(sessions) > 1 and process_time() >= end:
            break
    running = [each for each in sessions if each is not None]
    limit = budget.seconds * len(running) * threads
    begin = process_time()

    def is_over(done: int, passed: float) -> bool:
        is_spent = process_time() - begin >= limit  # not by `passed`, in which other processes may have run
        return done >= budget.max_rounds or (done >= budget.min_rounds and is_spent)

    starts = range(0, len(running), _SPACING)
    tiny = [TinySessions.of(number, threads) for number in range(len(starts))]
    spaced = [
        each for few, start in zip(tiny, starts, strict=True) for each in (*few, *running[start : start + _SPACING])
    ]
    warming = TinySessions.of(-1, threads).one
    rounds = in_rounds([partial(_run_after, warming, each) for each in spaced], is_over).times
    seconds = {each: float(np.quantile(times, 0.25)) for each, times in zip(spaced, rounds, strict=True)}
    overhead = (
        RunOverhead.of(*(fmean(seconds[each] for each in same) for same in zip(*tiny, strict=True))) if tiny else None
    )
    for each in sessions:
        if each is None or overhead is None:
            yield None
        else:
            yield max(seconds[each] - overhead.seconds(each.num_inputs), _MIN_SECONDS)


def _run_after(warming: KernelSession, session: KernelSession) -> float:
    """The seconds of a run behind another run."""
    warming.run()
    return session.run()


def _session_of(kernel: TimedModel, threads: int, scratch: ScratchMemory) -> KernelSession | None:
    """The session of a kernel; None if onnxruntime does not run it alone."""
    generator = np.random.default_rng(0)
    try:
        return KernelSession(
            kernel.serialized(generator),
            kernel.feed(generator),
            threads,
            scratch,
            is_optimised=kernel.is_optimised,
            is_view=kernel.is_view,
        )
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None


__all__ = ["CAREFUL", "QUICK", "TimedModel", "TimingBudget", "time_kernels"]
