"""Def-use chains: the ops and values of a graph as the nodes of one networkx MultiDiGraph, and queries on its edges.

    value --[key = input index]--> op --[key = output index]--> value

Every use is an edge: `Mul(x, x)` has two edges from x. Values without a predecessor are graph inputs and constants. The number
of uses of a value is stored with it, because thousands of ops may read one constant.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx

from layoutopt.ir.types import Op, Value

_USES = "uses"  # node attribute of a value: the number of edges from it
_LINKS = ("_digraph", "_names")  # attributes that are computed from the ops and values


@dataclass(frozen=True, slots=True)
class Use:
    """One read of a value: input `index` of `op`."""

    op: Op
    index: int


class DefUseGraph:
    """The producer and the uses of every value. `Graph` adds the edits.

    Every change increments `version`, so that the pipeline detects whether a pass has changed the graph.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self._digraph: Any = nx.MultiDiGraph()
        self._names: dict[str, Value] = {}
        self._sorted: list[Op] = []
        self._sorted_at = -1

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickle and copy: lists of ops and values instead of the networkx graph."""
        kept = {name: each for name, each in self.__dict__.items() if name not in _LINKS}
        return {
            **kept,
            "_sorted": [],
            "_sorted_at": -1,
            "_copied": (list(self._all_ops()), self.values),
        }

    if not TYPE_CHECKING:  # a type checker would take every misspelt attribute for one of these

        def __getattr__(self, name: str) -> Any:
            """Build the networkx graph of a copy on first access: its ops have their state only when all is copied."""
            if name not in _LINKS or "_copied" not in self.__dict__:
                raise AttributeError(name)
            ops, values = self.__dict__.pop("_copied")
            self._names = {value.name: value for value in values}
            self._digraph = nx.MultiDiGraph()
            self._digraph.add_nodes_from(values, **{_USES: 0})
            self._digraph.add_nodes_from(ops)
            for op in ops:
                self._link_inputs(op)
                self._link_outputs(op)
            return self.__dict__[name]

    @property
    def values(self) -> list[Value]:
        """Every value, in the order of creation."""
        return list(self._names.values())

    @property
    def ops(self) -> list[Op]:
        """Every op in topological order; ops that do not depend on each other are in the order of the file (`Op.order`)."""
        if not self._is_sortable():
            raise ValueError(f"the ops of graph {self.name!r} have no order: there is a cycle")
        return list(self._sorted)

    def __len__(self) -> int:
        return int(self._digraph.number_of_nodes()) - len(self._names)

    def __contains__(self, node: Op | Value) -> bool:
        return node in self._digraph

    def value(self, name: str) -> Value:
        """The value of that name; KeyError if there is none."""
        return self._names[name]

    def find(self, name: str) -> Value | None:
        """The value of that name, if there is one."""
        return self._names.get(name)

    def producer(self, value: Value) -> Op | None:
        """The op that computes `value`; None for graph inputs and constants."""
        return next(iter(self._digraph.pred[value]), None)

    def producers(self, op: Op) -> list[Op]:
        """The ops that compute the inputs of `op`, each once."""
        found = (self.producer(value) for value in op.inputs if value is not None)
        return list(dict.fromkeys(each for each in found if each is not None))

    def output_index(self, value: Value) -> int:
        """The index of `value` among the outputs of its producer; KeyError if it has none."""
        producer = self.producer(value)
        if producer is None:
            raise KeyError(value.name)
        return int(next(iter(self._digraph.succ[producer][value])))

    def uses(self, value: Value) -> list[Use]:
        """Every use of `value`, in the order of the ops and inputs."""
        uses = [Use(op, int(key)) for op, keys in self._digraph.succ[value].items() for key in keys]
        return sorted(uses, key=lambda use: (use.op.order, use.index)) if len(uses) > 1 else uses

    def readers(self, value: Value) -> Iterator[Op]:
        """The ops that read `value`, lazily and in no particular order."""
        return iter(self._digraph.succ[value])

    def use_count(self, value: Value) -> int:
        """The number of uses of `value`, in constant time."""
        return int(self._digraph.nodes[value][_USES])

    def is_read(self, value: Value) -> bool:
        """Whether an op reads the value."""
        return bool(self._digraph.succ[value])

    def find_cycle(self) -> list[str]:
        """The names of the ops and values of one cycle; empty if there is none."""
        if self._is_sortable():
            return []
        component = next((part for part in nx.strongly_connected_components(self._digraph) if len(part) > 1), None)
        if component is None:
            return []
        edges = nx.find_cycle(self._digraph.subgraph(component))  # on the whole graph it takes quadratic time
        return [node.name or node.kind if isinstance(node, Op) else node.name for node, *_ in edges]

    def _is_sortable(self) -> bool:
        """Whether the graph has no cycle; sorts the ops if the graph has changed since the last call."""
        if self._sorted_at != self.version:
            key = lambda node: (1, node.order) if isinstance(node, Op) else (0, ())  # noqa: E731
            try:
                nodes = list(nx.lexicographical_topological_sort(self._digraph, key))
            except nx.NetworkXUnfeasible:
                return False
            self._sorted, self._sorted_at = [node for node in nodes if isinstance(node, Op)], self.version
        return True

    def _all_ops(self) -> Iterator[Op]:
        return (node for node in self._digraph if isinstance(node, Op))

    def edges(self) -> Iterator[tuple[Op | Value, Op | Value, int]]:
        """Every edge with its key, which is the index of the input or output."""
        yield from self._digraph.edges(keys=True)

    def touch(self) -> None:
        """Record that an op or value was changed in place: an attribute, a storage, a constant."""
        self.version += 1

    def _insert_value(self, value: Value) -> None:
        self._names[value.name] = value
        self._digraph.add_node(value, **{_USES: 0})

    def _delete_value(self, value: Value) -> None:
        self._digraph.remove_node(value)
        del self._names[value.name]

    def _insert_op(self, op: Op) -> None:
        self._digraph.add_node(op)
        self._link_inputs(op)
        self._link_outputs(op)

    def _delete_op(self, op: Op) -> None:
        """Delete an op whose outputs are deleted already."""
        self._unlink_inputs(op)
        self._digraph.remove_node(op)

    def _link_inputs(self, op: Op) -> None:
        for index, value in enumerate(op.inputs):
            if value is not None:
                self._add_use(value, op, index)

    def _unlink_inputs(self, op: Op) -> None:
        for index, value in enumerate(op.inputs):
            if value is not None:
                self._remove_use(value, op, index)

    def _link_outputs(self, op: Op) -> None:
        for index, value in enumerate(op.outputs):
            if value is not None:
                self._digraph.add_edge(op, value, index)

    def _unlink_outputs(self, op: Op) -> None:
        for index, value in enumerate(op.outputs):
            if value is not None:
                self._digraph.remove_edge(op, value, index)

    def _add_use(self, value: Value, op: Op, index: int) -> None:
        self._digraph.add_edge(value, op, index)
        self._digraph.nodes[value][_USES] += 1

    def _remove_use(self, value: Value, op: Op, index: int) -> None:
        self._digraph.remove_edge(value, op, index)
        self._digraph.nodes[value][_USES] -= 1


__all__ = ["DefUseGraph", "Use"]
