"""Times of single kernels: several of them run in turns, so that each finds caches that others have used, as in a network.

Inputs and outputs are bound to memory, so that a run costs little more than the kernel:

    session.run_with_ort_values    60 us more than the kernel, which varies by more than a small kernel takes
    session.run_with_iobinding      5 us more                       (onnxruntime 1.32, AMD EPYC)

These 5 us, the overhead of a run, are measured by tiny ops and subtracted. They depend on the caches: a run takes up to four
times as long after a kernel that has used them. So tiny ops run between the kernels whose times they correct, and after another
run, by which the code of onnxruntime's `Run` is in the caches.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import inf, prod
from statistics import fmean
from time import perf_counter, process_time, thread_time
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

from layoutopt.ir.types import Array
from layoutopt.kernel_times.kernels import small_numbers
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import inference_session
from layoutopt.runtime.type_names import short_name
from layoutopt.timing.interleaved import in_rounds, pinned

_ROUNDS = (2, 24)  # the smallest and the largest number
_SECONDS = 0.008  # of the processor per kernel and thread, after which no round begins beyond the smallest number
_SPACING = 8  # kernels between two measurements of the overhead
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


def _memory(nbytes: int) -> Array:
    """Aligned bytes as onnxruntime allocates them: without the huge pages of large numpy arrays."""
    found = np.frombuffer(bytearray(nbytes + _ALIGNMENT), np.uint8)
    start = -found.ctypes.data % _ALIGNMENT
    return found[start : start + nbytes]


class ScratchMemory:
    """Memory that the outputs of several sessions share. It grows to the largest of them.

    A kernel then writes to memory that another one has just used, as in a network, where onnxruntime reuses buffers.
    """

    def __init__(self) -> None:
        self._memory = _memory(0)

    def arrays(self, types: Sequence[Any]) -> list[Array]:
        """Arrays of the types of outputs, one behind the other, from the start of the memory on.

        Raises:
            TypeError: a type is none of numpy's, or an extent is not known.
        """
        dtypes = [np.dtype(short_name(each.type)) for each in types]
        sizes = [prod(each.shape) * dtype.itemsize for each, dtype in zip(types, dtypes, strict=True)]
        starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)])
        if starts[-1] > self._memory.nbytes:
            self._memory = _memory(int(starts[-1]))  # earlier arrays keep the memory that they have
        return [
            self._memory[start : start + size].view(dtype).reshape(each.shape)
            for start, size, dtype, each in zip(starts, sizes, dtypes, types, strict=False)
        ]


class KernelSession:
    """A session of one kernel with its operands.

    Args:
        model: the kernel's model.
        threads: threads of onnxruntime; with one, times are those of the processor, without other processes.
        scratch: for the outputs.

    Attributes:
        num_inputs: the number of inputs.
    """

    def __init__(self, model: bytes, threads: int, scratch: ScratchMemory) -> None:
        """Create the session and run it."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, threads=threads, config=_SHARED_ARENA)
        generator = np.random.default_rng(0)
        inputs = [_operand(each, generator) for each in self._session.get_inputs()]
        outputs = scratch.arrays(self._session.get_outputs())
        self._binding = self._session.io_binding()
        for each, array in zip(self._session.get_inputs(), inputs, strict=True):
            self._binding.bind_ortvalue_input(each.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        for each, array in zip(self._session.get_outputs(), outputs, strict=True):
            self._binding.bind_ortvalue_output(each.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self.num_inputs = len(inputs)
        self._inputs, self._outputs = inputs, outputs  # onnxruntime holds their memory, not the arrays
        self.run()

    def run(self) -> float:
        """The seconds of one run; its inputs have just been written."""
        for array in self._inputs:
            np.add(array, 0, out=array, casting="unsafe")
        begin = self._clock()
        self._session.run_with_iobinding(self._binding)
        return self._clock() - begin


def _operand(input: Any, generator: np.random.Generator) -> Array:
    """Random elements for an input: small numbers, integers of a byte, or else zeros.

    Raises:
        TypeError: its type is none of numpy's, or an extent is not known.
    """
    dtype, shape = np.dtype(short_name(input.type)), tuple(input.shape)
    found: Array = _memory(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    if dtype.kind == "f":
        found[...] = small_numbers(generator, shape)
    elif dtype.itemsize == 1 and dtype.kind in "iu":
        found[...] = generator.integers(0, 127, shape)
    return found


def _parsed(body: str) -> Any:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {body}')


@cache
def _share_arena() -> None:
    """Create the arena that all sessions of kernels use."""
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    with suppress(*RUNTIME_ERRORS):  # the program that imports layoutopt has registered one
        onnxruntime.create_and_register_allocator(cpu, None)


# --- the overhead of a run, and the speed of the machine ---


class TinySessions(NamedTuple):
    """Sessions of a tiny op, of a chain of them, and of a tiny op with two inputs."""

    one: KernelSession
    chain: KernelSession
    two_inputs: KernelSession

    @classmethod
    @cache
    def of(cls, number: int, threads: int) -> "TinySessions":
        """The sessions of one measurement of the overhead in a round; they are created once.

        Each measurement has sessions of its own, so that they are as long out of the caches as those of the kernels.

        Args:
            number: the position of the measurement in the round.
            threads: threads of onnxruntime.
        """
        scratch, type = ScratchMemory(), "float[1,16,1,1]"
        names = ["x", *(f"v{at}" for at in range(1, _CHAIN)), "y"]
        chain = " ".join(f"{names[at + 1]} = {('Relu', 'Neg')[at % 2]}({names[at]})" for at in range(_CHAIN))
        models = (
            f"one ({type} x) => ({type} y) {{ y = Relu(x) }}",
            f"chain ({type} x) => ({type} y) {{ {chain} }}",
            f"sum ({type} x, {type} z) => ({type} y) {{ y = Add(x, z) }}",
        )
        return cls(*(KernelSession(_parsed(each).SerializeToString(), threads, scratch) for each in models))


class ReferenceKernel(NamedTuple):
    """A MatMul between two Relus, of which every batch of kernels has some.

    Kernels are timed at different moments, between which a shared machine changes its speed. Times are scaled by the mean time
    of these kernels in the same batch.

    Attributes:
        number: its number in the batch.
    """

    number: int = 0

    @property
    def key(self) -> str:
        """The name with the number."""
        return f"{REFERENCE} {self.number}"

    def serialized(self) -> bytes:
        """The ONNX model."""
        model = _parsed(
            "g (float[256,384] x) => (float[256,384] y) <float[384,384] w> { a = Relu(x) b = MatMul(a, w) y = Relu(b) }"
        )
        weights = small_numbers(np.random.default_rng(0), (384, 384))
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
        return bytes(model.SerializeToString())


REFERENCE = "reference: float 256x384, Relu, MatMul with constant float 384x384, Relu"
"""The key of the reference kernels in a store."""


# --- the timing loop ---


def time_kernels(kernels: Sequence[TimedModel], threads: int = 1, end: float = inf) -> dict[str, float | None]:
    """The seconds of each kernel within a network, by key; None if onnxruntime does not run it alone.

    Args:
        kernels: distinct kernels, which run in the same rounds.
        threads: threads of onnxruntime.
        end: kernels without sessions at this time, in seconds of `process_time`, are left out, but for the first two.
    """
    _share_arena()
    sessions: dict[str, KernelSession | None] = {}
    scratch = ScratchMemory()
    with pinned(threads):
        for kernel in kernels:
            sessions[kernel.key] = _session_of(kernel, threads, scratch)
            if len(sessions) > 1 and process_time() >= end:
                break
        seconds = _in_turns([each for each in sessions.values() if each is not None], threads)
    return {key: None if each is None else seconds[each] for key, each in sessions.items()}


def _in_turns(sessions: Sequence[KernelSession], threads: int) -> dict[KernelSession, float]:
    """The time of every session without the overhead of a run, which is measured in the same rounds."""
    limit = _SECONDS * len(sessions) * threads
    begin = process_time()

    def is_over(done: int, passed: float) -> bool:
        is_spent = process_time() - begin >= limit  # not by `passed`, in which other processes may have run
        return done >= _ROUNDS[1] or (done >= _ROUNDS[0] and is_spent)

    tiny: list[TinySessions] = []
    spaced: list[KernelSession] = []
    for start in range(0, len(sessions), _SPACING):
        tiny.append(TinySessions.of(len(tiny), threads))
        spaced += [*tiny[-1], *sessions[start : start + _SPACING]]
    if not tiny:
        return {}
    warming = TinySessions.of(-1, threads).one
    rounds = in_rounds([_behind(warming, each) for each in spaced], is_over)
    seconds = {each: float(np.quantile(times, 0.25)) for each, times in zip(spaced, rounds, strict=True)}
    one, chain, two_inputs = (fmean(seconds[each] for each in same) for same in zip(*tiny, strict=True))
    run = one - (chain - one) / (_CHAIN - 1)  # without the overhead of a node, which a network has, too
    operand = max(two_inputs - one, 0.0)
    return {each: max(seconds[each] - run - operand * (each.num_inputs - 1), _MIN_SECONDS) for each in sessions}


def _behind(warming: KernelSession, session: KernelSession) -> Callable[[], float]:
    """An action with the seconds of a run behind another run."""

    def action() -> float:
        warming.run()
        return session.run()

    return action


def _session_of(kernel: TimedModel, threads: int, scratch: ScratchMemory) -> KernelSession | None:
    """The session of a kernel; None if onnxruntime does not run it alone."""
    try:
        return KernelSession(kernel.serialized(), threads, scratch)
    except _ERRORS as error:
        raise_if_out_of_memory(error)
        return None
