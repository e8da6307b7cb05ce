"""Makes a model that is packed for one block size fail on a machine with another, where it would compute garbage.

before: x -> Conv(bias = b)
after:  random numbers of 12 or 24 channels -> Conv(filter = 0, bias = b) -> Reshape -> bias of Conv

onnxruntime's blocked convolution refuses inputs whose channels are neither fewer than a block nor whole blocks. So a
convolution of 12 channels runs where a block is 16, and fails where it is 8; 24 channels do the opposite. The guard is
such a convolution, of random numbers with filters that are zero, and gives the bias of the first convolution of the
model. It takes a microsecond per run. The error names the node, and the node's name states the fault.

The numbers are random since onnxruntime computes almost everything else that is constant when it loads a model, which takes
longer than loading all the rest of a small one. Of the random ops of opset 22 it has no kernels; there the numbers come
out of a sequence, which it does not look into.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, OpaqueType, TensorType, Value
from layoutopt.ops import estimated_extent
from layoutopt.ops.region_ops import region_tree
from layoutopt.passes.base import Pass, PassContext

CHANNELS = {8: 24, 16: 12}
"""The number of channels, by block size, that a convolution accepts with this block and refuses with the other one."""

_WITHOUT_RANDOM_KERNELS = 22  # the opset from which onnxruntime 1.31 has none

NAME = "this model is packed for blocks of {} channels, and this machine has others"
_PACKED = re.compile(re.escape(NAME).replace(r"\{\}", r"(\d+)"))


@dataclass(frozen=True, slots=True)
class CheckBlockSize(Pass):
    """Add a convolution that fails on a machine with another block size, where the model would compute garbage."""

    name = "check-block-size"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Add it before the first convolution, or else the first of the blocked kernels.

        It is in the main graph, so that it runs, and once; where blocked kernels are in bodies only, these capture it.
        """
        block = context.block
        blocked = [(each, op) for each in region_tree(graph) for op in each.ops if op.domain == DOMAIN]
        if not blocked or block == 0:
            return
        write = _Writer(graph)
        for owner, op in blocked:
            bias = _bias(op)
            if bias is not None:
                flat = write.constant(np.asarray([-1], dtype=np.int64))
                guarded = _brought(graph, owner, write("Reshape", (write.refusal(block, bias), flat), bias.shape))
                owner.set_inputs(op, (*op.inputs[:2], guarded, *op.inputs[3:]))
                return
        _add_zero(graph, *blocked[0], write("ReduceSum", (write.refusal(block, np.zeros(block)),), (), keepdims=0))


def packed_block(names: Iterable[str]) -> int | None:
    """The block size that a model is packed for, from the names of its nodes; None without a guard among them."""
    matches = (_PACKED.search(name) for name in names)
    return next((int(match[1]) for match in matches if match), None)


def block_mismatch(packed: int, block: int | None, runtime: str) -> str:
    """The reason why a model that is packed for one block size does not run where `runtime` has another one, or none."""
    here = f"those of {runtime} have {block} here" if block else f"{runtime} has no blocked kernels here"
    return f"it is packed for blocks of {packed} channels, and {here}"


def _add_zero(graph: Graph, owner: Graph, op: Op, zero: Value) -> None:
    """Let an op read its first input plus a zero of the main graph."""
    x = op.inputs[0]
    assert x is not None and x.shape is not None
    result = owner.new_value("block_guard/result", TensorType(DType.FLOAT32, x.shape))
    reader = Op("Add", (x, _brought(graph, owner, zero)), (result,), version=graph.opsets[""], name=result.name)
    producer = owner.producer(x)
    owner.add_op(reader, near=producer, first=producer is None)
    owner.set_input(op, 0, result)


def _brought(graph: Graph, owner: Graph, value: Value) -> Value:
    """The value in a body that corresponds to a value of the main graph, captured by every op around the body."""
    around = {body: (each, op) for each in region_tree(graph) for op in each.ops for body in op.bodies.values()}
    path = []
    while owner is not graph:
        outer, op = around[owner]
        path.append((outer, op, owner))
        owner = outer
    for outer, op, body in reversed(path):
        captured = outer.capture(op, value)
        value = captured[list(op.bodies.values()).index(body)]
    return value


def _bias(conv: Op) -> Array | None:
    """The constant bias of a convolution, zeros if it has none; None if it is no convolution or computes its bias."""
    if conv.op_type != "Conv":
        return None
    weight = conv.inputs[1]
    assert weight is not None and weight.shape is not None
    if len(conv.inputs) < 3 or conv.inputs[2] is None:
        return np.zeros(estimated_extent(weight.shape[0]), dtype=np.float32)
    return conv.constant(2)


class _Writer:
    """Adds ops at the beginning of a graph, one behind the other."""

    def __init__(self, graph: Graph) -> None:
        """Add to `graph`."""
        self._graph = graph
        self._last: Op | None = None

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        type = TensorType(DType.of(array), array.shape)
        return self._graph.new_value("block_guard/constant", type, data=ArrayData(array))

    def refusal(self, block: int, bias: Array) -> Value:
        """A value of shape (1, len(bias), 1, 1) that is `bias`, by a kernel that only takes blocks of the right size."""
        channels = CHANNELS[block]
        noise = self._noise((1, channels, 1, 1))
        weight = self.constant(np.zeros((bias.size, channels, 1, 1), dtype=np.float32))
        operands = (noise, weight, self.constant(bias.astype(np.float32)))
        return self("Conv", operands, (1, bias.size, 1, 1), NAME.format(block), kernel_shape=(1, 1))

    def _noise(self, extents: tuple[int, ...]) -> Value:
        """Numbers that onnxruntime does not take for constants."""
        if self._graph.opsets[""] < _WITHOUT_RANDOM_KERNELS:
            return self("RandomUniform", (), extents, shape=extents, low=0.0, high=1.0, dtype=1)
        ones = self.constant(np.ones(extents, dtype=np.float32))
        sequence = self("SequenceConstruct", (ones,), None)
        return self("SequenceAt", (sequence, self.constant(np.asarray(0, dtype=np.int64))), extents)

    def __call__(
        self, kind: str, inputs: tuple[Value, ...], extents: tuple[int, ...] | None, name: str = "", **fields: Attribute
    ) -> Value:
        """An op with one output: a tensor of float32, or a sequence if there are no extents."""
        domain = DOMAIN if kind == "Conv" else ""
        type = OpaqueType("sequence") if extents is None else TensorType(DType.FLOAT32, extents)
        result = self._graph.new_value(f"block_guard/{kind}", type)
        version = 1 if domain else self._graph.opsets[""]
        op = Op(kind, inputs, (result,), domain=domain, version=version, name=name or result.name, attributes=fields)
        self._last = self._graph.add_op(op, near=self._last, first=self._last is None)
        return result
