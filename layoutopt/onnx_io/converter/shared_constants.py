"""Constants that several graphs of a model share: their elements are written once, in the main graph.

Bodies have their own constants, so that passes apply to ops with constant operands in bodies too. Many of them are copies of an
outer constant that the body captured before. Constants are shared if their `Data` is the same object.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Data, Value

_LARGE = 1024  # bytes; smaller constants are written in every graph, where inference reads them


@dataclass(slots=True)
class Sharing:
    """The constants that are written in another graph than their own.

    Attributes:
        written_as: for constants of bodies, the constant that is written in their place.
        hoisted: constants of bodies that the main graph writes.
        common: the constants that replace others; they are initializers of the main graph.
    """

    written_as: dict[Value, Value] = field(default_factory=dict)
    hoisted: dict[Value, None] = field(default_factory=dict)
    common: set[Value] = field(default_factory=set)

    @classmethod
    def of(cls, graphs: Sequence[Graph]) -> "Sharing":
        """The sharing in a main graph and its bodies, in that order. Outputs of a body are constants of the body."""
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
            sharing.written_as |= dict.fromkeys(inner, first)
            sharing.common.add(first)
            if first not in main:
                sharing.hoisted[first] = None
        return sharing

    def is_written_elsewhere(self, value: Value) -> bool:
        """Whether a constant is not written in the graph that has it."""
        return value in self.written_as or value in self.hoisted
