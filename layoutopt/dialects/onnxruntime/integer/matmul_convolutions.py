"""Writes an integer product with constant weights as a pointwise convolution, whose kernel rounds its sums at once.

before: QLinearMatMul((4, 256, 144), weights (144, 432))
after:  QLinearConv(channels_last)((4, 256, 144), weights (432, 144, 1))

QLinearMatMul writes 32-bit sums to memory first: 1020 us against 905. QLinearConv has a kernel that does not, for weights of
int8 with the zero point 0, activations of uint8, input channels in multiples of 4 and output channels in multiples of 8. Either
computes the same sums of integers and multiplies them by the same float32 number, so the results are equal.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.dialects.data_movement import add_reshape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Op, TensorType
from layoutopt.passes.base import Pass, PassContext

_INPUT_CHANNELS_MULTIPLE = 4
_OUTPUT_CHANNELS_MULTIPLE = 8
_MIN_OUTPUT_CHANNELS = 16
_MIN_ROWS = 4  # the rows that the kernel computes at once


@dataclass(frozen=True, slots=True)
class MatmulConvolutions(Pass):
    """Write QLinearMatMuls with constant weights as pointwise QLinearConvs."""

    name = "matmul-convolutions"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Look at every QLinearMatMul."""
        for op in graph.ops:
            if op.kind == "QLinearMatMul" and _has_kernel(op):
                _rewrite(graph, op)


def _has_kernel(op: Op) -> bool:
    """Whether QLinearConv has its fast kernel for the operands."""
    x, y, weights, zeros = op.inputs[0], op.outputs[0], op.constant(3), op.constant(5)
    if x is None or y is None or weights is None or zeros is None or op.constant(2) is None or zeros.any():
        return False
    if x.dtype is not DType.UINT8 or y.dtype is not DType.UINT8 or weights.dtype != np.int8 or weights.ndim != 2:
        return False
    scales = op.constant(4)
    if x.static_shape is None or len(x.static_shape) < 2 or scales is None or scales.size not in (1, weights.shape[1]):
        return False
    inputs, outputs = weights.shape
    are_multiples = inputs % _INPUT_CHANNELS_MULTIPLE == 0 and outputs % _OUTPUT_CHANNELS_MULTIPLE == 0
    return are_multiples and outputs >= _MIN_OUTPUT_CHANNELS and prod(x.static_shape[:-1]) >= _MIN_ROWS


def _rewrite(graph: Graph, op: Op) -> None:
    x, y, weights, scales, zeros = op.inputs[0], op.outputs[0], op.constant(3), op.constant(4), op.constant(5)
    assert x is not None and y is not None and x.static_shape is not None and y.static_shape is not None
    assert weights is not None and scales is not None and zeros is not None
    channels = weights.shape[1]
    stem = f"{y.name}/convolution"
    filters = graph.new_constant(np.ascontiguousarray(weights.T).reshape(channels, -1, 1), stem)
    scale = graph.new_constant(scales.reshape(-1) if scales.size > 1 else scales.reshape(()), stem)
    zero = graph.new_constant(zeros.reshape(-1) if zeros.size == channels else np.zeros((), np.int8), stem)
    rows = (1, prod(x.static_shape[:-1]), x.static_shape[-1])
    is_3d = len(x.static_shape) == len(rows) and x.static_shape[0] == 1
    source = x if is_3d else add_reshape(graph, x, rows, op)
    inputs = (source, op.inputs[1], op.inputs[2], filters, scale, zero, op.inputs[6], op.inputs[7])
    attributes: dict[str, Attribute] = {"channels_last": 1, "kernel_shape": (1,)}
    result = graph.new_value(f"{y.name}/rows", TensorType(DType.UINT8, (*rows[:-1], channels)))
    graph.opsets.setdefault("com.microsoft", 1)
    convolution = Op(
        "QLinearConv", inputs, (result,), domain="com.microsoft", version=1, attributes=attributes, name=op.name
    )
    graph.add_op(convolution, op)
    graph.replace_value(y, result if is_3d else add_reshape(graph, result, y.static_shape, op))
