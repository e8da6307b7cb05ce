"""Timing of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from math import inf
from time import perf_counter, thread_time
from typing import Protocol, TypeVar

import numpy as np
import onnxruntime

from layoutopt.ir.types import Array
from layoutopt.kernel_times.reference_models import TINY, chain_of_tiny_ops
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import inference_session
from layoutopt.timing.interleaved import in_rounds, without_collections

MAX_INTERLEAVED = 96
"""Kernels that run in the same rounds."""

_SHARED_ARENA = {"session.use_env_allocators": "1"}
"""Sessions allocate outputs in one arena, where a kernel gets memory that another one has just freed, as in a network."""

_CHAIN = 33  # tiny ops
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
        seconds: per kernel and repetition, after which no round begins beyond the smallest number.
    """

    repetitions: int
    min_rounds: int
    max_rounds: int
    seconds: float


CAREFUL = TimingBudget(repetitions=2, min_rounds=4, max_rounds=20, seconds=0.015)
"""For estimates of a whole run."""
QUICK = TimingBudget(repetitions=1, min_rounds=2, max_rounds=12, seconds=0.008)
"""For plans, which compare kernels. A batch of slow kernels has two rounds."""


class TimedModel(Protocol):
    """A model of a single kernel."""

    @property
    def key(self) -> str:
        """The identifier of the kernel in the store."""

    @property
    def is_optimised(self) -> bool:
        """Whether onnxruntime optimises the model."""

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The ONNX model; its random constants are from the generator."""

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of the model."""


_Model = TypeVar("_Model", bound=TimedModel)


class _KernelSession:
    """A session of one kernel with its inputs."""

    def __init__(self, model: bytes, feed: Mapping[str, Array], threads: int, is_optimised: bool = False) -> None:
        """Create the session and run it once."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, is_optimised=is_optimised, threads=threads, config=_SHARED_ARENA)
        self._arrays = [each for each in feed.values() if each.dtype.kind in "fiu"]
        self._feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
        self._outputs = [each.name for each in self._session.get_outputs()]
        self.run()

    def run(self) -> float:
        """The seconds of one run; its inputs have just been written, and its outputs get memory that was just freed."""
        for array in self._arrays:
            np.add(array, 0, out=array, casting="unsafe")
        begin = self._clock()
        outputs = self._session.run_with_ort_values(self._outputs, self._feed)
        passed = self._clock() - begin
        del outputs
        return passed


def time_kernels(
    kernels: Iterable[_Model], threads: int = 1, budget: TimingBudget = CAREFUL, end: float = inf
) -> Iterator[tuple[_Model, float | None]]:
    """Each kernel with its seconds within a network; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels.
        threads: threads of onnxruntime; with one, the time is that of the processor, without other processes.
        budget: how often each runs.
        end: kernels whose sessions do not exist at this time, in seconds of `perf_counter`, are left out.
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
        if perf_counter() >= end:
            break
    return found


@cache
def _share_arena() -> None:
    """Create the arena that sessions with `_SHARED_ARENA` use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    with suppress(*RUNTIME_ERRORS):  # the program that imports layoutopt has registered one
        onnxruntime.create_and_register_allocator(cpu, None)


def _in_turns(kernels: Sequence[TimedModel], threads: int, budget: TimingBudget, end: float) -> Iterator[float | None]:
    """The time of every kernel; None if onnxruntime does not run it alone.

    The overhead is measured in the same rounds, because the speed of a shared machine changes from second to second.
    """
    sessions: list[_KernelSession | None] = []
    for kernel in kernels:
        sessions.append(_session_of(kernel, threads))
        if perf_counter() >= end:
            break
    running = [each for each in sessions if each is not None]
    tiny = _tiny_sessions(threads)
    limit = budget.seconds * len(running)

    def is_over(done: int, passed: float) -> bool:
        return done >= budget.max_rounds or (done >= budget.min_rounds and passed >= limit)

    rounds = in_rounds([each.run for each in (*tiny, *running)], is_over).times
    seconds = [float(np.quantile(each, 0.25)) for each in rounds]
    one, chain, *found = seconds
    overhead = one - (chain - one) / (_CHAIN - 1)  # of a run without that of a node, which a network has too
    times = iter(found)
    for each in sessions:
        yield None if each is None else max(next(times) - overhead, _MIN_SECONDS)


def _session_of(kernel: TimedModel, threads: int) -> _KernelSession | None:
    generator = np.random.default_rng(0)
    try:
        return _KernelSession(kernel.serialized(generator), kernel.feed(generator), threads, kernel.is_optimised)
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None


@cache
def _tiny_sessions(threads: int) -> tuple[_KernelSession, _KernelSession]:
    """Sessions of a tiny op, and of a chain of tiny ops."""
    one, chain = (_KernelSession(chain_of_tiny_ops(length), TINY, threads) for length in (1, _CHAIN))
    return one, chain


__all__ = ["CAREFUL", "QUICK", "TimedModel", "TimingBudget", "time_kernels"]
