"""Lowering as a pass.

before: x(NHWC), w(OHWI) -> Conv(NHWC) -> y(NHWC)
after:  x, w -> layoutopt.Conv_NHWC -> y              arrays of the physical shapes, in the dialect `functions`
"""

from dataclasses import dataclass

from layoutopt.dialects import invariants  # noqa: F401  (it registers those of lowered graphs)
from layoutopt.dialects.lowering import Dialect
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class Lower(Pass):
    """Write the planned graph as ops and function calls of the dialect, on physical arrays.

    Attributes:
        dialect: the dialect.
    """

    dialect: Dialect

    name = "lower"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Set `context.lowered`, the graph on which the following passes run; the planned graph is not changed."""
        context.block = self.dialect.block(graph)
        context.lowered = self.dialect.lower(graph)


__all__ = ["Lower"]
