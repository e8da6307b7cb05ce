"""Timing of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter, thread_time
from typing import Protocol, TypeVar

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from layoutopt.ir.types import Array
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import inference_session
from layoutopt.timing.interleaved import IsOver, in_rounds, without_collections

_TURNS = 96  # kernels that run in turns
_SHARED_ARENA = {"session.use_env_allocators": "1"}
"""Sessions allocate outputs in one arena, where a kernel gets memory that another one has just freed, as in a network."""

_EMPTY_RUNS = 200
_NODES = (2, 130)  # of two chains of tiny ops, whose times give the overhead of a node
_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, TypeError, ValueError)
_TINY = np.ones((1, 16, 1, 1), np.float32)


@dataclass(frozen=True, slots=True)
class Effort:
    """How often kernels are run.

    Attributes:
        passes: over all kernels, of which the faster one counts: a disturbance of seconds affects one of them.
        fewest: the smallest number of rounds in a pass.
        most: the largest number.
        seconds: per kernel and pass, after which the smallest number is enough.
    """

    passes: int
    fewest: int
    most: int
    seconds: float


CAREFUL = Effort(passes=2, fewest=4, most=20, seconds=0.015)
"""For estimates of runs, of which every kernel is a part."""
QUICK = Effort(passes=1, fewest=4, most=12, seconds=0.008)
"""For plans, which compare kernels."""


class TimedModel(Protocol):
    """A model of a single kernel."""

    @property
    def key(self) -> str:
        """A text that is equal for equal kernels."""

    @property
    def optimises(self) -> bool:
        """Whether onnxruntime optimises the model."""

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The ONNX model; what it draws at random is drawn from the generator."""

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of the model."""


_Model = TypeVar("_Model", bound=TimedModel)


class _Runner:
    """A session of one kernel with its inputs."""

    def __init__(self, model: bytes, feed: Mapping[str, Array], threads: int, optimises: bool = False) -> None:
        """Create the session and run it once."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, optimises=optimises, threads=threads, config=_SHARED_ARENA)
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
    kernels: Iterable[_Model], threads: int = 1, effort: Effort = CAREFUL
) -> Iterator[tuple[_Model, float | None]]:
    """Each kernel with its seconds within a network; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels.
        threads: threads of onnxruntime; with one, the time is that of the processor, without other processes.
        effort: how often each runs.
    """
    pending = list(kernels)
    _share_arena()
    with without_collections():
        run, node = _overheads(threads) if pending else (0.0, 0.0)
        passes = [_one_pass(pending, run, node, threads, effort) for _ in range(effort.passes)]
    for kernel, *times in zip(pending, *passes, strict=True):
        measured = [each for each in times if each is not None]
        yield kernel, min(measured, default=None)


def _one_pass(
    kernels: Sequence[TimedModel], run: float, node: float, threads: int, effort: Effort
) -> list[float | None]:
    """The time of every kernel."""
    found: list[float | None] = []
    for start in range(0, len(kernels), _TURNS):
        found += _in_turns(kernels[start : start + _TURNS], run, node, threads, effort)
    return found


@cache
def _share_arena() -> None:
    """Create the arena that sessions with `_SHARED_ARENA` use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(cpu, None)


def _in_turns(
    kernels: Sequence[TimedModel], run: float, node: float, threads: int, effort: Effort
) -> Iterator[float | None]:
    """The time of every kernel; None if onnxruntime does not run it alone."""
    runners = {kernel.key: _runner(kernel, threads) for kernel in kernels}
    actions = [each.run for each in runners.values() if each is not None]
    limit = effort.seconds * len(actions)
    is_over: IsOver = lambda done, passed: done >= effort.most or (done >= effort.fewest and passed >= limit)  # noqa: E731
    measured = iter(in_rounds(actions, is_over).times if actions else [])
    for kernel in kernels:
        is_timed = runners[kernel.key] is not None
        yield max(float(np.quantile(next(measured), 0.25)) - run, 0.0) + node if is_timed else None


def _runner(kernel: TimedModel, threads: int) -> _Runner | None:
    generator = np.random.default_rng(0)
    try:
        return _Runner(kernel.serialized(generator), kernel.feed(generator), threads, kernel.optimises)
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None


@cache
def _overheads(threads: int) -> tuple[float, float]:
    """Seconds of a run of one tiny op, and of a further tiny op in it."""
    short, long = (_Runner(_chain(count), {"x": _TINY}, threads) for count in _NODES)
    once, often = in_rounds([short.run, long.run], lambda done, passed: done >= _EMPTY_RUNS).times
    low, high = float(np.quantile(once, 0.25)), float(np.quantile(often, 0.25))
    node = max((high - low) / (_NODES[1] - _NODES[0]), 0.0)
    return max(low - (_NODES[0] - 1) * node, 0.0), node


def _chain(length: int) -> bytes:
    """A model of a chain of tiny ops."""
    names = ["x", *(f"v{number}" for number in range(1, length)), "y"]
    nodes = [helper.make_node(("Relu", "Neg")[at % 2], [names[at]], [names[at + 1]]) for at in range(length)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, _TINY.shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


__all__ = ["CAREFUL", "QUICK", "Effort", "TimedModel", "time_kernels"]
