"""Swizzle: a permutation of elements within lines of memory, so that the threads of a warp access different banks.

    Swizzle<B,M,S>:  0bxxxYYYxxxZZZxxxx  ->  ZZZ ^= YYY      B bits wide, ZZZ begins at bit M, YYY is S bits further up

A swizzle is its own inverse. A ComposedLayout is a swizzle of an offset plus the value of a layout.

Source: CUTLASS include/cute/swizzle.hpp and include/cute/swizzle_layout.hpp.
"""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from layoutopt.errors import FormatError
from layoutopt.systems.cute.int_tuple import IntTuple
from layoutopt.systems.cute.layout import Coord, CuteLayout, Index

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
