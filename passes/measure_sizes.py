"""Find how large the dimensions are that no expression says, at the sizes that are planned for.

before: x(f32[N,8,H,W]) -> NonMaxSuppression, a MaxPool that rounds up ... -> y(f32[?1,?2])          nobody knows
after:  the same; where N = 1, H = 224 and W = 224, ?1 is 196 and ?2 is 112

After constants are folded, which names dimensions anew, and before anything asks how large a tensor is.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class MeasureSizes(Pass):
    """Complete the sizes in the context; the graph stays as it is."""

    name = "measure-sizes"
    is_reason = False
    is_whole = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """By inference with numbers for the dimensions of the inputs."""
        context.sizes = context.measure(graph, context.sizes)
