"""Constants that several graphs of a model have in common: their elements are written once, in the main graph.

Bodies have constants of their own, so that what is done to an op with constant operands is done in a body too. Many of them
are the outer one that the body captured before. Which are the same is a matter of identity: equal `Data` are equal elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Data, Value

_LARGE = 1024  # bytes; smaller ones are written wherever they are read, as inference looks at them


@dataclass(slots=True)
class Sharing:
    """Who writes what.

    Attributes:
        writers: for constants of bodies, the one that is written in their place.
        hoisted: constants of bodies that the main graph writes.
        common: all that others are written as; the main graph has them as initializers.
    """

    writers: dict[Value, Value] = field(default_factory=dict)
    hoisted: dict[Value, None] = field(default_factory=dict)
    common: set[Value] = field(default_factory=set)

    @classmethod
    def of(cls, graphs: Sequence[Graph]) -> "Sharing":
        """Find out for a main graph and its bodies, in that order. A body writes the constants among its outputs itself."""
        found: dict[Data, list[Value]] = {}
        main = set(graphs[0].values) if len(graphs) > 1 else set()
        for graph in graphs if len(graphs) > 1 else ():
            given = set(graph.outputs) if graph is not graphs[0] else set()
            for value in graph.values:
                if value.data is not None and value not in given and value.data.nbytes > _LARGE:
                    found.setdefault(value.data, []).append(value)
        sharing = cls()
        for first, *others in found.values():
            inner = [value for value in others if value not in main and value.type == first.type]
            if not inner:
                continue
            sharing.writers |= dict.fromkeys(inner, first)
            sharing.common.add(first)
            if first not in main:
                sharing.hoisted[first] = None
        return sharing

    def is_elsewhere(self, value: Value) -> bool:
        """Whether a constant is not written in the graph that has it."""
        return value in self.writers or value in self.hoisted
