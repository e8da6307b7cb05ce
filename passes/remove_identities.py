"""Remove Identity ops, behind which neither fusion patterns nor kernels look.

before: Conv -> Identity -> Relu
after:  Conv -> Relu
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ops import is_copy
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class RemoveIdentities(Pass):
    """Remove Identity ops; those that give an output or a pinned value its name stay."""

    name = "remove-identities"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Replace the result of every Identity by its operand."""
        for op in graph.ops:
            if not is_copy(op) or len(op.inputs) != 1 or len(op.outputs) != 1:
                continue
            (source,), (copy,) = op.inputs, op.outputs
            if source is None or copy is None or graph.is_output(copy) or copy.name in context.pins:
                continue
            graph.replace_uses(copy, source)
            graph.remove_op(op)
