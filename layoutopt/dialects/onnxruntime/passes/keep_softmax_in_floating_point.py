"""Writes a Softmax between Q/DQ ops so that onnxruntime does not compute it on integers.

before: q -> DequantizeLinear -> Softmax -> QuantizeLinear -> p
after:  q -> DequantizeLinear -> Softmax -> Abs -> QuantizeLinear -> p

When onnxruntime loads a model, it makes QLinearSoftmax of the first, whose kernel divides number by number: 7.8 ms against 1.2
on uint8[4,4,256,256] (onnxruntime 1.23.2, one thread, AVX2). The results of a Softmax are not negative, so the Abs
changes nothing but the neighbours that onnxruntime looks at.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops.quantization.qdq_group import is_dequantizer, is_quantizer
from layoutopt.passes.base import Pass, PassContext

_SMALLEST = 1 << 12
"""The number of elements from which on the two Q/DQ ops, the Softmax and the Abs are faster than the kernel on integers."""


@dataclass(frozen=True, slots=True)
class KeepSoftmaxInFloatingPoint(Pass):
    """Write a Softmax between Q/DQ ops with an Abs behind it, because onnxruntime would use a slower kernel on integers."""

    name = "keep-softmax-in-floating-point"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Look at every Softmax; one with a symbolic extent counts as large."""
        for op in graph.ops:
            x, y = (op.inputs[0], op.outputs[0]) if op.kind == "Softmax" else (None, None)
            producer = graph.producer(x) if x is not None else None
            if y is None or producer is None or not is_dequantizer(producer):
                continue
            quantizers = [use for use in graph.uses(y) if is_quantizer(use.op) and use.index == 0]
            size = 1
            for extent in y.static_shape or (_SMALLEST,):
                size *= extent
            if not quantizers or size < _SMALLEST:
                continue
            result = graph.new_value(f"{y.name}/not_negative", y.type)
            graph.add_op(Op("Abs", (y,), (result,), version=graph.opsets[""]), op)
            graph.replace_uses(y, result, quantizers)
