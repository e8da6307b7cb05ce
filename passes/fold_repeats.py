"""Read keys and values of grouped queries as they are, instead of repeating them for every head.

before: k (B, 2, T, 64) -> Expand, Reshape (B, 8, T, 64) -> product with q (B, 8, S, 64)
after:  product of k with q (B, 2, 4 * S, 64)
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext
from layoutopt.patterns.repeats import fold_repeated_operand


@dataclass(frozen=True, slots=True)
class FoldRepeats(Pass):
    """Remove repeated heads from the right operands of matrix products."""

    name = "fold-repeats"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Every op; only matrix products change."""
        for op in graph.ops:
            fold_repeated_operand(graph, op, context.sizes)
