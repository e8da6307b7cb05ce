"""The number of ops after inlining, and the functions that are not inlined because it would be too large.

A function that calls another one twice, which calls a third one twice and so on, has exponentially many ops. They are counted
without being created.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.converter.vocabulary import subgraphs
from layoutopt.onnx_io.reader.lossless import nodes

MAX_INLINED_OPS = 100_000
"""The largest number of ops after inlining; calls that would exceed it are kept."""

MAX_NAMES_TRIED = 10_000_000
"""onnx_ir names the copies of a node x, x_2, x_3 and so on, and tries all of these for each copy, which takes seconds."""

MAX_INFERRED_OPS = 10_000
"""The largest number of ops of a call that is inferred, since onnx infers the body of a function again for each call."""

Identifier: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Body:
    """The contents of a graph or function, subgraphs included.

    Attributes:
        nodes: the number of nodes.
        calls: the number of calls of each function to be inlined.
        names: the number of occurrences of each name, as pairs ("node" or "value", name).
    """

    nodes: int
    calls: Counter[Identifier]
    names: Counter[tuple[str, str]]

    def expanded(self, sizes: dict[Identifier, int]) -> int:
        """The number of nodes after calls are replaced by the number of nodes in `sizes`, at most the limit plus one."""
        nodes = self.nodes + sum(count * (sizes[callee] - 1) for callee, count in self.calls.items())
        return min(MAX_INLINED_OPS + 1, nodes)


def kept_calls(model: ir.Model, candidates: Collection[Identifier]) -> set[Identifier]:
    """The functions of `candidates` that are not inlined, so that inlining the others leads to at most `MAX_INLINED_OPS` ops.

    The functions with the most ops are not inlined. The result is empty if functions call each other recursively, because
    recursive functions cannot be inlined.
    """
    bodies = {each: _body(model.functions[each], candidates) for each in model.functions}
    try:
        order = list(TopologicalSorter({each: body.calls for each, body in bodies.items()}).static_order())
    except CycleError:
        return set()
    main, largest = _body(model.graph, candidates), MAX_INLINED_OPS
    while True:
        expansion = _expansion(main, bodies, order, candidates, largest)
        if not largest or expansion.is_small:
            return expansion.kept & set(candidates)
        largest //= 2


@dataclass(frozen=True, slots=True)
class _Expansion:
    """The result of inlining: the remaining functions, the number of nodes, and the number of names that are tried."""

    kept: set[Identifier]
    nodes: int
    names: int

    @property
    def is_small(self) -> bool:
        """Whether both numbers are within their limits."""
        return self.nodes <= MAX_INLINED_OPS and self.names <= MAX_NAMES_TRIED


def _expansion(
    main: _Body,
    bodies: dict[Identifier, _Body],
    order: Sequence[Identifier],
    candidates: Collection[Identifier],
    largest: int,
) -> _Expansion:
    """The result of inlining if functions with more than `largest` nodes, and those that are excluded, remain."""
    kept: set[Identifier] = set()
    sizes: dict[Identifier, int] = {}
    total = 0
    for each in order:
        size = sizes[each] = bodies[each].expanded(sizes)
        if each not in candidates or size > largest:
            kept.add(each)
            sizes[each] = 1
            total += size
    copies = Counter(main.calls)
    names: Counter[tuple[str, str]] = Counter()
    for each in reversed(order):
        times = 1 if each in kept else min(copies[each], MAX_NAMES_TRIED)
        for callee, count in bodies[each].calls.items():
            copies[callee] += times * count
        for name, count in bodies[each].names.items():
            names[name] += times * count
    tried = sum(count**2 // 2 for count in names.values())
    return _Expansion(kept, total + main.expanded(sizes), tried)


def _body(graph: ir.Graph | ir.Function, candidates: Collection[Identifier]) -> _Body:
    nodes, calls, names = 0, Counter[Identifier](), Counter[tuple[str, str]]()
    pending = [*graph]
    while pending:
        node = pending.pop()
        nodes += 1
        names["node", node.name or f"{graph.name}_{nodes}"] += 1
        names.update(("value", value.name or "") for value in node.outputs)
        if node.op_identifier() in candidates:
            calls[node.op_identifier()] += 1
        pending += [inner for each in subgraphs(node) for inner in each]
    return _Body(nodes, calls, names)


def large_calls(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The calls of functions with more than `MAX_INFERRED_OPS` ops, including calls in functions."""
    called = {(each.domain, each.name, each.overload): each for each in proto.functions}
    bodies = {each: [_callee(node) for node in function.node] for each, function in called.items()}
    try:
        order = TopologicalSorter(
            {each: [c for c in body if c in called] for each, body in bodies.items()}
        ).static_order()
        sizes: dict[Identifier, int] = {}
        for each in order:
            sizes[each] = min(MAX_INFERRED_OPS + 1, sum(sizes.get(callee, 1) for callee in bodies[each]))
    except CycleError:
        return []
    if all(size <= MAX_INFERRED_OPS for size in sizes.values()):
        return []
    inside = (node for function in proto.functions for node in function.node)
    return [node for node in (*nodes(proto), *inside) if sizes.get(_callee(node), 1) > MAX_INFERRED_OPS]


def _callee(node: onnx.NodeProto) -> Identifier:
    return node.domain, node.op_type, node.overload
