"""Writes a Softmax between Q/DQ ops so that onnxruntime does not compute it on integers.

before: q -> DequantizeLinear -> Softmax -> QuantizeLinear -> p
after:  q -> DequantizeLinear -> Flatten -> Softmax -> QuantizeLinear -> Reshape -> p

When onnxruntime loads a model, it makes QLinearSoftmax of the first, whose kernel divides element by element: 7.8 ms against
1.1 on uint8[4,4,256,256] (onnxruntime 1.23.2, one thread, AVX2). Flatten and Reshape move no data. onnxruntime's pattern has
the DequantizeLinear directly in front of the Softmax; onnxruntime moves it past a Reshape, but not past a Flatten.
"""

from dataclasses import dataclass
from math import prod

from layoutopt.dialects.data_movement import add_reshape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, TensorType
from layoutopt.ops.qdq import is_dequantizer, is_per_tensor, is_quantizer
from layoutopt.passes.base import Pass, PassContext

_SMALLEST = 1 << 12
"""The smallest number of elements for which Q/DQ ops and Softmax are faster than the kernel on integers."""
_ONE_AXIS = 13  # since this opset a Softmax is along one axis


@dataclass(frozen=True, slots=True)
class KeepSoftmaxInFloatingPoint(Pass):
    """Write a Softmax between Q/DQ ops on a matrix, because onnxruntime would use a slower kernel on integers."""

    name = "keep-softmax-in-floating-point"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the Softmaxes along one axis."""
        for op in graph.ops:
            if op.kind == "Softmax" and op.version >= _ONE_AXIS:
                _rewrite(graph, op)


def _rewrite(graph: Graph, softmax: Op) -> None:
    x, y = softmax.inputs[0], softmax.outputs[0]
    producer = graph.producer(x) if x is not None else None
    shape = y.static_shape if y is not None else None
    if x is None or y is None or shape is None or producer is None or not is_dequantizer(producer):
        return
    if prod(shape) < _SMALLEST or softmax.integer("axis", -1) % len(shape) != len(shape) - 1:
        return
    quantizer = graph.only_reader(y)
    p = quantizer.outputs[0] if quantizer is not None and is_quantizer(quantizer) else None
    if quantizer is None or p is None or p.dtype is None or not is_per_tensor(quantizer.inputs[1]):
        return
    matrix, attributes = TensorType(DType.FLOAT32, (prod(shape[:-1]), shape[-1])), {"axis": len(shape) - 1}
    flat = graph.new_result("Flatten", (x,), matrix, f"{y.name}/operand", softmax, attributes=attributes)
    result = graph.new_value(f"{y.name}/matrix", matrix)
    graph.add_copy(softmax, (result,), (flat,), name=softmax.name, attributes={"axis": -1})
    integers = graph.new_value(f"{p.name}/matrix", TensorType(p.dtype, matrix.shape))
    graph.add_copy(quantizer, (integers,), (result, *quantizer.inputs[1:]), name=quantizer.name)
    graph.replace_value(p, add_reshape(graph, integers, shape, softmax))
