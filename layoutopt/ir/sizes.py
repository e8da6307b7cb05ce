"""Sizes of the symbolic dimensions of a model. The model stays symbolic; prices require numbers.

A dimension is given as a number or as a range, by the name that the model has for it, or as `input[axis]` where it has
none. Over a range a price is the mean of three: at the low end, in the geometric middle, and at the high end, all ranges
together. The size of a dimension that is not given is inferred from the graph (`sample_inputs`); the size that is usual for
its name and place is used where there is no graph:

    batch 1          height and width of an image 224          anything else 128
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from typing import TypeAlias

from layoutopt.errors import DimensionError
from layoutopt.formats import UNKNOWN, Dim, Extent, Shape, is_unknown, unquoted
from layoutopt.ir.types import Op, TensorType, Value

Range: TypeAlias = tuple[int, int]
"""The smallest and the largest size of a dimension."""

Dims: TypeAlias = Mapping[str, int | Range]
"""The sizes or ranges of dimensions that a caller gives, by name."""

_BATCH, _IMAGE, _SEQUENCE = 1, 224, 128
_WORDS = {
    _BATCH: re.compile(r"batch|\bbs\b|^[nb]$", re.IGNORECASE),
    _IMAGE: re.compile(r"height|width|^[hw]$", re.IGNORECASE),
    _SEQUENCE: re.compile(r"seq|length|token|^[stl]$", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic dimension of the inputs.

    Attributes:
        name: the name in arguments and options.
        dim: its text in shapes.
        usual: the size that is assumed if none is given.
    """

    name: str
    dim: str
    usual: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a model is planned for.

    Attributes:
        ranges: of every symbolic dimension of the inputs, by the name that callers have for it.
        assumed: the dimensions whose size is a guess.
        points: samples of all sizes, by the texts of dimensions; one if no range is given, else three.
        guards: other sizes of guessed dimensions, like `points`; a plan may not be slower there than the model as it is.
        reasons: per guessed dimension, from what its size was inferred.
    """

    ranges: Mapping[str, Range]
    assumed: tuple[str, ...]
    points: tuple[Mapping[str, int], ...]
    guards: tuple[Mapping[str, int], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Iterable[Value], dims: Dims) -> "Sizes":
        """Sizes for the dimensions of some inputs: as given, or else usual for their names and places.

        Raises:
            DimensionError: a name is that of no dimension, or a size is none.
        """
        found = symbols(inputs)
        given = checked([each.name for each in found], dims)
        ranges = {each.name: given.get(each.name, (each.usual, each.usual)) for each in found}
        assumed = tuple(each.name for each in found if each.name not in given)
        texts = {each.name: each.dim for each in found}
        corners = [{texts[name]: corner(range, at) for name, range in ranges.items()} for at in range(3)]
        return cls(ranges, assumed, tuple(corners if corners[0] != corners[2] else corners[:1]))

    def learned(self, found: Sequence[Mapping[str, int]]) -> "Sizes":
        """The same with sizes, at every point and then every guard, for dimensions that no expression describes."""
        known = (*self.points, *self.guards)
        learned = tuple({**point, **more} for point, more in zip(known, found, strict=True))
        return replace(self, points=learned[: len(self.points)], guards=learned[len(self.points) :])

    def at_guards(self) -> "list[Sizes]":
        """Each guard as sizes of its own, with that guard for the only point."""
        return [replace(self, points=(guard,), guards=()) for guard in self.guards]

    def at(self, dim: Dim, point: Mapping[str, int], least: int = 1) -> int:
        """The size of an extent at one point; `least` if it is unknown or smaller."""
        if isinstance(dim, int):
            return dim
        return max(dim.at(point) or least, least)

    def elements(self, shape: Shape) -> float:
        """How many elements a tensor of that shape has, on the average of all points."""
        return sum(prod(self.at(dim, point) for dim in shape) for point in self.points) / len(self.points)

    def bound(self, op: Op) -> list[Op]:
        """A copy of an op at every point, outside of any graph: the same with operands that have numbers for extents."""
        return [self._bound_op(op, point) for point in self.points]

    def bound_value(self, value: Value, least: int = 1) -> list[Value]:
        """A copy of a value at every point, with no symbolic extent below the least."""
        return [self._bound_value(value, point, least) for point in self.points]

    def _bound_op(self, op: Op, point: Mapping[str, int]) -> Op:
        values: dict[Value, Value] = {}
        for value in (*op.inputs, *op.outputs):
            if value is not None and value not in values:
                values[value] = self._bound_value(value, point)
        inputs, outputs = (tuple(value and values[value] for value in side) for side in (op.inputs, op.outputs))
        copy = op.copy(inputs, outputs)
        copy.signature = op.signature
        return copy

    def _bound_value(self, value: Value, point: Mapping[str, int], least: int = 1) -> Value:
        type = value.type
        if isinstance(type, TensorType) and type.shape is not None and is_symbolic(type.shape):
            type = TensorType(type.dtype, tuple(self.at(dim, point, least) for dim in type.shape))
        copy = Value(value.name, type, storage=value.storage, data=value.data, tensor=value.tensor)
        if value.elements is not None:
            copy.elements = tuple(None if each is None else Extent.of(each).at(point) for each in value.elements)
        return copy


NO_SIZES = Sizes({}, (), ({},))
"""Of a model without symbolic dimensions."""


def symbols(inputs: Iterable[Value]) -> list[Symbol]:
    """The symbolic dimensions of some inputs, each once."""
    found: dict[Extent, Symbol] = {}
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, Extent):
                name = caller_name(dim)
                is_fraction = value.dtype is not None and value.dtype.is_float
                found.setdefault(dim, Symbol(name, str(dim), usual_size(name, axis, value.rank or 0, is_fraction)))
    return list(found.values())


def caller_name(dim: Extent) -> str:
    """The name that callers have for a symbolic dimension of an input."""
    name = unquoted(dim) or str(dim)
    return name.removeprefix(UNKNOWN) if is_unknown(dim) else name


def usual_size(name: str, axis: int, rank: int, is_fraction: bool) -> int:
    """The usual size by the dimension's name; else a batch for axis 0, an image for rank 4, or a sequence."""
    hint = hinted_size(name)
    if hint is not None:
        return hint
    if axis == 0:
        return _BATCH
    return _IMAGE if is_fraction and rank == 4 else _SEQUENCE


def hinted_size(name: str) -> int | None:
    """The usual size of a dimension by its name; None for other names."""
    if name.endswith("]"):
        return None
    return next((size for size, pattern in _WORDS.items() if pattern.search(name)), None)


def checked(names: Sequence[str], dims: Dims) -> dict[str, Range]:
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
    """A size as the range of only that."""
    return (given, given) if isinstance(given, int) else given


def corner(range: Range, at: int) -> int:
    """The low end, the geometric middle, the high end."""
    low, high = range
    return (low, isqrt(low * high), high)[at]


def is_symbolic(shape: Shape) -> bool:
    """Whether a shape has a symbolic dimension."""
    return any(isinstance(dim, Extent) for dim in shape)


__all__ = [
    "NO_SIZES",
    "Dims",
    "Range",
    "Sizes",
    "Symbol",
    "as_range",
    "caller_name",
    "checked",
    "corner",
    "hinted_size",
    "is_symbolic",
    "symbols",
    "usual_size",
]
