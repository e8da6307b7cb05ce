"""The groups of the original in the planned graph, so that both graphs have one structure on the page."""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from layoutopt.ir.types import Op
from layoutopt.page.graphs import PageGraph
from layoutopt.page.tree import Child, Group

_Path: TypeAlias = tuple[Group, ...]

_MIN_OPS = 2  # ops of a group, except of a body


def matching_tree(graph: PageGraph, original: PageGraph, tree: Group) -> Group:
    """The tree of groups of a planned graph: each group has the ops of a group of the original that planning keeps.

    An op that planning adds is in the group of the op before it. Groups are contiguous runs of the topological order here too.

    Args:
        graph: the planned graph.
        original: the original graph.
        tree: the tree of groups of the original.
    """
    known: dict[Op | str, _Path] = {}
    _collect(tree, (), original, known)
    paths: list[_Path] = []
    last: dict[int, _Path] = {}
    for node in graph.nodes:
        key = node.op if node.op is not None else f"{node.kind} {node.name}"
        found = known.get(key, last.get(node.region, ()) if node.op is not None else ())
        if node.op is not None:
            last[node.region] = found
        paths.append(found)
    return Group(tree.kind, tree.label, tuple(_grouped(range(len(graph.nodes)), paths, 0)))


def _collect(group: Group, path: _Path, graph: PageGraph, found: dict[Op | str, _Path]) -> None:
    """Store the path of every node of a group, without the root, by op; of inputs and outputs by kind and name."""
    for child in group.children:
        if isinstance(child, Group):
            _collect(child, (*path, child), graph, found)
        else:
            node = graph.nodes[child]
            found[node.op if node.op is not None else f"{node.kind} {node.name}"] = path


def _grouped(nodes: Sequence[int], paths: Sequence[_Path], depth: int) -> list[Child]:
    children: list[Child] = []
    for key, run in groupby(nodes, lambda node: id(paths[node][depth]) if depth < len(paths[node]) else 0):
        members = list(run)
        if not key:
            children += members
            continue
        inner, group = _grouped(members, paths, depth + 1), paths[members[0]][depth]
        is_group = group.kind == "body" or (len(members) >= _MIN_OPS and len(inner) > 1)
        children += [Group(group.kind, group.label, tuple(inner))] if is_group else inner
    return children


__all__ = ["matching_tree"]
