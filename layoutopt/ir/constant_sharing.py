"""Deduplication of equal constants, without reading most of them.

Constants of one element type and shape are compared by a sample of their elements first, and by a SHA-256 of all bytes only
where the samples agree. So one or two pages are read of each distinct weight, and equal weights are read once.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np

from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, DType, TensorType, Value

LARGE = 1024  # bytes; smaller constants may be stored more than once
_SAMPLE_SIZE = 64  # elements
_CHUNK = 16 << 20  # bytes

Constant = tuple[TensorType, Data]


@runtime_checkable
class RandomAccess(Protocol):
    """Data whose elements can be computed one by one."""

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened array."""


@runtime_checkable
class ChunkedData(Protocol):
    """Data that is a view of another array where possible, so that it can be copied in chunks."""

    def view(self) -> Array:
        """An array with the elements in row-major order, in any shape, whose memory need not be contiguous."""


def representatives(constants: Iterable[Constant]) -> dict[Data, Data]:
    """Map the data of every constant above `LARGE` bytes to the first data with the same type, shape and bytes."""
    groups: dict[TensorType, list[Data]] = {}
    for type, data in dict.fromkeys(constants):
        if type.dtype is not DType.STRING and data.nbytes > LARGE:
            groups.setdefault(type, []).append(data)
    found: dict[Data, Data] = {}
    for type, alike in groups.items():
        for same in _split_groups(_split_groups([alike], partial(_sample, type)), _digest):
            found |= dict.fromkeys(same, same[0])
    return found


def share(values: Iterable[Value]) -> None:
    """Give constants of equal content the same data object."""
    constants = [
        (value, (value.type, value.data))
        for value in values
        if value.data is not None and isinstance(value.type, TensorType)
    ]
    found = representatives(constant for _, constant in constants)
    for value, (_, data) in constants:
        value.data = found.get(data, data)


def share_constants(graph: Graph) -> None:
    """Store equal constants of a main graph and of its bodies once: as one value in each graph, with the same data in all."""
    regions = graph.regions()
    share(value for each in regions for value in each.values)
    for each in regions:
        _merge(each)


def _merge(graph: Graph) -> None:
    """Make one value of constants with the same data; a graph output keeps its own."""
    kept: dict[tuple[TensorType, Data], Value] = {}
    for value in graph.values:
        if value.data is None or value.data.nbytes <= LARGE or not isinstance(value.type, TensorType):
            continue
        first = kept.setdefault((value.type, value.data), value)
        if first is not value and first.storage == value.storage:
            graph.replace_uses(value, first)
            if not graph.is_output(value):
                graph.remove_value(value)


def chunks(data: Data) -> Iterator[Array]:
    """The elements in row-major order, as contiguous arrays of about 16 MiB."""
    array = data.view() if isinstance(data, ChunkedData) else data.numpy()
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
        if len(group) == 1:
            yield group
            continue
        found: dict[bytes, list[Data]] = {}
        for data in group:
            found.setdefault(key(data), []).append(data)
        yield from found.values()


def elements_at(data: Data, positions: Array) -> Array:
    """The elements of a constant at positions of the flattened array."""
    return data.elements_at(positions) if isinstance(data, RandomAccess) else np.asarray(data.numpy().flat[positions])


def _sample(type: TensorType, data: Data) -> bytes:
    return elements_at(data, _sample_positions(prod(static_shape(type.shape or ())))).tobytes()


def _sample_positions(size: int) -> Array:
    """Up to 64 positions, evenly distributed over an array of `size` elements."""
    return np.unique(np.linspace(0, size - 1, _SAMPLE_SIZE, dtype=np.int64)) if size else np.zeros(0, np.int64)


def _digest(data: Data) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks(data):
        digest.update(chunk.reshape(-1).view(np.uint8).data)
    return digest.digest()
