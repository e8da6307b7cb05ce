"""The groups of the original in the planned graph, so that both graphs have one structure on the page."""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from layoutopt.page.counterparts import Counterparts
from layoutopt.page.graphs import PageGraph
from layoutopt.page.tree import Child, Group, group_tree

_Path: TypeAlias = tuple[Group, ...]

_MIN_OPS = 2  # ops of a group, except of a body
_MIN_SHARE = 0.5  # of the nodes that the original has too


def matching_tree(graph: PageGraph, original: PageGraph, tree: Group) -> Group:
    """The tree of groups of a planned graph: each group has the ops of a group of the original that planning keeps.

    An op that planning adds is in the group of the op before it. Groups are contiguous runs of the topological order here too.
    A graph that has few ops of the original has groups of its own.

    Args:
        graph: the planned graph.
        original: the original graph.
        tree: the tree of groups of the original.
    """
    known = _paths(tree, ())
    counterparts = Counterparts(original)
    found = [counterparts.find(node) for node in graph.nodes]
    if sum(number is not None for number in found) < _MIN_SHARE * len(found):
        return group_tree(graph)
    paths: list[_Path] = []
    last: dict[int, _Path] = {}
    for node, number in zip(graph.nodes, found, strict=True):
        path = known[number] if number is not None else last.get(node.region, ())
        if node.op is not None:
            last[node.region] = path
        if not node.region:  # planning has replaced an If by one of its branches
            path = tuple(group for group in path if group.kind != "body")
        paths.append(path if number is not None or node.op is not None else ())
    return Group(tree.kind, tree.label, tuple(_grouped(range(len(graph.nodes)), paths, 0)))


def _paths(group: Group, path: _Path) -> dict[int, _Path]:
    """The path of every node of a group, without the group itself."""
    found: dict[int, _Path] = {}
    for child in group.children:
        if isinstance(child, Group):
            found |= _paths(child, (*path, child))
        else:
            found[child] = path
    return found


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
