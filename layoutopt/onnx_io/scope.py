"""What the subgraphs of a node read from outside, and which names they use.

A subgraph sees every value of the graphs around it by name; a name that it defines itself hides the outer
one. The walk goes by names, not by objects, so that it holds for a rewritten model as well, whose subgraphs
are shared with the original.
"""

from dataclasses import dataclass, field

import onnx_ir as ir

from layoutopt.onnx_io.vocabulary import subgraphs


@dataclass(slots=True)
class Scope:
    """The free names of a node's subgraphs, each with the node that reads it first; and every inner name."""

    captures: dict[str, ir.Node | None] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


def scope_of(node: ir.Node) -> Scope:
    """Look into all subgraphs of a node, however deep."""
    scope = Scope()
    pending: list[tuple[ir.Graph, frozenset[str]]] = [(graph, frozenset()) for graph in subgraphs(node)]
    while pending:
        graph, outer = pending.pop()
        local = _defined(graph)
        visible = outer | local
        scope.names |= local
        for inner in graph:
            for value in inner.inputs:
                if value is not None and value.name and value.name not in visible:
                    scope.captures.setdefault(value.name, inner)
            pending.extend((child, visible) for child in subgraphs(inner))
        for value in graph.outputs:
            if value.name and value.name not in visible:
                scope.captures.setdefault(value.name, None)
    scope.names |= set(scope.captures)
    return scope


def _defined(graph: ir.Graph) -> frozenset[str]:
    inputs = (value.name for value in graph.inputs)
    outputs = (value.name for node in graph for value in node.outputs)
    return frozenset(name for name in (*inputs, *graph.initializers, *outputs) if name)
