"""Gives the operands of a MatMul of float16 equal ranks behind a conversion, because onnxruntime would crash.

before: x -> Transpose(0, 2, 1) -> MatMul(w: [8,8])
after:  x -> Transpose(0, 2, 1) -> MatMul(Unsqueeze(w): [1,8,8])

At its default level, onnxruntime 1.31 lets a product read an operand through a Transpose that moves the batch,
also if it inserts a Cast to float32 in between; if the other operand has fewer axes, that ends the process. The original
has no such Transpose, or does not run either; a plan may insert one.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, Attribute, DType, Op, TensorType, Value
from layoutopt.passes.base import Pass, PassContext

_AXES_ARE_AN_INPUT_SINCE = 13


@dataclass(frozen=True, slots=True)
class EqualizeMatmulRanks(Pass):
    """Unsqueeze the operand of lower rank of a float16 MatMul behind a conversion, because onnxruntime would crash."""

    name = "equalize-matmul-ranks"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Look at the products whose operands are both float16."""
        for op in graph.ops:
            if op.kind == "MatMul" and all(value is not None and value.dtype is DType.FLOAT16 for value in op.inputs):
                one, other = (value for value in op.inputs if value is not None)
                if one.rank is None or other.rank is None or min(one.rank, other.rank) < 2:
                    continue
                smaller, larger = sorted((one, other), key=lambda value: value.rank or 0)
                if smaller.rank != larger.rank and _is_written_by_us(graph, larger):
                    graph.set_input(op, op.inputs.index(smaller), _raised(graph, op, smaller, larger.rank or 0))


def _is_written_by_us(graph: Graph, value: Value) -> bool:
    """Whether a value comes from a Transpose, or a function with one, that the model did not have."""
    op = graph.producer(value)
    return op is not None and op.origin is None and (op.kind == "Transpose" or op.domain.startswith(DOMAIN))


def _raised(graph: Graph, op: Op, value: Value, rank: int) -> Value:
    """The same with axes of extent 1 in front."""
    assert isinstance(value.type, TensorType) and value.shape is not None
    missing = rank - len(value.shape)
    type = TensorType(value.type.dtype, (*(1 for _ in range(missing)), *value.shape))
    inputs: tuple[Value, ...] = (value,)
    attributes: dict[str, Attribute] = {"axes": tuple(range(missing))}
    opset = graph.root.opsets.get("", 0)
    if opset >= _AXES_ARE_AN_INPUT_SINCE:
        axes = ArrayData(np.arange(missing, dtype=np.int64))
        inputs = (value, graph.new_value(f"{value.name}__axes", TensorType(DType.INT64, (missing,)), data=axes))
        attributes = {}
    raised = graph.new_value(f"{value.name}__raised", type)
    unsqueeze = Op(
        "Unsqueeze", inputs, (raised,), version=opset, name=raised.name, attributes=attributes, order=op.order
    )
    graph.add_op(unsqueeze, near=op)
    return raised


__all__ = ["EqualizeMatmulRanks"]
