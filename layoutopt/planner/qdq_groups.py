"""The QDQ groups that a target computes on integers, and the ops whose formats are fixed because groups stay as they are."""

from collections.abc import Iterable

from layoutopt.cost import CostModel
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.ops import QdqGroups, find_qdq_groups, is_in_qdq_group, rule_of
from layoutopt.ops.interfaces.numerics import QuantizedOp


def planned_qdq_groups(graphs: Iterable[Graph], cost_model: CostModel, *, keeps_them: bool = False) -> QdqGroups:
    """The QDQ groups that are planned as kernels on integers.

    A target that has a kernel for an op in floating point, and none on integers, computes the group in floating point.

    Args:
        graphs: the graphs.
        cost_model: the target.
        keeps_them: whether all groups stay as they are, so that the result is empty.
    """

    def has_kernel(op: Op, integer: Op) -> bool:
        return bool(cost_model.preferred_formats(integer)) or not cost_model.preferred_formats(op)

    return QdqGroups() if keeps_them else find_qdq_groups(graphs, has_kernel)


def quantized_ops(graphs: Iterable[Graph]) -> set[Op]:
    """The ops of QDQ groups, and the ops on integers with scales."""
    candidates = ((graph, op, rule_of(op)) for graph in graphs for op in graph.ops)
    return {op for graph, op, rule in candidates if is_in_qdq_group(graph, op) or isinstance(rule, QuantizedOp)}
