"""A CuTe Layout: a shape and strides with the same nesting, a function from coordinates to integers.

    ((2,2),3):((24,2),8)        shape : stride

A coordinate has the nesting of the shape or a coarser one: one integer may replace a tuple, as the index of a coordinate of
that tuple in colexicographic order. So every layout is also a function of one integer,

    L(i) = sum of digit_k * stride_k        digit_k = i // (shape_0 * ... * shape_{k-1}) % shape_k

with an unbounded last digit: integers beyond the size continue along the last mode.

Source: CUTLASS include/cute/layout.hpp and media/docs/cpp/cute/01_layout.md.
"""

import ast
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError

# --- IntTuple: an integer, or a tuple of IntTuples; the type of shapes, strides and coordinates ---
#
#     (4, (2, 3))     two modes; the second one has two modes
#
# Source: CUTLASS include/cute/int_tuple.hpp; the notation is that of media/docs/cpp/cute/01_layout.md.


IntTuple: TypeAlias = int | tuple["IntTuple", ...]

_GAP = re.compile(r"[^0-9(),_\s]|[(,]\s*[,)]|\d\s+\d|\d_|^\s*$")  # in no notation


def flatten(value: IntTuple) -> tuple[int, ...]:
    """The integers from left to right."""
    if isinstance(value, tuple):
        return tuple(leaf for part in value for leaf in flatten(part))
    return (value,)


def product(value: IntTuple) -> int:
    """The product of the integers: the size of a shape."""
    return math.prod(flatten(value))


def congruent(left: IntTuple, right: IntTuple) -> bool:
    """Whether both have the same nesting."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(congruent, left, right))
    return not isinstance(left, tuple) and not isinstance(right, tuple)


def compatible(coarse: IntTuple, fine: IntTuple) -> bool:
    """Whether every coordinate of the shape `coarse` is also one of `fine`: 24 and (4, 6), (4, 6) and ((2, 2), 6)."""
    if not isinstance(coarse, tuple):
        return coarse == product(fine)
    return isinstance(fine, tuple) and len(coarse) == len(fine) and all(map(compatible, coarse, fine))


def nested(leaves: Sequence[IntTuple], profile: IntTuple) -> IntTuple:
    """Values in the nesting of a profile with as many leaves."""
    return _nested(iter(leaves), profile)


def notation(value: IntTuple) -> str:
    """The notation of CuTe: `(4,(2,3))`."""
    return f"({','.join(map(notation, value))})" if isinstance(value, tuple) else str(value)


def parse_int_tuple(text: str) -> IntTuple:
    """The value of a notation; `_4` is equivalent to `4`, and `(4)` is a tuple of one.

    Raises:
        FormatError: the text is neither an integer nor a tuple of integers.
    """
    value: IntTuple = ()
    if not _GAP.search(text):
        lists = re.sub(r"_?\b_?0*([0-9]+)", r"\1", text).strip().replace("(", "[").replace(")", "]")
        with suppress(SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
            value = _tuples(ast.literal_eval(lists))
    if value == ():
        raise FormatError("not an integer or a tuple of integers", where=text, hint="write it like (4,(2,3))")
    return value


def _tuples(value: Any) -> IntTuple:
    return tuple(map(_tuples, value)) if isinstance(value, list) else int(value)


def _nested(leaves: Iterator[IntTuple], profile: IntTuple) -> IntTuple:
    if isinstance(profile, tuple):
        return tuple(_nested(leaves, part) for part in profile)
    return next(leaves)


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


# --- swizzle ---
#
# Swizzle: a permutation of elements within lines of memory, so that the threads of a warp access different banks.
#
#     Swizzle<B,M,S>:  0bxxxYYYxxxZZZxxxx  ->  ZZZ ^= YYY      B bits wide, ZZZ begins at bit M, YYY is S bits further up
#
# A swizzle is its own inverse. A ComposedLayout is a swizzle of an offset plus the value of a layout.
#
# Source: CUTLASS include/cute/swizzle.hpp and include/cute/swizzle_layout.hpp.


_NAME = re.compile(r"(?:Sw|Swizzle)<\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*(-?[0-9]+)\s*>")
_COMPOSED = re.compile(r"\s*(Sw[^>]*>)\s*o\s*(?:_?([0-9]+)\s*o\s*)?(.*)")


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The exclusive or of a bit range of an integer with another range.

    Args:
        bits: the number of bits in a range (B).
        base: the lowest bit that is changed (M).
        shift: the distance of the other range (S), at least `bits`; it is below the changed bits if negative.

    Raises:
        FormatError: `bits` or `base` is below 0, or the bits overlap.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        """Check that the swizzle is its own inverse."""
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise FormatError("the bits overlap or are below 0", where=str(self), hint="shift by at least `bits`")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `Swizzle<3,3,3>` or `Sw<3,3,3>`.

        Raises:
            FormatError: the text is no swizzle.
        """
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise FormatError("not a swizzle", where=text, hint="write it like Swizzle<3,3,3>")
        return cls(*map(int, match.groups()))

    def __call__(self, offset: ArrayLike) -> Index:
        """The integers with their bits changed."""
        numbers = np.asarray(offset, np.int64)
        source, target = self.base + max(0, self.shift), self.base + max(0, -self.shift)
        return (numbers ^ (((numbers >> source) & ((1 << self.bits) - 1)) << target))[()]

    @property
    def size(self) -> int:
        """The period of the swizzle."""
        return 1 << (self.bits + self.base + abs(self.shift))

    def __str__(self) -> str:
        """The notation of CuTe."""
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """The function `outer(offset + inner(coord))`, which is no CuteLayout but has the same interface."""

    outer: Swizzle
    offset: int
    inner: CuteLayout

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `Sw<3,3,3> o (8,64):(64,1)`, with or without the offset that CuTe prints in between.

        Raises:
            FormatError: the text is no swizzle of a layout.
        """
        match = _COMPOSED.fullmatch(text)
        if match is None:
            raise FormatError("not a swizzle and a layout", where=text, hint="write Sw<3,3,3> o (8,64):(64,1)")
        return cls(Swizzle.parse(match[1]), int(match[2] or 0), CuteLayout.parse(match[3]))

    def __call__(self, *coord: Coord) -> Index:
        """The values at the given coordinates."""
        return self.outer(self.offset + self.inner(*coord))

    def values(self) -> Index:
        """The values at all coordinates, in colexicographic order."""
        return self(np.arange(self.size))

    @property
    def shape(self) -> IntTuple:
        """The shape of `inner`."""
        return self.inner.shape

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.inner.size

    def __str__(self) -> str:
        """The notation of CuTe."""
        return f"{self.outer} o {self.offset} o {self.inner}"
