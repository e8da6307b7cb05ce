"""Evaluate extents that have no symbolic expression at the sizes that the model is planned for.

before: x(f32[N,8,H,W]) -> NonMaxSuppression, a MaxPool that rounds up ... -> y(f32[?1,?2])          unknown
after:  the same; where N = 1, H = 224 and W = 224, ?1 is 196 and ?2 is 112

It runs after constant folding, which renames dimensions, and before the first pass that reads the size of a tensor.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class EvaluateExtents(Pass):
    """Record extents that have no symbolic expression in the context; the graph does not change."""

    name = "evaluate-extents"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Infer shapes with numbers for the dimensions of the inputs."""
        context.sizes = context.evaluate_extents(graph, context.sizes)
