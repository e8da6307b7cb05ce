"""Separates data movement from an int8 DequantizeLinear, because onnxruntime 1.31 cannot load the two at its default level.

    q -> DequantizeLinear -> Transpose        becomes        q -> DequantizeLinear -> Flatten -> Reshape -> Transpose

From opset 21 on it copies such a step behind Transpose, Reshape and their kin, with `output_dtype = INT8`, and then changes
the zero points of int8 to uint8, but not that attribute: "output_dtype INT8 does not match y_zero_point type UINT8". It does
not look behind a Flatten, which is no work. The step itself may not be changed, as others look for it. This is not a pass on
lowered graphs: the Flatten has to be part of the function that a dialect may write for the op.
Source: onnxruntime, core/optimizer/qdq_transformer/qdq_propagation.cc and qdq_s8_to_u8.cc, pull request 28144.
"""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.ops import View, is_dequantizer, rule_of

_COPIED_SINCE = 21
_LOOKED_THROUGH = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def stop_qdq_propagation(graph: Graph, builder: OpBuilder) -> None:
    """Put a Flatten before those of the recorded ops that move what an int8 DequantizeLinear of the graph gives."""
    for op in tuple(builder.ops):
        value = op.inputs[0] if op.op_type in _LOOKED_THROUGH else None
        if value is None or value not in graph or not value.shape or 0 in value.shape:
            continue
        if _is_dequantized(graph, value):
            op.inputs = (builder.there_and_back(value), *op.inputs[1:])


def _is_dequantized(graph: Graph, value: Value) -> bool:
    """Whether a value is that of such a step under some names."""
    op = graph.producer(value)
    while op is not None and isinstance(rule_of(op), View) and op.inputs[0] is not None:
        op = graph.producer(op.inputs[0])
    return op is not None and is_dequantizer(op) and _is_copied(op)


def _is_copied(step: Op) -> bool:
    """Whether onnxruntime copies a step and gets it wrong: one scale and one zero point for all of int8."""
    x, scale, zero = (*step.inputs, None)[:3]
    numbers = scale is not None and zero is not None and scale.shape in ((), (1,))
    return not step.domain and step.version >= _COPIED_SINCE and numbers and x is not None and x.dtype is DType.INT8


__all__ = ["stop_qdq_propagation"]
