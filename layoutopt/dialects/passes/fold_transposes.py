"""Stores the constants that Transposes compute from constants.

before: w: [8,4] -> Transpose(1, 0) -> Gemm
after:  w, packed: [4,8] -> Gemm

An op that is written as Transpose, op, Transpose may have a Transpose of a constant operand.
"""

from dataclasses import dataclass

from layoutopt.dialects.packed import Packed
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import TensorType
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class FoldTransposes(Pass):
    """Replace the Transpose of a constant by a constant, unless weights are trained."""

    name = "fold-transposes"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the Transposes in topological order, so that chains are folded."""
        for op in graph.ops if context.mode == "inference" else ():
            source, result = op.inputs[0] if op.inputs else None, op.outputs[0]
            if op.kind != "Transpose" or source is None or source.data is None or result is None:
                continue
            if graph.is_output(result) or not isinstance(result.type, TensorType) or result.static_shape is None:
                continue
            perm = op.integers("perm") or tuple(reversed(range(len(result.static_shape))))
            data = Packed(source.data, Format.plain(perm), result.static_shape, source.data.nbytes)
            folded = graph.new_value(f"{result.name}__folded", result.type, data=data)
            graph.replace_uses(result, folded)
            graph.remove_op(op)


__all__ = ["FoldTransposes"]
