"""A kernel as a model of its own, one op with a signature as the dialect `onnxruntime` writes it, and its time.

    Conv, x: NCHW8c, w: OIHW8i8o  -->  com.microsoft.nchwc.Conv on inputs of the declared shapes, w random

onnxruntime optimises the model at its default level, since it does the same with the kernel in the written model: a plain
convolution runs as a blocked one between two reorders.

Several kernels run in turns, so that each finds caches that others have used, as in a network. Inputs and outputs are bound to
memory, so that a run costs little more than the kernel:

    session.run_with_ort_values    60 us more than the kernel, which varies by more than a small kernel takes
    session.run_with_iobinding      5 us more                       (onnxruntime 1.32, AMD EPYC)

These 5 us, the overhead of a run, are measured by tiny ops and subtracted. They depend on the caches: a run takes up to four
times as long after a kernel that has used them. So tiny ops run between the kernels whose times they correct, and every run
follows one of a tiny op, by which the code of onnxruntime's `Run` is in the caches.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from hashlib import sha256
from itertools import pairwise
from math import inf, prod
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
import onnxruntime
from onnx import parser
from onnx.helper import tensor_dtype_to_np_dtype

from layoutopt import onnx_io
from layoutopt.dialects import Dialect, OnnxRuntime
from layoutopt.dialects.onnxruntime.default_blocks import block_of
from layoutopt.dialects.onnxruntime.winograd import alternatives
from layoutopt.dialects.onnxruntime.writers import BlockedArrays
from layoutopt.files import scratch_folder
from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import CAST, DOMAIN, Graph, to_text
from layoutopt.ir.sizes import is_symbolic
from layoutopt.ir.types import Array, ComputedData, DType, Op, Opaque, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import X
from layoutopt.record import Record
from layoutopt.runtime.engines import Engine
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import inference_session
from layoutopt.timing.interleaved import Action, in_rounds, pinned
from layoutopt.timing.speed_up import engine_clock
from layoutopt.version import VERSION

_MAX_CONSTANT_BYTES = (
    1 << 27
)  # kernels with a larger one have no times: their sessions alone take longer than all others
_DRAWN = 65_521  # numbers: a prime, so that rows of arrays differ
_KEPT = 16  # elements up to which a floating-point constant keeps its elements: scales, bounds, epsilon


@cache
def _random_numbers() -> Array:
    """Normally distributed numbers that arrays repeat: drawing as many as their elements took 40 % of the time of timing."""
    return np.random.default_rng(0).standard_normal(_DRAWN, dtype=np.float32)


def small_numbers(shape: tuple[int, ...]) -> Array:
    """Random float32 elements, whose variance is 1 divided by the number of elements per index of the first axis.

    No result of a kernel is infinite or denormal, and no element is zero, because some kernels skip zeros.
    """
    numbers = np.resize(_random_numbers(), shape)
    numbers *= np.float32(max(prod(shape[1:]), 1) ** -0.5)
    return numbers


def random_constant(shape: Shape) -> ComputedData:
    """A lazy float32 constant of small random numbers; its extents are known."""
    extents = tuple(map(int, shape))
    return ComputedData(4 * prod(extents), small_numbers, (extents,))


class LoweredKernel(Record, eq=False, dict=True):
    """A graph with inputs of known extents: one op on operands in given formats, or a lowered graph that computes the same."""

    graph: Graph

    @cached_property
    def key(self) -> str:
        """The identifier in the store: op types, types of inputs, and a digest of the graph without floating-point elements."""
        graph = self.graph
        data = [each.data for each in graph.values if each.dtype is not DType.FLOAT32]
        text = f"{[each.version for each in graph.ops]} {to_text(graph)}"
        digest = sha256(b"".join([text.encode(), *(each.numpy().tobytes() for each in data if each is not None)]))
        kinds = ", ".join(op.kind for op in graph.ops)
        inputs = ", ".join(str(x.type) for x in graph.inputs)
        return f"layoutopt {VERSION}: {kinds} ({inputs}) {digest.hexdigest()[:16]}"

    @classmethod
    def of(cls, op: Op, formats: Mapping[Slot, Format], opsets: Mapping[str, int]) -> "LoweredKernel | None":
        """The kernel of an op, whose operands of known rank have formats, with the operator sets of its model.

        None if it cannot run alone: bodies, symbolic extents, activations other than float32.
        """
        op = _without_epilogue(op, opsets.get("", 1))
        opaque = any(isinstance(each, Opaque) for each in op.attributes.values())
        if op.bodies or opaque or not all(map(_is_timed, op.values)):
            return None
        graph = Graph("kernel", dict(opsets))
        graph.stage = "cast"
        operands: dict[Value, Value] = {}
        for slot in op.slots():
            value = op.operand(slot)
            if value is not None and value not in operands:
                name = f"{'x' if slot.side == 'in' else 'y'}{slot.index}"
                operands[value] = graph.add_value(_kernel_value(value, name, formats.get(slot)))
        alone = graph.add_op(op.copy_on(operands, name="kernel", order=()))
        inputs, outputs = alone.inputs, alone.outputs
        storages = (tuple(None if each is None else each.storage for each in some) for some in (inputs, outputs))
        alone.signature = Signature(*storages)
        graph.inputs += [each for each in dict.fromkeys(inputs) if each is not None and not each.is_constant]
        graph.outputs += [each for each in outputs if each is not None]
        return cls(graph)

    @classmethod
    def of_conversion(
        cls, type: TensorType, src: Format, dst: Format, opsets: Mapping[str, int]
    ) -> "LoweredKernel | None":
        """The kernel of a conversion."""
        op = Op(CAST, (Value("x", type),), (Value("y", type),), domain=DOMAIN, version=1)
        return cls.of(op, {Slot("in", 0): src, Slot("out", 0): dst}, opsets)

    @property
    def op(self) -> Op:
        """The op, with its signature."""
        return self.graph.ops[0]

    @cached_property
    def lowered(self) -> Graph:
        """The graph as the dialect writes it."""
        if self.graph.stage == "lowered":
            return self.graph
        block = blocked_channels()
        # Without the dialect's passes: there is nothing to fuse, and the check of the block size would be timed too. Not by the
        # dialect's own `lower`, for which no array is blocked in a graph without blocked filters.
        lowered = Dialect.lower(OnnxRuntime(BlockedArrays((block,) if block else ())), self.graph)
        _remove_interface_reshapes(lowered)
        return lowered

    @cached_property
    def alternatives(self) -> tuple[Sequence["LoweredKernel"], float]:
        """Winograd's algorithms for some convolutions, and the estimated speed-up by the one chosen if none is timed."""
        op, filter, block = self.op, self.op.input(1), blocked_channels()
        is_blocked = op.op_type == "Conv" and op.signature is not None and block_of(op.signature[X]) == block
        if not block or not is_blocked or filter is None or all(extent == 1 for extent in filter.dims[2:]):
            return (), 1.0
        found, speed_up = alternatives(self.lowered, block)
        return [LoweredKernel(each) for each in found], speed_up

    def serialized(self) -> bytes:
        """The ONNX model."""
        return onnx_io.to_bytes(onnx_io.emit(self.lowered))


