"""The node of one graph that is the same op in another graph."""

from collections import Counter
from collections.abc import Hashable

from layoutopt.page.graphs import Node, PageGraph


class Counterparts:
    """The nodes of a graph by the op that planning keeps, else by name.

    Args:
        graph: the graph in which nodes are searched.
    """

    def __init__(self, graph: PageGraph) -> None:
        self._by_op = {node.op: number for number, node in enumerate(graph.nodes) if node.op is not None}
        counts = Counter(map(_key, graph.nodes))
        self._by_name = {_key(node): number for number, node in enumerate(graph.nodes) if counts[_key(node)] == 1}

    def find(self, node: Node) -> int | None:
        """The number of the node that is the same op, or the same input or output; None if there is none."""
        found = self._by_op.get(node.op) if node.op is not None else None
        return self._by_name.get(_key(node)) if found is None else found


def _key(node: Node) -> Hashable:
    is_op = node.op is not None
    return (is_op or node.kind, node.op_type, node.name, node.region)


__all__ = ["Counterparts"]
