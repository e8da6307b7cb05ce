"""The edges of the graph as each value has them, and the order of ops that follows from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from layoutopt.ir.types import Op, Value


@dataclass(slots=True)
class Edges:
    """The edges of one value.

    Attributes:
        sources: the ops that compute it, each with the index of its output: at most one between passes.
        readers: the ops that read it, each with the index of its input. They are the keys of a dictionary, so that the
            removal of one among thousands takes constant time.
    """

    sources: tuple[tuple[Op, int], ...] = ()
    readers: dict[tuple[Op, int], None] = field(default_factory=dict)


def topological_order(ops: Iterable[Op], edges: Mapping[Value, Edges]) -> list[Op]:
    """Every op behind the ops that it reads from; among ops that are ready by `order`, then as in `ops`.

    Ops of a cycle, and those that a cycle leads to, are left out.

    Args:
        ops: the ops of a graph.
        edges: of every value of the graph.
    """
    places: dict[Op, int] = {}
    missing: dict[Op, int] = {}  # how many operands are not computed yet
    for place, op in enumerate(ops):
        places[op] = place
        missing[op] = sum(len(edges[value].sources) for value in op.inputs if value is not None)
    ready = [(op.order, places[op], op) for op, count in missing.items() if count == 0]
    heapify(ready)
    found = []
    while ready:
        op = heappop(ready)[-1]
        found.append(op)
        for value in op.outputs:
            for reader, _ in edges[value].readers if value is not None else ():
                missing[reader] -= 1
                if missing[reader] == 0:
                    heappush(ready, (reader.order, places[reader], reader))
    return found
