"""A model packed for one block size computes garbage on a machine with another, without a word. This makes it stop.

A ramp is reordered by the machine's own kernel; where block 8 and block 16 differ, one element is compared with what the
model was packed for, and the difference is an index into a list of one zero, which is added to a bias. On the right
machine all of it is folded away when the session is created; on another the index is out of range, and the error names
the node.
"""

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, TensorType, Value
from layoutopt.ops import extent

_CHANNELS, _WIDTH, _PLACE = 16, 2, 8
_RAMP = np.arange(_CHANNELS * _WIDTH, dtype=np.float32).reshape(1, _CHANNELS, 1, _WIDTH)


def expected(block: int) -> float:
    """The element of the reordered ramp at the place that is compared, for blocks of 8 or 16 channels."""
    return float(_RAMP.reshape(_CHANNELS // block, block, _WIDTH).transpose(0, 2, 1).reshape(-1)[_PLACE])


def guard(graph: Graph, block: int) -> None:
    """Put the guard into a lowered graph that has blocked kernels: before the first convolution, or else the first of them."""
    blocked = [op for op in graph.ops if op.domain == DOMAIN]
    if not blocked or block == 0:
        return
    op = next((each for each in blocked if each.op_type == "Conv"), blocked[0])
    write = _Writer(graph)
    ramp = write("ReorderInput", [write.constant(_RAMP)], DType.FLOAT32, DOMAIN, channels_last=0)
    flat = write("Reshape", [ramp, write.constant(np.asarray([-1], dtype=np.int64))], DType.FLOAT32)
    found = write("Gather", [flat, write.constant(np.asarray([_PLACE], dtype=np.int64))], DType.FLOAT32)
    difference = write("Sub", [found, write.constant(np.asarray([expected(block)], dtype=np.float32))], DType.FLOAT32)
    index = write("Cast", [difference], DType.INT64, to=7)
    write.name = f"this model is packed for blocks of {block} channels, and this machine has others"
    zero = write("Gather", [write.constant(np.zeros(1, dtype=np.float32)), index], DType.FLOAT32)
    write.name = ""
    place, operand = (2, _bias(op, write)) if op.op_type == "Conv" else (0, op.inputs[0])
    assert operand is not None
    guarded = write("Add", [operand, zero], DType.FLOAT32)
    graph.set_inputs(op, (*op.inputs[:place], guarded, *op.inputs[place + 1 :]))


def _bias(conv: Op, write: "_Writer") -> Value:
    """The bias of a convolution; zeros if it has none."""
    weight, bias = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 else None
    assert weight is not None and weight.shape is not None
    return bias if bias is not None else write.constant(np.zeros(extent(weight.shape[0]), dtype=np.float32))


class _Writer:
    """Adds ops at the beginning of a graph, named after what they are unless `name` says otherwise."""

    def __init__(self, graph: Graph) -> None:
        """Add to `graph`."""
        self._graph = graph
        self.name = ""

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        type = TensorType(DType.of(array), array.shape)
        return self._graph.new_value("block_guard/constant", type, data=ArrayData(array))

    def __call__(self, kind: str, inputs: list[Value], dtype: DType, domain: str = "", **fields: Attribute) -> Value:
        result = self._graph.new_value(f"block_guard/{kind}", TensorType(dtype, None))
        version = 1 if domain else self._graph.opsets[""]
        name = self.name or result.name
        op = Op(kind, tuple(inputs), (result,), domain=domain, version=version, name=name, attributes=dict(fields))
        self._graph.add_op(op, first=True)
        return result
