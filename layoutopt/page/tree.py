"""The tree of groups in which the page collapses a graph: module names, bodies, and parts.

A group is a contiguous run of the topological order. So no path leads out of a group and back into it, and the graph of
collapsed groups has no cycle.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil, isqrt
from typing import Literal, NamedTuple, TypeAlias

from layoutopt.page.graphs import PageGraph

GroupKind: TypeAlias = Literal["graph", "module", "body", "part", "interface"]
Child: TypeAlias = "int | Group"

_MIN_OPS = 3  # ops of a group
_MAX_CHILDREN = 40  # children of a group, before parts are made
_MAX_INTERFACE = 4  # inputs or outputs outside a group
_LABEL_KINDS = 3  # op types in a label


class Group(NamedTuple):
    """A group of nodes.

    Attributes:
        kind: the reason for the group.
        label: its name.
        children: the numbers of nodes, and groups, in topological order.
    """

    kind: GroupKind
    label: str
    children: tuple[Child, ...]

    def nodes(self) -> Iterator[int]:
        """The numbers of all its nodes, in topological order."""
        for child in self.children:
            yield from _nodes(child)


def group_tree(graph: PageGraph) -> Group:
    """The tree of groups of a graph; its root is the whole graph."""
    return Group("graph", "", tuple(_Grouping(graph).region(0)))


class _Grouping:
    """Grouping of the nodes of one graph.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: PageGraph) -> None:
        self.graph = graph
        self.by_region: dict[int, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            self.by_region.setdefault(node.region, []).append(number)

    def region(self, number: int) -> list[Child]:
        """The children of a region: its groups, with the bodies of its ops behind these."""
        nodes = self.by_region.get(number, [])
        ops = [each for each in nodes if self.graph.ops[each] is not None]
        inputs: list[Child] = [each for each in nodes if self.graph.nodes[each].kind == "input"]
        outputs: list[Child] = [each for each in nodes if self.graph.nodes[each].kind == "output"]
        children = self.modules(ops, 0)
        return [*_interface("inputs", inputs), *children, *_interface("outputs", outputs)]

    def modules(self, nodes: Sequence[int], depth: int) -> list[Child]:
        """The children of a run of ops, with a group for each run of ops of one module below `depth`."""
        runs = [(name, list(run)) for name, run in groupby(nodes, lambda each: self._module(each, depth))]
        if len(runs) == 1 and runs[0][0]:
            return self.modules(nodes, depth + 1)
        children: list[Child] = []
        for name, run in runs:
            if name and len(run) >= _MIN_OPS:
                children.append(Group("module", self._module_label(run[0], depth), tuple(self.modules(run, depth + 1))))
            else:
                children += self._with_bodies(run)
        return self.parts(children)

    def _with_bodies(self, nodes: Sequence[int]) -> Iterator[Child]:
        for node in nodes:
            yield node
            for number, (owner, attribute) in enumerate(self.graph.regions, 1):
                if (
                    owner == node and number in self.by_region
                ):  # else no ops, or an op type whose bodies are not planned
                    yield Group("body", f"{self.graph.nodes[node].name} {attribute}", tuple(self.region(number)))

    def _module(self, node: int, depth: int) -> str:
        scope = self.graph.nodes[node].scope
        return scope[depth] if depth < len(scope) else ""

    def _module_label(self, node: int, depth: int) -> str:
        """The name of a module; a number with the name before it, as in `layers.3`."""
        scope = self.graph.nodes[node].scope
        start = depth - 1 if depth and scope[depth].isdigit() else depth
        return ".".join(scope[start : depth + 1])

    def _label(self, children: Iterable[Child]) -> str:
        """The op types that are most frequent."""
        nodes = [self.graph.nodes[each] for child in children for each in _nodes(child)]
        kinds = Counter(node.op_type.rpartition("::")[2] for node in sorted(nodes, key=lambda node: -node.seconds))
        return ", ".join(kind for kind, _ in kinds.most_common(_LABEL_KINDS))

    def parts(self, children: list[Child]) -> list[Child]:
        """At most `_MAX_CHILDREN` children: long lists are cut into parts of one length."""
        count = len(children)
        if count <= _MAX_CHILDREN:
            return children
        length = max(ceil(count / _MAX_CHILDREN), isqrt(count))
        pieces = [children[start : start + length] for start in range(0, count, length)]
        return [piece[0] if len(piece) == 1 else Group("part", self._label(piece), tuple(piece)) for piece in pieces]


def _interface(label: str, nodes: list[Child]) -> list[Child]:
    """The inputs or outputs of the model; one group if there are many."""
    return nodes if len(nodes) <= _MAX_INTERFACE else [Group("interface", f"{len(nodes)} {label}", tuple(nodes))]


def _nodes(child: Child) -> Iterator[int]:
    return child.nodes() if isinstance(child, Group) else iter((child,))
