"""The graph of a model before the first pass, with the estimated time of every op in canonical formats."""

from layoutopt import inference
from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RuntimeSpec
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Op
from layoutopt.page.graphs import PageGraph, page_graph
from layoutopt.page.scopes import Scope, op_scopes
from layoutopt.passes.base import Pass
from layoutopt.report.builder import graph_report, located_ops
from layoutopt.report.schema import Report


class OriginalGraph:
    """A pass callback that records the graph before the first pass.

    Args:
        hardware: the cost model of the target.
        runtime: the program that runs the result.

    Attributes:
        graph: the recorded graph; None if no pass has run.
    """

    def __init__(self, hardware: CostModel, runtime: RuntimeSpec) -> None:
        self._hardware = hardware
        self._runtime = runtime
        self._sizes = NO_SIZES
        self._scopes: dict[Op, Scope] = {}
        self.graph: PageGraph | None = None

    def set_sizes(self, sizes: Sizes) -> None:
        """Store the sizes that the model is planned for."""
        self._sizes = sizes

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        """Record the graph when the first pass begins."""
        if self.graph is not None:
            return
        sizes = inference.evaluate_extents(graph, self._sizes)
        prices = priced_with(
            self._runtime.restricted(self._hardware), sizes=sizes, epilogues=self._runtime.epilogues(graph)
        )
        found = graph_report(graph, prices, sizes, target_model=priced_with(self._hardware, sizes=sizes))
        ops = located_ops(graph)
        scopes = op_scopes(ops)
        self._scopes = {located.op: scope for located, scope in zip(ops, scopes, strict=True)}
        self.graph = page_graph(graph, found.ops, found.casts, sizes, scopes)

    def planned(self, graph: Graph, report: Report) -> PageGraph:
        """The graph after planning, with the numbers of its report; its ops are in the modules of the original."""
        sizes = inference.evaluate_extents(graph, self._sizes)
        scopes = op_scopes(located_ops(graph), self._scopes)
        return page_graph(graph, report.ops, report.casts, sizes, scopes)


__all__ = ["OriginalGraph"]
