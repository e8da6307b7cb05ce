"""The data of the page: graphs, trees of groups and formats as lists of numbers and one list of texts.

    texts     every text once; characters that cannot be printed are replaced
    formats   [text, colour], in the order of the legend
    sides     per graph: nodes, edges, regions and the tree of groups
    node      [kind, name, op type, format, seconds, bytes, reason, scope, inputs, outputs, node of the other graph, region]
    operand   [name, type, format, preferred format, whether it is a constant]
    edge      [source, target, name, type, format]
    group     [kind, label, children]; a child is the number of a node or a group

Names, types, formats and reasons are positions in `texts`; -1 means no format or no node.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from layoutopt.page.counterparts import Counterparts
from layoutopt.page.graphs import Node, Operand, PageGraph
from layoutopt.page.matching import matching_tree
from layoutopt.page.tree import Group, group_tree
from layoutopt.report.facts import CANONICAL, UNKNOWN
from layoutopt.report.printable import printable

COLOURS = 10  # formats with a colour of their own


def legend(graphs: Sequence[PageGraph]) -> list[tuple[str, str]]:
    """The formats of all graphs with the name of the colour of each: those of the last graph first, by frequency."""
    counts = [Counter(node.format for node in graph.nodes if node.format) for graph in graphs]
    ordered = dict.fromkeys(name for each in reversed(counts) for name, _ in each.most_common())
    others = [name for name in ordered if name not in (CANONICAL, UNKNOWN)]
    colours = {name: f"c{index}" if index < COLOURS else "rest" for index, name in enumerate(others)}
    return [(name, colours.get(name, "canonical")) for name in ordered]


def encode(before: PageGraph | None, after: PageGraph) -> dict[str, Any]:
    """The data of the page.

    Args:
        before: the graph before planning, if it was recorded.
        after: the graph after planning.
    """
    return _Encoder().encode(before, after)


class _Encoder:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.formats: dict[str, int] = {}

    def encode(self, before: PageGraph | None, after: PageGraph) -> dict[str, Any]:
        colours = legend([graph for graph in (before, after) if graph is not None])
        self.formats = {name: index for index, (name, _) in enumerate(colours)}
        if before is None:
            sides = {"after": self.side(after, None, group_tree(after))}
        else:
            tree = group_tree(before)
            sides = {
                "before": self.side(before, after, tree),
                "after": self.side(after, before, matching_tree(after, before, tree)),
            }
        return {
            "formats": [[self.text(name), colour] for name, colour in colours],
            "sides": sides,
            "texts": list(self.texts),
        }

    def text(self, text: str) -> int:
        return self.texts.setdefault(printable(text), len(self.texts))

    def side(self, graph: PageGraph, other: PageGraph | None, tree: Group) -> dict[str, Any]:
        mates = Counterparts(other) if other is not None else None
        return {
            "nodes": [self.node(node, mates) for node in graph.nodes],
            "edges": [[each.source, each.target, *self.operand(each.operand)[:3]] for each in graph.edges],
            "regions": [[each.owner, self.text(each.name)] for each in graph.regions],
            "tree": self.group(tree),
        }

    def node(self, node: Node, mates: Counterparts | None) -> list[Any]:
        mate = mates.find(node) if mates is not None else None
        return [
            node.kind,
            self.text(node.name),
            self.text(node.op_type),
            self.formats.get(node.format, -1),
            float(f"{node.seconds:.4g}"),
            node.nbytes,
            self.text(node.reason),
            self.text(".".join(node.scope)),
            [self.operand(each) for each in node.inputs],
            [self.operand(each) for each in node.outputs],
            -1 if mate is None else mate,
            node.region,
        ]

    def operand(self, operand: Operand) -> list[int]:
        texts = (operand.name, operand.type, operand.format, operand.preferred)
        return [*map(self.text, texts), int(operand.is_constant)]

    def group(self, group: Group) -> list[Any]:
        children = [self.group(each) if isinstance(each, Group) else each for each in group.children]
        return [group.kind, self.text(group.label), children]


__all__ = ["COLOURS", "encode", "legend"]
