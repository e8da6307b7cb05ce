"""Store equal constants once.

before: w1 -> Conv, w2 -> Conv        where w1 and w2 have the same type, shape and bytes
after:  w1 -> Conv, Conv

Within a graph they become one value. Constants of several graphs get the same data object, and the emitter writes that once.
"""

from dataclasses import dataclass

from layoutopt.ir.constants import share_constants
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class ShareConstants(Pass):
    """Merge constants of more than 1 KiB that have the same type, shape and content."""

    name = "share-constants"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Merge in the graph and its bodies; weights that are trained stay separate parameters."""
        if context.mode == "inference":
            share_constants(graph)
