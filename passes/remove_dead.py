"""Remove ops and constants that no output depends on.

before: x -> Relu -> y, where y is neither read nor an output
after:  (nothing)

A captured value that a body does not read is no longer captured, so that its producer may be removed.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class RemoveDead(Pass):
    """Remove ops and constants that no output depends on."""

    name = "remove-dead"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Remove ops in reverse topological order, so that a dead chain is removed in one traversal; then constants."""
        for op in reversed(graph.ops):
            outputs = [value for value in op.outputs if value is not None]
            if not any(graph.is_used(value) for value in outputs):
                graph.remove_op(op)
            elif op.captured:
                self._release(graph, op)
        for value in graph.values:
            if value.is_constant and not graph.is_used(value):
                graph.remove_value(value)

    def _release(self, graph: Graph, op: Op) -> None:
        """Remove the captured values that no body of an op reads."""
        for index in reversed(range(op.uncaptured_input_count, len(op.inputs))):
            position = index - len(op.inputs)
            if not any(body.is_used(body.inputs[position]) for body in op.bodies.values()):
                graph.remove_capture(op, index)
