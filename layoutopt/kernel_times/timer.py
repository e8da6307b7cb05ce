"""Times of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network.

Inputs and outputs are bound to memory, so that a run costs little more than the kernel:

    session.run_with_ort_values    60 us more than the kernel, which varies by more than a small kernel takes
    session.run_with_iobinding      5 us more                       (onnxruntime 1.32, AMD EPYC)

These 5 us, the overhead of a run, are measured by tiny ops and subtracted. They depend on the caches: a run takes up to four
times as long after a kernel that has used them. So tiny ops run between the kernels whose times they correct, and every run
follows one of a tiny op, by which the code of onnxruntime's `Run` is in the caches.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import inf, prod
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol

import numpy as np
import onnxruntime
from onnx import parser

from layoutopt.ir.types import Array
from layoutopt.kernel_times.kernels import small_numbers
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import inference_session
from layoutopt.runtime.type_names import short_name
from layoutopt.timing.interleaved import in_rounds, pinned

_ROUNDS = (2, 24)  # the smallest and the largest number
_SECONDS = 0.008  # of the processor per kernel and thread, after which no round begins beyond the smallest number
_SPACING = 8  # kernels between two measurements of the overhead and of the reference
_CHAIN = 33  # tiny ops
_MIN_SECONDS = 1e-7  # seconds of a kernel that is not slower than a run of a tiny op
_ALIGNMENT = 64  # bytes
_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, TypeError, ValueError)
_SHARED_ARENA = {"session.use_env_allocators": "1"}
"""Sessions allocate buffers in one arena, where a kernel gets memory that another one has just freed, as in a network."""


class TimedModel(Protocol):
    """A model of a single kernel."""

    @property
    def key(self) -> str:
        """The identifier of the kernel in the store."""

    def serialized(self) -> bytes:
        """The ONNX model."""


# --- sessions ---


class KernelSession:
    """A session of one kernel with its operands.

    Args:
        model: the kernel's model.
        threads: threads of onnxruntime; with one, times are those of the processor, without other processes.
    """

    def __init__(self, model: bytes, threads: int) -> None:
        """Create the session and run it."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, threads=threads, config=_SHARED_ARENA)
        generator = np.random.default_rng(0)
        self._inputs = [_operand(each, generator) for each in self._session.get_inputs()]
        self._outputs = [each.name for each in self._session.get_outputs()]
        self._binding = self._session.io_binding()
        for each, array in zip(self._session.get_inputs(), self._inputs, strict=True):
            self._binding.bind_ortvalue_input(each.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self.run()

    def run(self) -> float:
        """The seconds of one run, whose inputs have just been written, and whose outputs get memory that was just freed."""
        for array in self._inputs:
            np.add(array, 0, out=array, casting="unsafe")
        for name in self._outputs:
            self._binding.bind_output(name)
        begin = self._clock()
        self._session.run_with_iobinding(self._binding)
        seconds = self._clock() - begin
        self._binding.clear_binding_outputs()
        return seconds


def _operand(input: Any, generator: np.random.Generator) -> Array:
    """Small random floating-point numbers for an input, or zeros of another type, in memory as onnxruntime allocates it.

    It is aligned, and has not the huge pages of large numpy arrays.

    Raises:
        TypeError: its type is none of numpy's, or an extent is not known.
    """
    dtype, shape = np.dtype(short_name(input.type)), tuple(input.shape)
    nbytes = prod(shape) * dtype.itemsize
    memory = np.frombuffer(bytearray(nbytes + _ALIGNMENT), np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    found: Array = memory[start : start + nbytes].view(dtype).reshape(shape)
    if dtype.kind == "f":
        found[...] = small_numbers(generator, shape)
    return found


@cache
def _share_arena() -> None:
    """Create the arena that all sessions of kernels use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    with suppress(*RUNTIME_ERRORS):  # the program that imports layoutopt has registered one
        onnxruntime.create_and_register_allocator(cpu, None)


# --- the overhead of a run, and the speed of the machine ---


def _session(text: str, threads: int) -> KernelSession:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}')
    return KernelSession(model.SerializeToString(), threads)


@cache
def tiny_sessions(threads: int) -> tuple[KernelSession, KernelSession]:
    """Sessions of a tiny op and of a chain of them."""
    type = "float[1,16,1,1]"
    chain = " ".join(f"x{at + 1} = {('Relu', 'Neg')[at % 2]}(x{at})" for at in range(_CHAIN))
    one = _session(f"({type} x0) => ({type} x1) {{ x1 = Relu(x0) }}", threads)
    return one, _session(f"({type} x0) => ({type} x{_CHAIN}) {{ {chain} }}", threads)


REFERENCE = "reference: Relu, MatMul of float 256x384 and 384x384, Relu"
"""The key of the reference kernel, of which every batch of kernels has several runs in a round.

Kernels are timed at different moments, between which a shared machine changes its speed. Their times are scaled by that of the
reference kernel in the same batch.
"""
_REFERENCE = """(float[256,384] x, float[384,384] w) => (float[256,384] y)
{ a = Relu(x) b = MatMul(a, w) y = Relu(b) }"""


# --- the timing loop ---


def time_kernels(kernels: Sequence[TimedModel], threads: int = 1, end: float = inf) -> dict[str, float | None]:
    """The seconds of each kernel within a network, and of the reference, by key; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels, which run in the same rounds.
        threads: threads of onnxruntime.
        end: kernels without sessions at this time, in seconds of `process_time`, are left out, but for the first one.
    """
    _share_arena()
    with pinned(threads):
        reference = _session(_REFERENCE, threads)
        sessions: dict[str, KernelSession | None] = {}
        for kernel in kernels:
            sessions[kernel.key] = _session_of(kernel, threads)
            if process_time() >= end:
                break
        seconds = _in_turns([each for each in sessions.values() if each is not None], reference, threads)
    times = {key: None if each is None else seconds[each] for key, each in sessions.items()}
    return {REFERENCE: seconds[reference], **times}


def _in_turns(sessions: Sequence[KernelSession], reference: KernelSession, threads: int) -> dict[KernelSession, float]:
    """The time of every session without the overhead of a run, which is measured in the same rounds, as the reference is."""
    limit = _SECONDS * len(sessions) * threads

    def is_over(done: int, passed: float) -> bool:
        return done >= _ROUNDS[1] or (done >= _ROUNDS[0] and passed >= limit)

    tiny = tiny_sessions(threads)
    spaced: list[KernelSession] = []
    for start in range(0, max(len(sessions), 1), _SPACING):
        spaced += [*tiny, reference, *sessions[start : start + _SPACING]]
    times: dict[KernelSession, list[float]] = defaultdict(list)
    rounds = in_rounds([_behind(tiny[0], each) for each in spaced], is_over, clock=process_time)
    for each, found in zip(spaced, rounds, strict=True):
        times[each] += found
    seconds = {each: float(np.quantile(found, 0.25)) for each, found in times.items()}
    one, chain = (seconds[each] for each in tiny)
    run = one - (chain - one) / (_CHAIN - 1)  # without the overhead of a node, which a network has, too
    return {each: max(found - run, _MIN_SECONDS) for each, found in seconds.items()}


def _behind(warming: KernelSession, session: KernelSession) -> Callable[[], float]:
    """An action with the seconds of a run behind another run."""

    def action() -> float:
        warming.run()
        return session.run()

    return action


def _session_of(kernel: TimedModel, threads: int) -> KernelSession | None:
    """The session of a kernel; None if onnxruntime does not run it alone."""
    try:
        return KernelSession(kernel.serialized(), threads)
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None