def _kernel_value(value: Value, name: str, format: Format | None) -> Value:
    """An operand of a kernel; its elements are random unless the time may depend on them: axes, sizes, bounds."""
    data = value.data
    if data is not None and value.dtype is DType.FLOAT32 and prod(map(int, value.dims)) > _KEPT:
        data = random_constant(value.dims)
    return Value(name, value.type, storage=None if format is None else Storage(format), data=data)


def _remove_interface_reshapes(graph: Graph) -> None:
    """Give inputs and outputs the shapes of the kernels: without the Reshapes at the interface, which copy there."""
    for index, value in enumerate(graph.inputs):
        op = graph.only_reader(value)
        if op is not None and op.op_type == "Reshape" and not graph.is_output(op.y):
            fresh = graph.new_value(value.name, op.y.type)
            graph.replace_uses(op.y, fresh)
            graph.remove_op(op)
            graph.inputs[index] = fresh
            graph.remove_value(value)
    for index, value in enumerate(graph.outputs):
        op = graph.producer(value)
        if op is not None and op.op_type == "Reshape":
            graph.set_output(index, op.x)
            graph.remove_op(op)


def _without_epilogue(op: Op, version: int) -> Op:
    """The convolution of a fused one, whose activation and residual are the same in the original and in the plan."""
    if op.kind != "com.microsoft::FusedConv":
        return op
    attributes = {name: each for name, each in op.attributes.items() if not name.startswith("activation")}
    return Op("Conv", op.inputs[:3], op.outputs, version=version, attributes=attributes)


