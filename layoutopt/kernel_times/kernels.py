"""A kernel as a model of its own: one op with a signature, lowered as the dialect `onnxruntime` writes it.

    Conv, x: NCHW8c, w: OIHW8i8o  -->  com.microsoft.nchwc.Conv on inputs of the declared shapes, w random

onnxruntime optimises the model at its default level, since it does the same with the kernel in the written model: a plain
convolution runs as a blocked one between two reorders.

Random elements are small, so that no result is infinite or denormal, and not zero, because some kernels skip zeros.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod

import numpy as np

from layoutopt import onnx_io
from layoutopt.dialects import Dialect, OnnxRuntime
from layoutopt.dialects.onnxruntime.winograd import alternatives
from layoutopt.dialects.onnxruntime.writers import BlockedArrays
from layoutopt.formats import Format
from layoutopt.ir.graph import CAST, DOMAIN, Graph, to_text
from layoutopt.ir.sizes import is_symbolic
from layoutopt.ir.types import (
    Array,
    DType,
    Op,
    Opaque,
    Signature,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ops import X
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.version import VERSION

_MAX_CONSTANT_BYTES = 1 << 27
"""Kernels with a larger constant have no times: their sessions alone take longer than all others."""
_CHANNELS = 1  # the axis of channels
_KEPT = 16
"""Elements up to which a floating-point constant keeps its elements: scales, bounds, epsilon."""


def small_numbers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random float32 elements, whose variance is 1 divided by the number of elements per index of the first axis."""
    deviation = np.float32(max(prod(shape[1:]), 1) ** -0.5)
    numbers: Array = generator.standard_normal(shape, dtype=np.float32) * deviation
    return numbers


@dataclass(frozen=True, slots=True)
class RandomConstant:
    """A lazy float32 constant of small random numbers."""

    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 4 * prod(self.shape)

    def numpy(self) -> Array:
        """The elements."""
        return small_numbers(np.random.default_rng(0), self.shape)


def kernel_key(graph: Graph) -> str:
    """Op types, types of inputs, and a digest of the graph without floating-point elements, equal for equal kernels."""
    data = [each.data for each in graph.values if each.dtype is not DType.FLOAT32]
    text = f"{[each.version for each in graph.ops]} {to_text(graph)}"
    digest = sha256(b"".join([text.encode(), *(each.numpy().tobytes() for each in data if each is not None)]))
    kinds, inputs = (", ".join(each) for each in ((op.kind for op in graph.ops), (str(x.type) for x in graph.inputs)))
    return f"layoutopt {VERSION}: {kinds} ({inputs}) {digest.hexdigest()[:16]}"


@dataclass(frozen=True, eq=False)
class LoweredGraph:
    """A lowered graph with inputs of known extents: several kernels that compute the same as one.

    Attributes:
        graph: the graph.
    """

    graph: Graph

    @cached_property
    def key(self) -> str:
        """The identifier of the kernel in the store."""
        return kernel_key(self.graph)

    def serialized(self) -> bytes:
        """The ONNX model."""
        return onnx_io.to_bytes(onnx_io.emit(self.graph))


class LoweredKernel(LoweredGraph):
    """An op on operands in given formats: `graph` has this op alone, not lowered."""

    @classmethod
    def of(cls, op: Op, formats: Mapping[Slot, Format], opsets: Mapping[str, int]) -> "LoweredKernel | None":
        """The kernel of an op; None if it cannot run alone: bodies, symbolic extents, activations other than float32.

        Args:
            op: the op.
            formats: the format of every operand of known rank.
            opsets: the operator sets of its model.
        """
        op = _without_epilogue(op, opsets.get("", 1))
        opaque = any(isinstance(each, Opaque) for each in op.attributes.values())
        if op.bodies or opaque or not all(_is_timed(each) for each in (*op.inputs, *op.outputs) if each is not None):
            return None
        graph = Graph("kernel", dict(opsets))
        graph.stage = "cast"
        added = dict[Value, Value]()
        for index, value in enumerate(op.inputs):
            if value is not None and value not in added:
                added[value] = graph.add_value(_operand(value, f"x{index}", formats.get(Slot("in", index))))
        graph.inputs += [each for each in added.values() if not each.is_constant]
        inputs = tuple(value and added[value] for value in op.inputs)
        outputs = tuple(
            value and graph.add_value(_operand(value, f"y{index}", formats.get(Slot("out", index))))
            for index, value in enumerate(op.outputs)
        )
        alone = op.copy(inputs, outputs, name="kernel", order=())
        storages = (tuple(None if each is None else each.storage for each in some) for some in (inputs, outputs))
        alone.signature = Signature(*storages)
        graph.add_op(alone)
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
    def _lowered(self) -> Graph:
        block = blocked_channels()
        # Without the dialect's passes: there is nothing to fuse, and the check of the block size would be timed too. Not by the
        # dialect's own `lower`, for which no array is blocked in a graph without blocked filters.
        lowered = Dialect.lower(OnnxRuntime(BlockedArrays((block,) if block else ())), self.graph)
        _remove_interface_reshapes(lowered)
        return lowered

    @cached_property
    def alternatives(self) -> list[LoweredGraph]:
        """Other algorithms for the same op on the same formats: Winograd's, for some blocked convolutions."""
        return [LoweredGraph(each) for each in self._algorithms[0]]

    @property
    def estimated_speed_up(self) -> float:
        """The estimated speed-up by the algorithm that the dialect chooses if none of the alternatives was timed."""
        return self._algorithms[1]

    @cached_property
    def _algorithms(self) -> tuple[Iterable[Graph], float]:
        op, block = self.op, blocked_channels()
        storage = op.signature[X] if op.op_type == "Conv" and op.signature is not None else None
        filter = op.inputs[1] if storage is not None and storage.format.block(_CHANNELS) == block else None
        is_pointwise = filter is None or all(extent == 1 for extent in filter.dims[2:])
        return alternatives(self._lowered, block) if block and not is_pointwise else ((), 1.0)

    def serialized(self) -> bytes:
        """The ONNX model."""
        return LoweredGraph(self._lowered).serialized()


def _operand(value: Value, name: str, format: Format | None) -> Value:
    data = value.data
    if data is not None and not _keeps_elements(value):
        data = RandomConstant(tuple(map(int, value.dims)))
    return Value(name, value.type, storage=None if format is None else Storage(format), data=data)


def _remove_interface_reshapes(graph: Graph) -> None:
    """Give inputs and outputs the shapes of the kernels: without the Reshapes at the interface, which copy there."""
    for index, value in enumerate(graph.inputs):
        uses = graph.uses(value)
        if len(uses) != 1 or uses[0].op.op_type != "Reshape":
            continue
        op, result = uses[0].op, uses[0].op.outputs[0]
        assert result is not None
        fresh = graph.new_value(value.name, result.type)
        graph.replace_uses(result, fresh)
        if graph.is_output(result):
            continue
        graph.remove_op(op)
        graph.inputs[index] = fresh
        graph.remove_value(value)
    for index, value in enumerate(graph.outputs):
        producer = graph.producer(value)
        if producer is not None and producer.op_type == "Reshape":
            source = producer.inputs[0]
            assert source is not None
            graph.set_output(index, source)
            graph.remove_op(producer)


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


def _keeps_elements(value: Value) -> bool:
    """Whether the time of a kernel may depend on the elements of a constant: axes, sizes, bounds."""
    return value.dtype is not DType.FLOAT32 or prod(map(int, value.dims)) <= _KEPT
