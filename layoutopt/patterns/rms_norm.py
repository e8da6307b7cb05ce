"""Root mean square normalisation: a tensor over the root of the mean square of its last axis, times a scale.

before: x -> Pow(2) -> ReduceMean -> Add(epsilon) -> Sqrt -> Reciprocal, or Div(1, .) -> Mul(x) -> Mul(scale)
        x -> Mul(x) -> ReduceMean -> Add(epsilon) -> Sqrt -> Div(x, .) -> Mul(scale)
after:  x -> SimplifiedLayerNormalization(scale)

Otherwise the scale would be folded into the products behind it, and onnxruntime would not recognise the normalisation.
The definition: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467.
"""

from typing import ClassVar

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value
from layoutopt.patterns.base import FusionPattern, Match, number, other_input, register_pattern, result_of


@register_pattern
class RmsNormalization(FusionPattern):
    """A normalisation over the last axis, with a constant scale per element of it."""

    name = "rms-norm"
    fused_op = "SimplifiedLayerNormalization"
    root_ops: ClassVar[tuple[str, ...]] = ("Sqrt",)
    needs_kernel = True

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The mean square before the root, and the quotient and the scale behind it."""
        found = _mean_square(graph, op)
        if found is None:
            return None
        x, epsilon, before = found
        quotient = _quotient(graph, op, x)
        if quotient is None:
            return None
        normalized = result_of(quotient[-1])
        reader = graph.only_reader(normalized)
        while reader is not None and reader.kind == "Cast" and (after := result_of(reader)) is not None:
            if after.dtype is not x.dtype:  # TorchScript writes Casts from float32 to float32 before the scale
                return None
            quotient.append(reader)
            normalized, reader = after, graph.only_reader(after)
        if normalized is None or reader is None or reader.kind != "Mul":
            return None
        scale, result = other_input(reader, normalized), result_of(reader)
        if scale is None or result is None or not scale.is_constant or result.shape != x.shape or x.shape is None:
            return None
        if scale.shape != x.shape[-1:] or scale.dtype is not x.dtype:
            return None
        return Match(result, [*before, op, *quotient, reader], (x, scale), {"axis": -1, "epsilon": epsilon})


def _mean_square(graph: Graph, root: Op) -> tuple[Value, float, list[Op]] | None:
    """The tensor x, epsilon and the ops of Add(ReduceMean(x * x), epsilon), which a Sqrt reads; None for anything else."""
    add = graph.producer(root.inputs[0]) if root.inputs[0] is not None else None
    if add is None or add.kind != "Add":
        return None
    for mean, constant in (add.inputs, add.inputs[::-1]):
        epsilon, reduce = number(constant), graph.producer(mean) if mean is not None else None
        if epsilon is None or reduce is None or reduce.kind != "ReduceMean" or reduce.inputs[0] is None:
            continue
        square = graph.producer(reduce.inputs[0])
        x = square.inputs[0] if square is not None else None
        if square is None or x is None or not x.shape or x.dtype is not DType.FLOAT32:
            continue
        is_square = (square.kind == "Mul" and square.inputs[1] is x) or (
            square.kind == "Pow" and number(square.inputs[1]) == 2.0
        )
        axes = reduce.integers("axes") or reduce.elements(1) or ()
        if is_square and axes in ((-1,), (len(x.shape) - 1,)) and reduce.integer("keepdims", 1) and epsilon > 0:
            return x, epsilon, [square, reduce, add]
    return None


def _quotient(graph: Graph, root: Op, x: Value) -> list[Op] | None:
    """The ops that divide x by a root: Div, or Mul by its Reciprocal; None for anything else."""
    value = result_of(root)
    op = graph.only_reader(value)
    if value is None or op is None:
        return None
    if op.kind == "Div" and op.inputs[0] is x and op.inputs[1] is value:
        return [op]
    if op.kind == "Reciprocal" or (op.kind == "Div" and number(op.inputs[0]) == 1.0):
        inverse = result_of(op)
        product = graph.only_reader(inverse)
        if inverse is not None and product is not None and product.kind == "Mul" and other_input(product, inverse) is x:
            return [op, product]
    return None
