"""Separates data movement from an int8 DequantizeLinear, because onnxruntime 1.31 cannot load the two at its default level.

    q -> DequantizeLinear -> Transpose        becomes        q -> DequantizeLinear -> Flatten -> Reshape -> Transpose

From opset 21 on it copies such a DequantizeLinear behind Transpose, Reshape and similar ops, with `output_dtype = INT8`, and
then changes the zero points of int8 to uint8, but not that attribute: "output_dtype INT8 does not match y_zero_point type
UINT8". It does not propagate past a Flatten, which moves no data. The DequantizeLinear itself is not changed, because QDQ
groups contain it. This is not a pass on lowered graphs: the Flatten has to be part of the function that a dialect may write for
the op. Source: onnxruntime, core/optimizer/qdq_transformer/qdq_propagation.cc and qdq_s8_to_u8.cc, pull request 28144.
"""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops import View, is_dequantizer, rule_of
from layoutopt.ops.qdq import is_per_tensor

_COPIED_SINCE = 21
_PROPAGATED_PAST = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def stop_qdq_propagation(graph: Graph, builder: OpBuilder) -> None:
    """Insert a Flatten before the recorded data-movement ops that read the output of an int8 DequantizeLinear of the graph."""
    for op in tuple(builder.ops):
        value = op.inputs[0] if op.op_type in _PROPAGATED_PAST else None
        if value is None or value not in graph or not value.shape or 0 in value.shape:
            continue
        if _is_dequantized(graph, value):
            op.inputs = (builder.prepend_flatten(value), *op.inputs[1:])


def _is_dequantized(graph: Graph, value: Value) -> bool:
    """Whether a value is the output of such a DequantizeLinear, past view ops."""
    op = graph.producer(value)
    while op is not None and isinstance(rule_of(op), View) and op.inputs[0] is not None:
        op = graph.producer(op.inputs[0])
    return op is not None and is_dequantizer(op) and _is_copied(op)


def _is_copied(dequantizer: Op) -> bool:
    """Whether onnxruntime copies a DequantizeLinear wrongly: per tensor, of int8, with a zero point."""
    x, scale, zero = (*dequantizer.inputs, None)[:3]
    is_int8 = x is not None and x.dtype is DType.INT8 and zero is not None
    return not dequantizer.domain and dequantizer.version >= _COPIED_SINCE and is_int8 and is_per_tensor(scale)


__all__ = ["stop_qdq_propagation"]
