"""The outer values that the subgraphs of a node read.

A subgraph sees every value of the graphs around it by name; a name that it defines itself hides the outer one.
"""

from dataclasses import dataclass, field

import onnx_ir as ir

from layoutopt.onnx_io.converter.vocabulary import subgraphs


@dataclass(slots=True)
class Scope:
    """The free names of a node's subgraphs, each with the node that reads it first."""

    captures: dict[str, ir.Node | None] = field(default_factory=dict)


def scope_of(node: ir.Node) -> Scope:
    """Look into all subgraphs of a node, however deep."""
    scope = Scope()
    pending: list[tuple[ir.Graph, frozenset[str]]] = [(graph, frozenset()) for graph in subgraphs(node)]
    for graph, outer in pending:  # it grows by the subgraphs of every graph
        local = _defined(graph)
        visible = outer | local
        for inner in graph:
            for value in inner.inputs:
                if value is not None and value.name and value.name not in visible:
                    scope.captures.setdefault(value.name, inner)
            pending.extend((child, visible) for child in subgraphs(inner))
        for value in graph.outputs:
            if value.name and value.name not in visible:
                scope.captures.setdefault(value.name, None)
    return scope


def _defined(graph: ir.Graph) -> frozenset[str]:
    inputs = (value.name for value in graph.inputs)
    outputs = (value.name for node in graph for value in node.outputs)
    return frozenset(name for name in (*inputs, *graph.initializers, *outputs) if name)
