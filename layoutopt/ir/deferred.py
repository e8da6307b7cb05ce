"""Deferred constants: folded constants that are recomputed from smaller constants whenever they are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, DType, Value


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """A folded constant that is not kept in memory.

    Attributes:
        graph: a graph without inputs that computes it.
        nbytes: its size.
        run: computes the output of a graph without inputs.
        is_expanded: whether it is larger than the constants in `graph`, so that a file should contain these and the ops.
    """

    graph: Graph
    nbytes: int
    run: Callable[[Graph], Array]
    is_expanded: bool

    def numpy(self) -> Array:
        """Compute the elements."""
        return self.run(self.graph)

    @property
    def sources(self) -> list[Value]:
        """The stored constants that it is computed from."""
        return [value for value in self.graph.values if value.data is not None]

    @property
    def narrow_source(self) -> Value | None:
        """The constant of a narrower type if this one is its Cast; None if it is computed by other ops."""
        sources, ops = self.sources, self.graph.ops
        return sources[0] if len(sources) == 1 and [op.kind for op in ops] == ["Cast"] else None


@runtime_checkable
class Rearranged(Protocol):
    """A constant with the elements of another one in another order or shape, possibly padded with zeros: a frozen dataclass."""

    @property
    def data(self) -> Data:
        """The other constant."""

    @property
    def nbytes(self) -> int:
        """Its size in this order."""

    def with_data(self, data: Data, nbytes: int) -> Data:
        """Another constant in the same order and shape."""


def expanded_constant(data: Data) -> Deferred | None:
    """The expanded deferred constant behind a constant and its rearrangements; None if a file should contain the elements."""
    while not isinstance(data, Deferred):
        if not isinstance(data, Rearranged):
            return None
        data = data.data
    return data if data.is_expanded else None


def with_narrow_elements(data: Data, wide: DType, narrow: Value) -> Data:
    """The elements of `narrow` in the order of `data`, which is `narrow` cast to `wide` and possibly rearranged."""
    rearrangements: list[Rearranged] = []
    while isinstance(data, Rearranged):
        rearrangements.append(data)
        data = data.data
    assert narrow.data is not None and narrow.dtype is not None
    result = narrow.data
    for each in reversed(rearrangements):
        result = each.with_data(result, each.nbytes * narrow.dtype.bits // wide.bits)
    return result


def stored(value: Value) -> dict[Data, int]:
    """The constants that a file contains for a constant, with their sizes in bytes."""
    data = value.data
    deferred = expanded_constant(data) if data is not None else None
    if data is None or deferred is None:
        return {} if data is None else {data: data.nbytes}
    narrow = deferred.narrow_source
    if narrow is not None and value.dtype is not None and narrow.dtype is not None:
        return {data: data.nbytes * narrow.dtype.bits // value.dtype.bits}
    return {source.data: source.data.nbytes for source in deferred.sources if source.data is not None}


def stored_bytes(graphs: Iterable[Graph]) -> int:
    """The size of all constants in a file, equal data counted once."""
    found: dict[Data, int] = {}
    for value in (value for graph in graphs for value in graph.values):
        found |= stored(value)
    return sum(found.values())


__all__ = ["Deferred", "Rearranged", "expanded_constant", "stored", "stored_bytes", "with_narrow_elements"]
