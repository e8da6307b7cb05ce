"""Lowering of a planned graph that was not lifted from a model."""

from typing import cast

from layoutopt.cost import CostModel
from layoutopt.dialects import DIALECTS, Lower
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import PassContext, Pipeline

_NO_TARGET = cast(CostModel, None)


def lower(graph: Graph, dialect: str) -> Graph:
    """The lowered graph, with all passes of the dialect; the planned graph is not changed, nor are its invariants checked."""
    context = PassContext(_NO_TARGET)
    Lower(DIALECTS[dialect]).run(graph, context)
    assert context.lowered is not None
    Pipeline(DIALECTS[dialect].passes).run(context.lowered, context)
    return context.lowered


__all__ = ["lower"]
