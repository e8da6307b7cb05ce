"""Take out ops and constants that nothing reads.

before: x -> Relu -> y, where y is neither read nor an output
after:  (nothing)
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.pass_base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class RemoveDead(Pass):
    """Keep what an output depends on."""

    name = "remove-dead"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """From the outputs backwards, so a dead chain goes in one walk; then constants."""
        for op in reversed(graph.ops):
            outputs = [value for value in op.outputs if value is not None]
            if not any(graph.uses(value) or graph.is_output(value) for value in outputs):
                graph.remove_op(op)
        for value in graph.values:
            if value.is_constant and not graph.uses(value) and not graph.is_output(value):
                graph.remove_value(value)
