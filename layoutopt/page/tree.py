"""The tree of groups in which the page collapses a graph: module names, repeated blocks, bodies, and parts.

A group is a contiguous run of the topological order. So no path leads out of a group and back into it, and the graph of
collapsed groups has no cycle.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, takewhile
from math import ceil, isqrt
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from layoutopt.page.graphs import PageGraph

GroupKind: TypeAlias = Literal["graph", "module", "repeat", "block", "body", "part", "interface"]
Child: TypeAlias = "int | Group"

_MIN_OPS = 3  # ops of a group
_MAX_CHILDREN = 40  # children of a group, before parts are made
_MAX_INTERFACE = 4  # inputs or outputs outside a group
_LABEL_KINDS = 3  # op types in a label
_MAX_ROUNDS = 4  # of repeats of repeats
_MAX_DEPTH = 24  # module names of a path
_MAX_PERIOD = 512  # items of a block
_MIN_BLOCK = 4  # ops of a block
_MIN_COVERED = 12  # ops of all blocks


class Group(NamedTuple):
    """A group of nodes.

    Attributes:
        kind: the reason for the group: `repeat` contains equal `block`s.
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
        self.tokens: dict[object, int] = {}
        self.cuts = _cut_widths(graph)
        self.bodies: dict[int, list[int]] = {}
        for number, (owner, _) in enumerate(graph.regions, 1):
            self.bodies.setdefault(owner, []).append(number)
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
        runs = self._runs(nodes, depth)
        while len(runs) == 1 and runs[0][0] and depth < _MAX_DEPTH:
            depth += 1
            runs = self._runs(nodes, depth)
        children: list[Child] = []
        for name, run in runs:
            if name and _MIN_OPS <= len(run) < len(nodes) and depth < _MAX_DEPTH:
                children.append(Group("module", self._module_label(run[0], depth), tuple(self.modules(run, depth + 1))))
            else:
                children += self._with_bodies(run)
        return self.parts(self.repeats(children))

    def _runs(self, nodes: Sequence[int], depth: int) -> list[tuple[str, list[int]]]:
        """The nodes in runs of one module name at a depth, each with that name; empty for ops without one."""
        return [(name, list(run)) for name, run in groupby(nodes, lambda each: self._module(each, depth))]

    def _with_bodies(self, nodes: Sequence[int]) -> Iterator[Child]:
        for node in nodes:
            yield node
            for number in self.bodies.get(node, ()):
                if number not in self.by_region:  # no ops, or an op type whose bodies are not planned
                    continue
                label = f"{self.graph.nodes[node].name} {self.graph.regions[number - 1][1]}"
                yield Group("body", label, tuple(self.region(number)))

    def _module(self, node: int, depth: int) -> str:
        scope = self.graph.nodes[node].scope
        return scope[depth] if depth < len(scope) else ""

    def _module_label(self, node: int, depth: int) -> str:
        """The name of a module; a number with the name before it, as in `layers.3`."""
        scope = self.graph.nodes[node].scope
        start = depth - 1 if depth and scope[depth].isdigit() else depth
        return ".".join(scope[start : depth + 1])

    def repeats(self, children: list[Child]) -> list[Child]:
        """The children with a group for every repeat; then for repeats of these groups."""
        for _ in range(_MAX_ROUNDS):
            folded = self._folded(children)
            if len(folded) == len(children):
                return folded
            children = folded
        return children

    def _folded(self, children: list[Child]) -> list[Child]:
        if len(children) < 2:
            return children
        weights = [sum(1 for _ in _nodes(child)) for child in children]
        cuts = [self.cuts[_first(child)] for child in children]
        found = longest_repeat([self._token(child) for child in children], weights, cuts)
        if found is None:
            return children
        blocks = [self._block(tuple(children[start : start + found.step])) for start in found]
        repeat = Group("repeat", self._label(blocks), tuple(blocks))
        return [*self._folded(children[: found.start]), repeat, *self._folded(children[found.stop :])]

    def _block(self, children: tuple[Child, ...]) -> Group:
        only = children[0]
        if len(children) == 1 and isinstance(only, Group):
            return only
        inner = tuple(self.repeats(list(children))) if len(children) > _MAX_CHILDREN else children
        return Group("block", self._label(children), inner)

    def _label(self, children: Iterable[Child]) -> str:
        """The innermost module that all ops are in, else the op types that are most frequent."""
        nodes = [self.graph.nodes[each] for child in children for each in _nodes(child)]
        levels = zip(*(node.scope for node in nodes), strict=False)
        prefix = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)]
        if len(prefix) > 1:
            return ".".join(prefix[-2:])
        kinds = Counter(node.op_type.rpartition("::")[2] for node in sorted(nodes, key=lambda node: -node.seconds))
        return ", ".join(kind for kind, _ in kinds.most_common(_LABEL_KINDS))

    def parts(self, children: list[Child]) -> list[Child]:
        """At most `_MAX_CHILDREN` children: long lists are cut where the fewest values are passed on."""
        count = len(children)
        if count <= _MAX_CHILDREN:
            return children
        length = max(ceil(count / _MAX_CHILDREN), isqrt(count))
        bounds, position = [0], 0
        while count - position > 1.5 * length:
            window = range(position + length // 2 + 1, min(position + length + length // 2, count - 1) + 1)
            middle = position + length
            position = min(window, key=lambda each: (self.cuts[_first(children[each])], abs(each - middle)))
            bounds.append(position)
        pieces = [children[start:stop] for start, stop in zip(bounds, [*bounds[1:], count], strict=True)]
        return [piece[0] if len(piece) == 1 else Group("part", self._label(piece), tuple(piece)) for piece in pieces]

    def _token(self, child: Child) -> int:
        """A number that equal ops and groups of equal structure have in common."""
        key: object = self.graph.nodes[child].op_type if isinstance(child, int) else None
        if isinstance(child, Group):
            key = (child.kind == "repeat", *map(self._token, child.children))
        return self.tokens.setdefault(key, len(self.tokens))


def _interface(label: str, nodes: list[Child]) -> list[Child]:
    """The inputs or outputs of the model; one group if there are many."""
    return nodes if len(nodes) <= _MAX_INTERFACE else [Group("interface", f"{len(nodes)} {label}", tuple(nodes))]


def _nodes(child: Child) -> Iterator[int]:
    return child.nodes() if isinstance(child, Group) else iter((child,))


def _first(child: Child) -> int:
    return next(_nodes(child))


def _cut_widths(graph: PageGraph) -> list[int]:
    """Per node, the number of values that nodes before it pass to it or to nodes behind it."""
    last: dict[int, int] = {}
    for source, target, _ in graph.edges:
        last[source] = max(last.get(source, 0), target)
    changes = [0] * (len(graph.nodes) + 1)
    for source, target in last.items():
        changes[source + 1] += 1
        changes[target + 1] -= 1
    return list(accumulate(changes[:-1]))


# --- repeats -----------------------------------------------------------------------------------------------


def longest_repeat(tokens: Sequence[int], weights: Sequence[int], cuts: Sequence[int]) -> range | None:
    """The starts of the equal blocks, one behind the other, that cover most ops.

    None if no block of four ops or more occurs in a row, twelve ops or more in all. Of several, the one with the smallest
    blocks is taken, and of its starts those where the fewest values are passed from block to block.

    Args:
        tokens: one number per item: equal items have equal numbers.
        weights: the number of ops of each item.
        cuts: per item, the number of values that are passed across its beginning.
    """
    items, ops = np.asarray(tokens), np.concatenate([[0], np.cumsum(weights)])
    best: list[range] = []
    most = 0
    for period in range(1, min(len(items) // 2, _MAX_PERIOD) + 1):
        start, length = _longest_run(items[:-period] == items[period:])
        count, slack = divmod(length + period, period)
        covered = int(ops[start + count * period] - ops[start])
        if count > 1 and covered >= max(_MIN_BLOCK * count, _MIN_COVERED) and covered > most:
            most = covered
            best = [range(start + at, start + at + count * period, period) for at in range(slack + 1)]
    return min(best, key=lambda each: sum(cuts[start] for start in each), default=None)


def _longest_run(flags: np.ndarray) -> tuple[int, int]:
    """The start and the length of the longest run of true values."""
    bounds = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    starts, stops = bounds[::2], bounds[1::2]
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(stops - starts))
    return int(starts[longest]), int(stops[longest] - starts[longest])