def _is_timed(value: Value) -> bool:
    """Whether an operand of known extents is a constant that is not large, or has float32 elements, which can be random."""
    type = value.type
    if not isinstance(type, TensorType) or type.shape is None or is_symbolic(type.shape):
        return False
    if value.data is not None:
        return value.data.nbytes <= _MAX_CONSTANT_BYTES
    return type.dtype is DType.FLOAT32


# --- times ---

_ROUNDS = (2, 24)  # the smallest and the largest number
_SECONDS = 0.01  # of the processor per kernel and thread, after which no round begins beyond the smallest number
_SPACING = 8  # kernels between two measurements of the overhead and of the reference
_CHAIN = 33  # tiny ops
_MIN_SECONDS = 1e-7  # seconds of a kernel that is not slower than a run of a tiny op
_ALIGNMENT = 64  # bytes
_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, TypeError, ValueError)
_SESSION = {"session.use_env_allocators": "1", "session.force_spinning_stop": "1"}
"""Sessions allocate buffers in one arena, where a kernel gets memory that another one has just freed, as in a network.

After a run their threads stop to wait for work by spinning: with two threads, those of the sessions before took the processors
from a kernel, which then seemed to take up to 20 times as long.
"""


def kernel_run(model: bytes, threads: int, engine: Engine | None = None) -> Action:
    """A run of a kernel in a session of its own, which has run once; with one thread, its seconds are those of the processor.

    Its inputs have just been written, and its outputs get memory that was just freed.

    Args:
        model: the kernel.
        threads: of the session.
        engine: the program that runs it; None for onnxruntime.
    """
    inputs = _inputs(model)
    if engine is not None:
        return _run_in(engine, model, threads, inputs)
    clock = thread_time if threads == 1 else perf_counter
    session = inference_session(model, threads=threads, config=_SESSION)
    outputs = [each.name for each in session.get_outputs()]
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))

    def run() -> float:
        for array in inputs.values():
            np.add(array, 0, out=array, casting="unsafe")
        for name in outputs:
            binding.bind_output(name)
        begin = clock()
        session.run_with_iobinding(binding)
        seconds = clock() - begin
        binding.clear_binding_outputs()
        return seconds

    run()
    return run


_INTERFACE_RUNS = 3


def _inputs(model: bytes) -> dict[str, Array]:
    """Random inputs of a model whose shapes are numbers."""
    types = {each.name: each.type.tensor_type for each in onnx_io.parse_message(model).graph.input}
    return {
        name: _operand(tensor_dtype_to_np_dtype(each.elem_type), tuple(dim.dim_value for dim in each.shape.dim))
        for name, each in types.items()
    }


def _run_in(engine: Engine, model: bytes, threads: int, inputs: Mapping[str, Array]) -> Action:
    """A run of a kernel in an engine, without the reorders that the engine adds at the inputs and outputs of a model.

    A network has them at its own inputs and outputs only. Their time is that in the engine's trace, without the first run.
    """
    clock = engine_clock(threads)
    with scratch_folder() as folder:
        loaded = engine.load(model, threads, folder / "trace")
        totals = []
        for number in range(1, _INTERFACE_RUNS + 1):
            loaded.run(inputs)
            totals.append(number * sum(each.seconds for each in loaded.layers() if each.is_interface))
    at_interface = min(after - before for before, after in pairwise(totals))

    def run() -> float:
        for array in inputs.values():
            np.add(array, 0, out=array, casting="unsafe")
        begin = clock()
        loaded.run(inputs)
        return clock() - begin - at_interface

    return run


