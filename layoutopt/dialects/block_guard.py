"""A model packed for one block size computes garbage on a machine with another, without a word. This makes it stop.

A ramp is reordered by the machine's own kernel; where block 8 and block 16 differ, one element is compared with what the
model was packed for, and the difference is an index into a list of one zero, which is added to a bias. On the right
machine all of it is folded away when the session is created; on another the index is out of range, and the error names
the node.
"""

import numpy as np

from layoutopt.dialects.conv_fusion import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, TensorType, Value
from layoutopt.ops import extent

_CHANNELS, _WIDTH, _PLACE = 16, 2, 8
_RAMP = np.arange(_CHANNELS * _WIDTH, dtype=np.float32).reshape(1, _CHANNELS, 1, _WIDTH)


def expected(block: int) -> float:
    """The element of the reordered ramp at the place that is compared, for blocks of 8 or 16 channels."""
    return float(_RAMP.reshape(_CHANNELS // block, block, _WIDTH).transpose(0, 2, 1).reshape(-1)[_PLACE])


def guard(graph: Graph, block: int) -> None:
    """Put the guard into a lowered graph, at its first blocked convolution; one without convolutions has no use for it."""
    conv = next((op for op in graph.ops if op.op_type == "Conv" and op.domain == DOMAIN), None)
    if conv is None or block == 0:
        return
    weight = conv.inputs[1]
    assert weight is not None and weight.shape is not None
    write = _Writer(graph)
    ramp = write("ReorderInput", [write.constant(_RAMP)], DType.FLOAT32, DOMAIN, channels_last=0)
    flat = write("Reshape", [ramp, write.constant(np.asarray([-1], dtype=np.int64))], DType.FLOAT32)
    found = write("Gather", [flat, write.constant(np.asarray([_PLACE], dtype=np.int64))], DType.FLOAT32)
    difference = write("Sub", [found, write.constant(np.asarray([expected(block)], dtype=np.float32))], DType.FLOAT32)
    index = write("Cast", [difference], DType.INT64, to=7)
    write.name = f"this model is packed for blocks of {block} channels, and this machine has others"
    zero = write("Gather", [write.constant(np.zeros(1, dtype=np.float32)), index], DType.FLOAT32)
    write.name = ""
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if bias is None:
        bias = write.constant(np.zeros([extent(dim) for dim in weight.shape[:1]], dtype=np.float32))
    guarded = write("Add", [bias, zero], DType.FLOAT32)
    graph.set_inputs(conv, (*conv.inputs[:2], guarded, *conv.inputs[3:]))


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
