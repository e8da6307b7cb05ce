"""Quantised units as the planner sees them: which a target computes on integers, and which stay as they are."""

from collections.abc import Iterable

from layoutopt.cost import CostModel
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops import QdqGroups, find_qdq_groups, is_in_qdq_group, rule_of
from layoutopt.ops.interfaces.numerics import QuantizedOp


def integers_of(graphs: Iterable[Graph], cost_model: CostModel, *, whole: bool = False) -> QdqGroups:
    """The quantised units that are computed on integers.

    Where a target has kernels for fractions only, it computes in fractions, as the model says.

    Args:
        graphs: where to look.
        cost_model: the target.
        whole: whether units stay as they are, so that none is of interest.
    """

    def has_kernel(op: Op, integer: Op) -> bool:
        return bool(cost_model.preferred_formats(integer)) or not cost_model.preferred_formats(op)

    return QdqGroups() if whole else find_qdq_groups(graphs, has_kernel)


def quantised(graphs: Iterable[Graph]) -> set[Op]:
    """The ops of units, and those that work on integers with scales."""
    places = ((graph, op, rule_of(op)) for graph in graphs for op in graph.ops)
    return {op for graph, op, rule in places if is_in_qdq_group(graph, op) or isinstance(rule, QuantizedOp)}
