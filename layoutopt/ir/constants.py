"""Constants: equal ones stored once, without reading most of them, and deferred ones, which are recomputed when they are read.

Constants of one element type and shape are compared by a sample of their elements first, and by a SHA-256 of all bytes only
where the samples agree. So one or two pages are read of each distinct weight, and equal weights are read once. A deferred
constant is the result of folding, recomputed from smaller constants whenever it is read.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from math import prod

import numpy as np

from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, DType, TensorType, Value
from layoutopt.record import Record

LARGE = 1024  # bytes; smaller constants may be stored more than once
_SAMPLE_SIZE = 64  # elements
_CHUNK = 16 << 20  # bytes

Constant = tuple[TensorType, Data]


class RandomAccess:
    """Data whose elements can be computed one by one."""

    __slots__ = ()

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened array."""
        raise NotImplementedError


def representatives(constants: Iterable[Constant], least: int = LARGE) -> dict[Data, Data]:
    """Map the data of every constant above `least` bytes to the first data with the same type, shape and bytes."""
    groups: dict[TensorType, list[Data]] = {}
    for type, data in dict.fromkeys(constants):
        if type.dtype is not DType.STRING and data.nbytes > least:
            groups.setdefault(type, []).append(data)
    found: dict[Data, Data] = {}
    for type, alike in groups.items():
        for same in _split_groups(_split_groups([alike], partial(_sample, type)), _digest):
            found |= dict.fromkeys(same, same[0])
    return found


def share(values: Iterable[Value], least: int = LARGE) -> None:
    """Give constants of equal content above `least` bytes the same data object."""
    constants = [
        (value, (value.type, value.data))
        for value in values
        if value.data is not None and isinstance(value.type, TensorType)
    ]
    found = representatives((constant for _, constant in constants), least)
    for value, (_, data) in constants:
        value.data = found.get(data, data)


def share_constants(graph: Graph, least: int = LARGE) -> None:
    """Store equal constants of a main graph and of its bodies once: as one value in each graph, with the same data in all.

    Args:
        graph: the main graph.
        least: constants of at most this number of bytes are not shared.
    """
    regions = graph.regions()
    share((value for each in regions for value in each.values), least)
    for each in regions:
        _merge(each, least)


def _merge(graph: Graph, least: int) -> None:
    """Make one value of constants with the same data; a graph output keeps its own."""
    kept: dict[tuple[TensorType, Data], Value] = {}
    for value in graph.values:
        if value.data is None or value.data.nbytes <= least or not isinstance(value.type, TensorType):
            continue
        first = kept.setdefault((value.type, value.data), value)
        if first is not value and first.storage == value.storage:
            graph.replace_uses(value, first)
            if not graph.is_output(value):
                graph.remove_value(value)


def chunks(data: Data) -> Iterator[Array]:
    """The elements in row-major order, as contiguous arrays of about 16 MiB."""
    array = data.view() if isinstance(data, Rearranged) else data.numpy()
    pending = [array]
    while pending:
        each = pending.pop()
        if each.nbytes <= _CHUNK or each.ndim == 0 or each.flags.c_contiguous:
            yield np.ascontiguousarray(each)
        elif each.shape[0] == 1:
            pending.append(each[0])
        else:
            step = max(1, _CHUNK * each.shape[0] // each.nbytes)
            pending += [each[start : start + step] for start in range(0, each.shape[0], step)][::-1]


def _split_groups(groups: Iterable[list[Data]], key: Callable[[Data], bytes]) -> Iterator[list[Data]]:
    """Split groups by a key, which is computed only where a group has two members or more."""
    for group in groups:
        found: dict[bytes, list[Data]] = {}
        for data in group:
            found.setdefault(key(data) if len(group) > 1 else b"", []).append(data)
        yield from found.values()


def elements_at(data: Data, positions: Array) -> Array:
    """The elements of a constant at positions of the flattened array."""
    return data.elements_at(positions) if isinstance(data, RandomAccess) else np.asarray(data.numpy().flat[positions])


def _sample(type: TensorType, data: Data) -> bytes:
    return elements_at(data, _sample_positions(prod(static_shape(type.shape or ())))).tobytes()


@lru_cache(maxsize=256)
def _sample_positions(size: int) -> Array:
    """Up to 64 positions, evenly distributed over an array of `size` elements."""
    return np.unique(np.linspace(0, size - 1, _SAMPLE_SIZE, dtype=np.int64)) if size else np.zeros(0, np.int64)


def _digest(data: Data) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks(data):
        digest.update(chunk.reshape(-1).view(np.uint8).data)
    return digest.digest()


class Deferred(Record, eq=False):
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


class Rearranged(RandomAccess):
    """A constant with the elements of another one in another order or shape, possibly padded with zeros: an immutable value.

    Attributes:
        data: the other constant.
        nbytes: its size in this order.
    """

    __slots__ = ()
    data: Data
    nbytes: int

    def numpy(self) -> Array:
        """The elements."""
        raise NotImplementedError

    def view(self) -> Array:
        """The elements in row-major order, in any shape, as a view of the other constant where possible."""
        raise NotImplementedError

    def with_data(self, data: Data, nbytes: int) -> "Rearranged":
        """Another constant in the same order and shape."""
        raise NotImplementedError


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
