"""The outer values that the subgraphs of a node read.

A subgraph may read every value of the enclosing graphs by name; a name that it defines itself shadows the outer one.
"""

import onnx_ir as ir

from layoutopt.onnx_io.converter.vocabulary import subgraphs


def captures_of(node: ir.Node) -> dict[str, ir.Node | None]:
    """The outer values that the subgraphs of a node read, at any depth, by name: the first node that reads each.

    The node is None for a value that no node of a subgraph reads, but that is an output of one.
    """
    found: dict[str, ir.Node | None] = {}
    pending: list[tuple[ir.Graph, frozenset[str]]] = [(graph, frozenset()) for graph in subgraphs(node)]
    for graph, outer in pending:  # extended in the loop
        local = _defined(graph)
        visible = outer | local
        for inner in graph:
            for value in inner.inputs:
                if value is not None and value.name and value.name not in visible:
                    found.setdefault(value.name, inner)
            pending.extend((child, visible) for child in subgraphs(inner))
        for value in graph.outputs:
            if value.name and value.name not in visible:
                found.setdefault(value.name, None)
    return found


def _defined(graph: ir.Graph) -> frozenset[str]:
    inputs = (value.name for value in graph.inputs)
    outputs = (value.name for node in graph for value in node.outputs)
    return frozenset(name for name in (*inputs, *graph.initializers, *outputs) if name)
