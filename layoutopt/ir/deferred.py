"""Constants that are computed from smaller stored ones whenever they are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, DType, Value


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """A folded constant that is not held.

    Attributes:
        part: a graph without inputs that computes it.
        nbytes: its size.
        run: computes the output of such a graph.
        is_expanded: whether it is larger than the constants in `part`, so that a file should have these and the ops.
    """

    part: Graph
    nbytes: int
    run: Callable[[Graph], Array]
    is_expanded: bool

    def numpy(self) -> Array:
        """The elements, computed."""
        return self.run(self.part)

    @property
    def sources(self) -> list[Value]:
        """The stored constants that it is computed from."""
        return [value for value in self.part.values if value.data is not None]

    @property
    def narrow(self) -> Value | None:
        """The constant of a narrower type that it is a Cast of; None if it is computed otherwise."""
        sources, ops = self.sources, self.part.ops
        return sources[0] if len(sources) == 1 and [op.kind for op in ops] == ["Cast"] else None


@runtime_checkable
class Moved(Protocol):
    """Another constant in another order or shape, perhaps with zeros between: a frozen dataclass with these fields."""

    @property
    def data(self) -> Data:
        """The other constant."""

    @property
    def nbytes(self) -> int:
        """Its size in this order."""

    def of(self, data: Data, nbytes: int) -> Data:
        """The same for another constant."""


def expanded(data: Data) -> Deferred | None:
    """The deferred constant that a constant is, perhaps in another order, if a file should not have its elements."""
    while not isinstance(data, Deferred):
        if not isinstance(data, Moved):
            return None
        data = data.data
    return data if data.is_expanded else None


def narrowed(data: Data, wide: DType, narrow: Value) -> Data:
    """A constant that is `narrow` cast to `wide`, perhaps in another order, as its narrow elements in that order."""
    moves: list[Moved] = []
    while isinstance(data, Moved):
        moves.append(data)
        data = data.data
    assert narrow.data is not None and narrow.dtype is not None
    result = narrow.data
    for each in reversed(moves):
        result = each.of(result, each.nbytes * narrow.dtype.bits // wide.bits)
    return result


def stored(value: Value) -> dict[Data, int]:
    """The constants that a file has for one, with their sizes in bytes."""
    data = value.data
    deferred = expanded(data) if data is not None else None
    if data is None or deferred is None:
        return {} if data is None else {data: data.nbytes}
    narrow = deferred.narrow
    if narrow is not None and value.dtype is not None and narrow.dtype is not None:
        return {data: data.nbytes * narrow.dtype.bits // value.dtype.bits}
    return {source.data: source.data.nbytes for source in deferred.sources if source.data is not None}


def stored_bytes(graphs: Iterable[Graph]) -> int:
    """The size of all constants as a file has them, equal data counted once."""
    found: dict[Data, int] = {}
    for value in (value for graph in graphs for value in graph.values):
        found |= stored(value)
    return sum(found.values())


__all__ = ["Deferred", "Moved", "expanded", "narrowed", "stored", "stored_bytes"]
