"""An Einsum that only permutes the axes of one tensor, as a Transpose.

before: x (N,H,W,C) -> Einsum "nhwc->nchw" -> y (N,C,H,W)
after:  x (N,H,W,C) -> Transpose {perm = 0, 3, 1, 2} -> y

A Transpose is a metadata-only op: it propagates every format and moves no bytes of its own.
"""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops.contraction import permutation
from layoutopt.patterns.base import FusionPattern, Match, register_pattern, result_of


@register_pattern
class PermutingEinsum(FusionPattern):
    """An Einsum that permutes the axes of its operand."""

    name = "permuted-axes"
    fused_op = "Transpose"
    root_ops = ("Einsum",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Transpose that computes the same as the Einsum; None if there is none."""
        del graph
        y, perm = result_of(op), permutation(op)
        return None if y is None or perm is None else Match(y, (op,), op.inputs, {"perm": perm})
