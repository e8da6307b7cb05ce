"""Gives the operands of a MatMul of float16 equal ranks behind a conversion, because onnxruntime would crash.

before: x -> Transpose(0, 2, 1) -> MatMul(w: [8,8])
after:  x -> Transpose(0, 2, 1) -> MatMul(Unsqueeze(w): [1,8,8])

At its default level, onnxruntime 1.31 fuses a Transpose that moves the batch into a product, even through a Cast to float32
that it inserts; if the other operand has fewer axes, the process crashes. Only a Transpose that layoutopt inserts is relevant:
an original with such a Transpose crashes too.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import DOMAIN, Graph
from layoutopt.ir.types import Attribute, DType, Op, TensorType, Value
from layoutopt.passes.base import Pass, PassContext

_AXES_ARE_AN_INPUT_SINCE = 13


@dataclass(frozen=True, slots=True)
class EqualizeMatmulRanks(Pass):
    """Unsqueeze the operand of lower rank of a float16 MatMul behind a conversion, because onnxruntime would crash."""

    name = "equalize-matmul-ranks"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the products whose operands are both float16."""
        for op in graph.ops:
            if op.kind == "MatMul" and all(value is not None and value.dtype is DType.FLOAT16 for value in op.inputs):
                one, other = (value for value in op.inputs if value is not None)
                if one.rank is None or other.rank is None or min(one.rank, other.rank) < 2:
                    continue
                smaller, larger = sorted((one, other), key=lambda value: value.rank or 0)
                if smaller.rank != larger.rank and _is_inserted(graph, larger):
                    graph.set_input(op, op.inputs.index(smaller), _unsqueezed(graph, op, smaller, larger.rank or 0))


def _is_inserted(graph: Graph, value: Value) -> bool:
    """Whether a Transpose, or a function with one, computes a value, and layoutopt inserted it."""
    op = graph.producer(value)
    return op is not None and op.origin is None and (op.kind == "Transpose" or op.domain.startswith(DOMAIN))


def _unsqueezed(graph: Graph, op: Op, value: Value, rank: int) -> Value:
    """The output of a new Unsqueeze that adds axes of extent 1 in front."""
    assert isinstance(value.type, TensorType) and value.shape is not None
    missing = rank - len(value.shape)
    type = TensorType(value.type.dtype, (*(1 for _ in range(missing)), *value.shape))
    inputs: tuple[Value, ...] = (value,)
    attributes: dict[str, Attribute] = {"axes": tuple(range(missing))}
    if graph.opsets.get("", 0) >= _AXES_ARE_AN_INPUT_SINCE:
        inputs = (value, graph.new_constant(np.arange(missing), f"{value.name}__axes"))
        attributes = {}
    name = f"{value.name}__raised"
    return graph.new_result("Unsqueeze", inputs, type, name, op, attributes=attributes, order=op.order)


__all__ = ["EqualizeMatmulRanks"]
