"""A CuTe Layout: a shape and strides with the same nesting, a function from coordinates to integers.

    ((2,2),3):((24,2),8)        shape : stride

A coordinate has the nesting of the shape or a coarser one: one integer may replace a tuple, as the index of a coordinate of
that tuple in colexicographic order. So every layout is also a function of one integer,

    L(i) = sum of digit_k * stride_k        digit_k = i // (shape_0 * ... * shape_{k-1}) % shape_k

with an unbounded last digit: integers beyond the size continue along the last mode.

Source: CUTLASS include/cute/layout.hpp and media/docs/cpp/cute/01_layout.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.systems.cute.int_tuple import IntTuple, congruent, flatten, nested, notation, parse_int_tuple, product

Index: TypeAlias = NDArray[np.int64]
Coord: TypeAlias = Any
"""An integer, an array of integers, or a tuple of coordinates; arrays broadcast against each other."""


@dataclass(frozen=True, init=False)
class CuteLayout:
    """A function from coordinates to integers, given by extents and strides.

    Args:
        shape: the extents, 1 or more each.
        stride: the strides, in the nesting of the shape; by default the layout is compact and column-major.

    Raises:
        FormatError: an extent is below 1, a stride is below 0, or their nestings differ.
    """

    shape: IntTuple
    stride: IntTuple

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        extents = flatten(shape)
        if stride is None:
            strides = [1]
            for extent in extents:
                strides.append(strides[-1] * extent)
            stride = nested(strides, shape)
        if not congruent(shape, stride):
            raise FormatError(
                f"{notation(shape)} and {notation(stride)} have different nestings", hint="give one stride per extent"
            )
        if min(extents, default=1) < 1 or min(flatten(stride), default=0) < 0:
            what = "has an extent below 1 or a stride below 0"
            raise FormatError(what, where=f"{notation(shape)}:{notation(stride)}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the notation `(4,2):(1,4)`; without strides it is `(4,2)`.

        Raises:
            FormatError: the text is no layout.
        """
        shape, colon, stride = text.partition(":")
        return cls(parse_int_tuple(shape), parse_int_tuple(stride) if colon else None)

    @property
    def rank(self) -> int:
        """Number of modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest value."""
        return 1 + sum((extent - 1) * stride for extent, stride in self.flat())

    @property
    def modes(self) -> tuple["CuteLayout", ...]:
        """The modes as layouts."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return tuple(map(CuteLayout, self.shape, self.stride))
        return (self,)

    def __getitem__(self, index: int) -> "CuteLayout":
        return self.modes[index]

    def __iter__(self) -> Iterator["CuteLayout"]:
        return iter(self.modes)

    def flat(self) -> Iterator[tuple[int, int]]:
        """Extent and stride of every leaf."""
        return zip(flatten(self.shape), flatten(self.stride), strict=True)

    def __call__(self, *coord: Coord) -> Index:
        """The values at the given coordinates: `layout(5)`, `layout(1, 2)`, `layout((1, 0), 2)`, with arrays as well.

        Raises:
            FormatError: a coordinate has another nesting than the shape, or is no integer of 0 or more.
        """
        return np.asarray(_value(coord[0] if len(coord) == 1 else coord, self.shape, self.stride), np.int64)[()]

    def values(self) -> Index:
        """The values at all coordinates, in colexicographic order."""
        return self(np.arange(self.size))

    def __str__(self) -> str:
        """The notation of CuTe: `(4,2):(1,4)`."""
        return f"{notation(self.shape)}:{notation(self.stride)}"


def make_layout(*layouts: CuteLayout) -> CuteLayout:
    """The layout whose modes are the given layouts."""
    return CuteLayout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


def _value(coord: Coord, shape: IntTuple, stride: IntTuple) -> Any:
    if isinstance(coord, tuple):
        if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(coord) != len(shape):
            raise FormatError(f"the coordinate {coord} has another nesting than the shape {notation(shape)}")
        return sum(map(_value, coord, shape, stride))
    rest = _counted(coord)
    extents, strides = flatten(shape), flatten(stride)
    total = np.zeros_like(rest)
    for extent, step in zip(extents[:-1], strides[:-1], strict=True):
        rest, digit = np.divmod(rest, extent)
        total = total + digit * step
    return total + rest * strides[-1] if strides else total


def _counted(coord: Coord) -> Index:
    numbers = np.asarray(coord)
    if numbers.dtype.kind not in "iu" or np.any(numbers < 0):
        raise FormatError(f"a coordinate is no integer of 0 or more: {coord}")
    return numbers.astype(np.int64)
