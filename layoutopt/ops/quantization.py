"""Quantised units: DequantizeLinear -> op -> QuantizeLinear, which runtimes compute as one op on integers.

An op in such a unit computes in floating point only on paper. A runtime finds the unit by its neighbours, so nothing is put
between them, and the integers are not folded into floating-point weights.
"""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op

QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def is_in_unit(graph: Graph, op: Op) -> bool:
    """Whether an op reads what was dequantised, or computes what will be quantised."""
    producers = (graph.producer(value) for value in op.inputs if value is not None)
    if any(producer is not None and producer.op_type == "DequantizeLinear" for producer in producers):
        return True
    outputs = (value for value in op.outputs if value is not None)
    return any(use.op.op_type == "QuantizeLinear" and use.index == 0 for value in outputs for use in graph.uses(value))
