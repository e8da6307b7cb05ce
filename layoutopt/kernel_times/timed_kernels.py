"""Timing of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from time import perf_counter, thread_time

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from layoutopt.ir.types import Array
from layoutopt.kernel_times.kernel_model import KernelModel
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import inference_session
from layoutopt.timing.interleaved import in_rounds, without_collections

_TURNS = 96  # kernels that run in turns
_PASSES = 2  # over all kernels, of which the faster one counts: a disturbance of seconds affects one of them
_ROUNDS = (4, 20)  # the smallest and the largest number in a pass
_SECONDS = 0.015  # per kernel and pass, after which the smallest number is enough
_SHARED_ARENA = {"session.use_env_allocators": "1"}
"""Sessions allocate outputs in one arena, where a kernel gets memory that another one has just freed, as in a network."""

_EMPTY_RUNS = 200
_NODES = (2, 130)  # of two chains of tiny ops, whose times give the overhead of a node
_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, TypeError, ValueError)
_TINY = np.ones((1, 16, 1, 1), np.float32)


class _Runner:
    """A session of one kernel with its inputs."""

    def __init__(self, model: bytes, feed: Mapping[str, Array], threads: int) -> None:
        """Create the session and run it once."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, optimises=False, threads=threads, config=_SHARED_ARENA)
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


def time_kernels(kernels: Iterable[KernelModel], threads: int = 1) -> Iterator[tuple[KernelModel, float | None]]:
    """Each kernel with its seconds within a network; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels.
        threads: threads of onnxruntime; with one, the time is that of the processor, without other processes.
    """
    pending = list(kernels)
    _share_arena()
    with without_collections():
        run, node = _overheads(threads) if pending else (0.0, 0.0)
        passes = [_one_pass(pending, run, node, threads) for _ in range(_PASSES)]
    for kernel, *times in zip(pending, *passes, strict=True):
        measured = [each for each in times if each is not None]
        yield kernel, min(measured, default=None)


def _one_pass(kernels: Sequence[KernelModel], run: float, node: float, threads: int) -> list[float | None]:
    """The time of every kernel."""
    found: list[float | None] = []
    for start in range(0, len(kernels), _TURNS):
        found += _in_turns(kernels[start : start + _TURNS], run, node, threads)
    return found


@cache
def _share_arena() -> None:
    """Create the arena that sessions with `_SHARED_ARENA` use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(cpu, None)


def _in_turns(kernels: Sequence[KernelModel], run: float, node: float, threads: int) -> Iterator[float | None]:
    """The time of every kernel; None if onnxruntime does not run it alone."""
    runners = {kernel.key: _runner(kernel, threads) for kernel in kernels}
    actions = [each.run for each in runners.values() if each is not None]
    limit = _SECONDS * len(actions)
    fewest, most = _ROUNDS
    times = in_rounds(actions, lambda done, passed: done >= most or (done >= fewest and passed >= limit)).times
    measured = iter(times)
    for kernel in kernels:
        is_timed = runners[kernel.key] is not None
        yield max(float(np.quantile(next(measured), 0.25)) - run, 0.0) + node if is_timed else None


def _runner(kernel: KernelModel, threads: int) -> _Runner | None:
    generator = np.random.default_rng(0)
    try:
        return _Runner(bytes(kernel.proto(generator).SerializeToString()), kernel.feed(generator), threads)
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None


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


__all__ = ["time_kernels"]
