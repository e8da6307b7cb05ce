"""Makes a model that is packed for one block size fail on machines with another one, where its results would be wrong.

before: x -> Conv(bias = b)
after:  random numbers of 12 or 24 channels -> Conv(filter = 0, bias = b) -> Reshape -> bias of Conv

onnxruntime's blocked convolution refuses inputs whose channels are neither fewer than a block nor whole blocks. So a
convolution of 12 channels runs where a block is 16, and fails where it is 8; 24 channels do the opposite. The check is
such a convolution, of random numbers with filters of zeros, whose result is the bias of the first convolution of the
model. It takes a microsecond per run. onnxruntime's error contains the name of the node, which states the fault.

The input is random because onnxruntime folds other constants when it loads a model, which takes longer than loading a small
model. It has no kernels for the random ops of opset 22; there the input is an element of a sequence, which it does not fold.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, OpaqueType, TensorType, Value
from layoutopt.ops import estimated_extent
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext

CHANNELS = {8: 24, 16: 12}
"""The number of channels, by block size, that a convolution accepts with this block and refuses with the other one."""

_WITHOUT_RANDOM_KERNELS = 22  # the opset from which onnxruntime 1.31 has none

NAME = "this model is packed for blocks of {} channels, and this machine has others"
_PACKED = re.compile(re.escape(NAME).replace(r"\{\}", r"(\d+)"))


@dataclass(frozen=True, slots=True)
class CheckBlockSize(Pass):
    """Add a convolution that fails on machines with another block size, where the results of the model would be wrong."""

    name = "check-block-size"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Add the check in front of the first blocked convolution, or of the first other blocked kernel if there is none.

        It is in the main graph, so that it runs exactly once; bodies capture its result.
        """
        block = context.block
        blocked = [(each, op) for each in regions_with_rule(graph) for op in each.ops if op.domain == DOMAIN]
        if not blocked or block == 0:
            return
        write = _PrologueWriter(graph)
        for owner, op in blocked:
            bias = _bias(op)
            if bias is not None:
                flat = write.constant(np.asarray([-1], dtype=np.int64))
                checked = _captured(graph, owner, write("Reshape", (write.checked_bias(block, bias), flat), bias.shape))
                owner.set_inputs(op, (*op.inputs[:2], checked, *op.inputs[3:]))
                return
        _add_zero(graph, *blocked[0], write("ReduceSum", (write.checked_bias(block, np.zeros(block)),), (), keepdims=0))


def packed_block(names: Iterable[str]) -> int | None:
    """The block size that a model is packed for, from the names of its nodes; None if it has no block-size check."""
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
    producer, inputs = owner.producer(x), (x, _captured(graph, owner, zero))
    type, stem = TensorType(DType.FLOAT32, x.shape), "block_guard/result"
    owner.set_input(op, 0, owner.new_result("Add", inputs, type, stem, producer, first=producer is None))


def _captured(graph: Graph, owner: Graph, value: Value) -> Value:
    """The value in a body that corresponds to a value of the main graph, captured by every op around the body."""
    around = {body: (each, op) for each in regions_with_rule(graph) for op in each.ops for body in op.bodies.values()}
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


class _PrologueWriter:
    """Adds ops at the beginning of a graph, each behind the previous one."""

    def __init__(self, graph: Graph) -> None:
        """Begin in front of the first op of `graph`."""
        self._graph = graph
        self._last: Op | None = None

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        return self._graph.new_constant(array, "block_guard/constant")

    def checked_bias(self, block: int, bias: Array) -> Value:
        """A value of shape (1, len(bias), 1, 1) that is `bias`, computed by a kernel that refuses other block sizes."""
        channels = CHANNELS[block]
        noise = self._unfolded_numbers((1, channels, 1, 1))
        weight = self.constant(np.zeros((bias.size, channels, 1, 1), dtype=np.float32))
        operands = (noise, weight, self.constant(bias.astype(np.float32)))
        return self("Conv", operands, (1, bias.size, 1, 1), NAME.format(block), kernel_shape=(1, 1))

    def _unfolded_numbers(self, extents: tuple[int, ...]) -> Value:
        """A tensor that onnxruntime does not fold."""
        if self._graph.opsets[""] < _WITHOUT_RANDOM_KERNELS:
            return self("RandomUniform", (), extents, shape=extents, low=0.0, high=1.0, dtype=1)
        ones = self.constant(np.ones(extents, dtype=np.float32))
        sequence = self("SequenceConstruct", (ones,), None)
        return self("SequenceAt", (sequence, self.constant(np.asarray(0, dtype=np.int64))), extents)

    def __call__(
        self, kind: str, inputs: tuple[Value, ...], extents: tuple[int, ...] | None, name: str = "", **fields: Attribute
    ) -> Value:
        """The output of a new op: a float32 tensor, or a sequence if `extents` is None."""
        type = OpaqueType("sequence") if extents is None else TensorType(DType.FLOAT32, extents)
        result = self._graph.new_result(
            f"{DOMAIN}::Conv" if kind == "Conv" else kind,
            inputs,
            type,
            f"block_guard/{kind}",
            self._last,
            first=self._last is None,
            name=name,
            attributes=fields,
        )
        self._last = self._graph.producer(result)
        return result