def _operand(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Small random floating-point numbers, or zeros of another type, in memory as onnxruntime allocates it.

    It is aligned, and has not the huge pages of large numpy arrays.
    """
    nbytes = prod(shape) * dtype.itemsize
    memory = np.frombuffer(bytearray(nbytes + _ALIGNMENT), np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    found: Array = memory[start : start + nbytes].view(dtype).reshape(shape)
    if dtype.kind == "f":
        found[...] = small_numbers(shape)
    return found


@cache
def _share_arena() -> None:
    """Create the arena that all sessions of kernels use."""
    kinds = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    with suppress(*RUNTIME_ERRORS):  # the program that imports layoutopt has registered one
        onnxruntime.create_and_register_allocator(onnxruntime.OrtMemoryInfo("Cpu", *kinds), None)


def _run_of(text: str, threads: int, engine: Engine | None) -> Action:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}')
    return kernel_run(model.SerializeToString(), threads, engine)


@cache
def tiny_runs(threads: int, engine: Engine | None = None) -> tuple[Action, Action]:
    """Runs of a tiny op and of a chain of them, by which the overhead of a run is measured."""
    type = "float[1,16,1,1]"
    chain = " ".join(f"x{at + 1} = {('Relu', 'Neg')[at % 2]}(x{at})" for at in range(_CHAIN))
    one = _run_of(f"({type} x0) => ({type} x1) {{ x1 = Relu(x0) }}", threads, engine)
    return one, _run_of(f"({type} x0) => ({type} x{_CHAIN}) {{ {chain} }}", threads, engine)


REFERENCE = "reference: Relu, MatMul of float 256x384 and 384x384, Relu"
"""The key of the reference kernel, of which every batch of kernels has several runs in a round: see the store."""
_REFERENCE = """(float[256,384] x, float[384,384] w) => (float[256,384] y)
{ a = Relu(x) b = MatMul(a, w) y = Relu(b) }"""


def time_kernels(
    kernels: Sequence[LoweredKernel], threads: int = 1, end: float = inf, engine: Engine | None = None
) -> dict[str, float | None]:
    """The seconds of distinct kernels within a network, and of the reference, by key; None if one does not run alone.

    Kernels without sessions at the time `end`, in seconds of `process_time`, are left out, but for the first one.
    """
    _share_arena()
    with pinned(threads):
        reference = _run_of(_REFERENCE, threads, engine)
        runs: dict[str, Action | None] = {}
        for kernel in kernels:
            try:
                runs[kernel.key] = kernel_run(kernel.serialized(), threads, engine)
            except _ERRORS as error:
                raise_if_out_of_memory(error)
                runs[kernel.key] = None  # the runtime does not run it alone
            if process_time() >= end:
                break
        seconds = _in_turns(
            [each for each in runs.values() if each is not None], reference, threads, tiny_runs(threads, engine)
        )
    return {REFERENCE: seconds[reference], **{key: each and seconds[each] for key, each in runs.items()}}


def _in_turns(
    runs: Sequence[Action], reference: Action, threads: int, tiny: tuple[Action, Action]
) -> dict[Action, float]:
    """The time of every run without its overhead, which is measured in the same rounds, as the reference is."""
    limit = _SECONDS * len(runs) * threads

    def is_over(done: int, passed: float) -> bool:
        return done >= _ROUNDS[1] or (done >= _ROUNDS[0] and passed >= limit)

    def behind_tiny(run: Action) -> float:
        tiny[0]()
        return run()

    spaced: list[Action] = []
    for start in range(0, max(len(runs), 1), _SPACING):
        spaced += [*tiny, reference, *runs[start : start + _SPACING]]
    times: dict[Action, list[float]] = defaultdict(list)
    rounds = in_rounds([partial(behind_tiny, each) for each in spaced], is_over, clock=process_time)
    for each, found in zip(spaced, rounds, strict=True):
        times[each] += found
    seconds = {each: float(np.quantile(found, 0.25)) for each, found in times.items()}
    one, chain = (seconds[each] for each in tiny)
    overhead = one - (chain - one) / (_CHAIN - 1)  # without the overhead of a node, which a network has, too
    return {each: max(found - overhead, _MIN_SECONDS) for each, found in seconds.items()}
