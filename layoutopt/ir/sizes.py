"""Sizes of the symbolic dimensions of a model. The model stays symbolic; prices require numbers.

A dimension is given as a number or as a range, by the name that the model has for it, or as `input[axis]` where it has
none. Ops are priced at *points*: a point assigns a size to every dimension. With ranges there are three points, with all
ranges at the low end, at the geometric middle and at the high end, and a price is the mean over them. The size of a dimension
that is not given is inferred from the graph (`sample_inputs`), or without a graph from its name and position:

    batch 1          height and width of an image 224          samples of audio 16000          anything else 128
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isqrt, prod
from typing import TypeAlias

from msgspec import field
from msgspec.structs import replace

from layoutopt.errors import DimensionError
from layoutopt.formats import UNKNOWN, Dim, Extent, Shape, is_unknown, unquoted
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.record import Record

Range: TypeAlias = tuple[int, int]
"""The smallest and the largest size of a dimension."""

Dims: TypeAlias = Mapping[str, int | Range]
"""The sizes or ranges of dimensions that a caller gives, by name."""

BATCH, IMAGE, SEQUENCE, AUDIO = 1, 224, 128, 16000
"""The default sizes of dimensions."""

_WORDS = {
    BATCH: re.compile(r"batch|\bbs\b|^[nb]$", re.IGNORECASE),
    IMAGE: re.compile(r"height|width|^[hw]$", re.IGNORECASE),
    SEQUENCE: re.compile(r"seq|length|token|^[stl]$", re.IGNORECASE),
    AUDIO: re.compile(r"^samples$|audio|wave", re.IGNORECASE),
}


class Symbol(Record):
    """A symbolic dimension of the inputs.

    Attributes:
        name: the name in arguments and options.
        dim: the text of its extent in shapes.
        default: the size that is assumed if none is given.
    """

    name: str
    dim: str
    default: int


class Sizes(Record):
    """The sizes that a model is planned for.

    Attributes:
        ranges: the sizes of every symbolic dimension of the inputs, by the name in arguments and options.
        assumed: the names of the dimensions whose sizes are not given.
        points: the sizes at which ops are priced, by the texts of dimensions: three points if a range is given, else one.
        guards: points with other sizes of the assumed dimensions, at which a plan may not be slower than the original model.
        reasons: the reason for the size of each assumed dimension, by name.
    """

    ranges: Mapping[str, Range]
    assumed: tuple[str, ...]
    points: tuple[Mapping[str, int], ...]
    guards: tuple[Mapping[str, int], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def with_inferred(self, found: Sequence[Mapping[str, int]]) -> "Sizes":
        """These sizes and those of anonymous dimensions, one mapping per point and then one per guard."""
        points = (*self.points, *self.guards)
        known = tuple({**point, **more} for point, more in zip(points, found, strict=True))
        return replace(self, points=known[: len(self.points)], guards=known[len(self.points) :])

    def at_guards(self) -> "list[Sizes]":
        """Per guard, the sizes with this guard as the only point."""
        return [replace(self, points=(guard,), guards=()) for guard in self.guards]

    def at(self, dim: Dim, point: Mapping[str, int], least: int = 1) -> int:
        """The size of an extent at one point; `least` if it is unknown or smaller."""
        if isinstance(dim, int):
            return dim
        return max(dim.at(point) or least, least)

    def elements(self, shape: Shape) -> float:
        """The number of elements of a tensor of that shape, the mean over the points."""
        return sum(prod(self.at(dim, point) for dim in shape) for point in self.points) / len(self.points)

    def specialize(self, op: Op) -> list[Op]:
        """A copy of an op for every point, in no graph, on operands with the sizes of that point as extents."""
        return [self._specialize_op(op, point) for point in self.points]

    def specialize_value(self, value: Value, least: int = 1) -> list[Value]:
        """A copy of a value for every point, with symbolic extents of at least `least`."""
        return [self._specialize_value(value, point, least) for point in self.points]

    def _specialize_op(self, op: Op, point: Mapping[str, int]) -> Op:
        values: dict[Value, Value] = {}
        for value in (*op.inputs, *op.outputs):
            if value is not None and value not in values:
                values[value] = self._specialize_value(value, point)
        inputs, outputs = (tuple(value and values[value] for value in side) for side in (op.inputs, op.outputs))
        copy = op.copy(inputs, outputs)
        copy.signature = op.signature
        return copy

    def _specialize_value(self, value: Value, point: Mapping[str, int], least: int = 1) -> Value:
        type = value.type
        if isinstance(type, TensorType) and type.shape is not None and is_symbolic(type.shape):
            type = TensorType(type.dtype, tuple(self.at(dim, point, least) for dim in type.shape))
        copy = Value(value.name, type, storage=value.storage, data=value.data, tensor=value.tensor)
        if value.elements is not None:
            copy.elements = tuple(None if each is None else Extent.of(each).at(point) for each in value.elements)
        return copy


NO_SIZES = Sizes({}, (), ({},))
"""The sizes of a model without symbolic dimensions."""


def symbols(inputs: Iterable[Value]) -> list[Symbol]:
    """The symbolic dimensions of some inputs, each once."""
    found: dict[Extent, Symbol] = {}
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, Extent):
                name = caller_name(dim)
                is_float = value.dtype is not None and value.dtype.is_float
                found.setdefault(dim, Symbol(name, str(dim), default_size(name, axis, value.rank or 0, is_float)))
    return list(found.values())


def caller_name(dim: Extent) -> str:
    """The name of a symbolic dimension of an input in arguments and options."""
    name = unquoted(dim) or str(dim)
    return name.removeprefix(UNKNOWN) if is_unknown(dim) else name


def default_size(name: str, axis: int, rank: int, is_float: bool) -> int:
    """The size by the dimension's name; else 1 for the first of several axes, 224 for images of rank 4, otherwise 128."""
    hint = size_by_name(name)
    if hint is not None:
        return hint
    if axis == 0 and rank > 1:
        return BATCH
    return IMAGE if is_float and rank == 4 else SEQUENCE


def size_by_name(name: str) -> int | None:
    """The default size of a dimension with a name such as `batch`, `height` or `seq`; None for other names."""
    if name.endswith("]"):
        return None
    return next((size for size, pattern in _WORDS.items() if pattern.search(name)), None)


def checked_ranges(names: Sequence[str], dims: Dims) -> dict[str, Range]:
    """The given sizes of dimensions, as ranges.

    Raises:
        DimensionError: a dimension is not among the names, or its size is not at least 1.
    """
    ranges: dict[str, Range] = {}
    for name, given in dims.items():
        if name not in names:
            hint = f"there are {', '.join(names)}" if names else "all extents are fixed"
            raise DimensionError("no such symbolic dimension", where=name, hint=hint)
        low, high = as_range(given)
        if not 1 <= low <= high:
            raise DimensionError(
                f"{low}:{high} is no range of sizes", where=name, hint="give LOW:HIGH, with LOW at least 1"
            )
        ranges[name] = low, high
    return ranges


def as_range(given: int | Range) -> Range:
    """A range; a single size is a range of one size."""
    return (given, given) if isinstance(given, int) else given


def point_of_range(range: Range, at: int) -> int:
    """The size at the low end (`at` is 0), the geometric middle (1) or the high end (2)."""
    low, high = range
    return (low, isqrt(low * high), high)[at]


def is_symbolic(shape: Shape) -> bool:
    """Whether a shape has a symbolic dimension."""
    return any(isinstance(dim, Extent) for dim in shape)
