"""The layouts of CuTe, the layout library of CUTLASS 3: nested shape and strides, a function from coordinates to integers.

    ((2,2),3):((24,2),8)        shape : stride

A coordinate has the nesting of the shape or a coarser one: one integer may replace a tuple, as the index of a coordinate of
that tuple in colexicographic order. So every layout is also a function of one integer,

    L(i) = sum of digit_k * stride_k        digit_k = i // (shape_0 * ... * shape_{k-1}) % shape_k

with an unbounded last digit: integers beyond the size continue along the last mode. Functions of layouts give layouts:

    coalesce(A)(i) = A(i)                       in as few modes as possible
    composition(A, B)(i) = A(B(i))
    complement(A, n) = A*                       (A, A*) has every integer below n once
    A(right_inverse(A)(i)) = i                  left_inverse(A)(A(i)) = i

Not every function is a layout. If a result is no layout, the function raises an error instead of returning another layout.

A tensor in a format is a layout with one mode per axis. The submodes of a mode are the digits of its axis, the least
significant first. For (1, 32, 5, 5) in NCHW16c:

    (1,(16,2),5,5):(800,(1,400),80,16)

Source: CUTLASS include/cute/layout.hpp, media/docs/cpp/cute/01_layout.md and 02_layout_algebra.md. The composition has another
algorithm than in CuTe, which also finds results that CuTe's divisibility conditions exclude, and is never wrong where a sum of
digits carries.
"""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, Part

# --- IntTuple: an integer, or a tuple of IntTuples; the type of shapes, strides and coordinates ---
#
#     (4, (2, 3))     two modes; the second one has two modes
#
# Source: CUTLASS include/cute/int_tuple.hpp; the notation is that of media/docs/cpp/cute/01_layout.md.


IntTuple: TypeAlias = int | tuple["IntTuple", ...]

_NOTATION = re.compile(r"[0-9(),\s]+")


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


def nested(leaves: Sequence[IntTuple], profile: IntTuple) -> IntTuple:
    """Values in the nesting of a profile with as many leaves."""
    return _nested(iter(leaves), profile)


def notation(value: IntTuple) -> str:
    """The notation of CuTe: `(4,(2,3))`."""
    return f"({','.join(map(notation, value))})" if isinstance(value, tuple) else str(value)


def parse_int_tuple(text: str) -> IntTuple:
    """The value of a notation; `(4)` is a tuple of one.

    Raises:
        FormatError: the text is neither an integer nor a tuple of integers.
    """
    value: IntTuple = ()
    if _NOTATION.fullmatch(text):
        with suppress(SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
            value = _tuples(ast.literal_eval(text.strip().replace("(", "[").replace(")", "]")))
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


# --- the algebra ---


Mode: TypeAlias = tuple[int, int]
"""Extent and stride."""


def coalesce(layout: CuteLayout) -> CuteLayout:
    """The same function of one integer in as few modes as possible: `(2,(1,6)):(1,(6,2))` is `12:1`."""
    return _layout(_merged(mode for mode in layout.flat() if mode[0] > 1))


def composition(outer: CuteLayout, inner: CuteLayout) -> CuteLayout:
    """The function `outer(inner(i))`; every coordinate of `inner` is one of the result.

    The stride of a mode of `inner` has digits in the extents of `outer`. As long as no digit carries, i steps have i times the
    offset of one step, which makes a mode of the result; where a digit wraps around, the next mode begins. The modes of `inner`
    are added, so the sum of their digits must not carry either.

    Raises:
        FormatError: the function is no layout of these modes, or there are not enough of them.
    """
    modes = _radices(outer)
    room = [extent - 1 for extent, _ in modes[:-1]]
    leaves: list[CuteLayout] = []
    for extent, stride in inner.flat():
        pieces = _pieces(modes, extent, stride)
        if pieces is None:
            raise _no_layout(outer, inner)
        for count, step in pieces:
            for index, digit in enumerate(_digits(modes, step)[:-1]):
                room[index] -= (count - 1) * digit
        leaves.append(_layout(_merged((count, _at(modes, step)) for count, step in pieces)))
    if min(room, default=0) < 0:
        raise _no_layout(outer, inner)
    shapes, strides = [leaf.shape for leaf in leaves], [leaf.stride for leaf in leaves]
    return CuteLayout(nested(shapes, inner.shape), nested(strides, inner.shape))


def complement(layout: CuteLayout, cotarget: int | None = None) -> CuteLayout:
    """The layout of the integers that a layout does not have: (layout, complement) has every integer below `cotarget` once.

    Its strides ascend. If `cotarget` is no multiple of the block of the layout, it is rounded up.

    Args:
        layout: the layout; modes of stride 0 are ignored.
        cotarget: by default the cosize of the layout.

    Raises:
        FormatError: the layout has values more than once, or its gaps are no multiples of its blocks.
    """
    target = layout.cosize if cotarget is None else cotarget
    covered, modes = 1, []
    for stride, extent in sorted((stride, extent) for extent, stride in layout.flat() if extent > 1 and stride):
        if stride % covered:
            raise FormatError("overlaps, or its gaps are no multiples of its blocks", where=str(layout))
        modes.append((stride // covered, covered))
        covered = stride * extent
    modes.append((-(-target // covered), covered))
    return _layout(_merged(mode for mode in modes if mode[0] > 1))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """The longest layout with `layout(result(i)) = i`: the coordinates of 0, 1, 2, ..."""
    modes_by_stride: dict[int, Mode] = {}
    count = 1
    for extent, stride in _merged(mode for mode in layout.flat() if mode[0] > 1):
        modes_by_stride.setdefault(stride, (extent, count))
        count *= extent
    modes, reached = [], 1
    while reached in modes_by_stride:
        extent, stride = modes_by_stride.pop(reached)
        modes.append((extent, stride))
        reached *= extent
    return _layout(_merged(modes))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """The layout with `result(layout(i)) = i`.

    Raises:
        FormatError: the layout has values more than once, or its gaps are no multiples of its blocks.
    """
    if any(extent > 1 and not stride for extent, stride in layout.flat()):
        raise FormatError("has values more than once", where=str(layout))
    return right_inverse(make_layout(layout, complement(layout)))


def _merged(modes: Iterable[Mode]) -> list[Mode]:
    """The modes, with consecutive contiguous modes merged."""
    merged: list[Mode] = []
    for extent, stride in modes:
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = merged[-1][0] * extent, merged[-1][1]
        else:
            merged.append((extent, stride))
    return merged


def _layout(modes: Sequence[Mode]) -> CuteLayout:
    """The layout of modes: `1:0` for none, without a tuple for one."""
    if len(modes) < 2:
        return CuteLayout(*modes[0]) if modes else CuteLayout(1, 0)
    return CuteLayout(tuple(extent for extent, _ in modes), tuple(stride for _, stride in modes))


def _radices(layout: CuteLayout) -> list[Mode]:
    """The modes as the digits of an integer; the last one is unbounded, so it is kept even if its extent is 1."""
    flat = list(layout.flat()) or [(1, 0)]
    return _merged([*(mode for mode in flat[:-1] if mode[0] > 1), flat[-1]])


def _digits(modes: Sequence[Mode], number: int) -> list[int]:
    digits = []
    for extent, _ in modes[:-1]:
        number, digit = divmod(number, extent)
        digits.append(digit)
    return [*digits, number]


def _at(modes: Sequence[Mode], number: int) -> int:
    """The value of the layout with these modes."""
    return sum(digit * stride for digit, (_, stride) in zip(_digits(modes, number), modes, strict=True))


def _pieces(modes: Sequence[Mode], extent: int, stride: int) -> list[Mode] | None:
    """The mode extent:stride, split where a digit wraps around; None if it cannot be split there."""
    if extent == 1:
        return [(1, 0)]
    pieces: list[Mode] = []
    while extent > 1:
        digits = zip(_digits(modes, stride)[:-1], modes, strict=False)
        count = min([extent, *((radix - 1) // digit + 1 for digit, (radix, _) in digits if digit)])
        if extent % count:
            return None
        pieces.append((count, stride))
        extent, stride = extent // count, stride * count
    return pieces


def _no_layout(outer: CuteLayout, inner: CuteLayout) -> FormatError:
    return FormatError(
        f"the composition with {inner} is no layout", where=str(outer), hint="divide along its modes only"
    )


# --- memory formats and conversions as CuTe layouts ---


def from_format(format: Format, shape: tuple[int, ...]) -> CuteLayout:
    """The layout of a tensor of this shape in a format, one mode per axis. Extents of blocked axes include padding.

    Raises:
        FormatError: the format does not fit the shape, or an extent is 0.
    """
    modes: list[list[tuple[int, int, int]]] = [[] for _ in shape]
    stride = 1
    for digit in reversed(format.digits(shape)):
        modes[digit.axis].append((digit.span, int(digit.extent), stride))
        stride *= int(digit.extent)
    if not modes:
        return CuteLayout(1, 0)
    extents = tuple(_mode(extent for _, extent, _ in sorted(digits)) for digits in modes)
    return CuteLayout(extents, tuple(_mode(step for _, _, step in sorted(digits)) for digits in modes))


def to_format(layout: CuteLayout) -> Format:
    """The format in which a tensor whose axes are the modes of a layout has these offsets.

    An axis of extent 1, which has no effect on offsets, is outermost.

    Raises:
        FormatError: the layout has gaps or overlaps, which no format has.
    """
    parts: list[tuple[int, int, Part]] = []
    for axis, mode in enumerate(layout):
        *inner, outer = coalesce(mode).flat()
        span = 1
        for extent, stride in inner:
            parts.append((stride, extent, Part(axis, extent, span)))
            span *= extent
        parts.append((outer[1] if outer[0] > 1 else layout.cosize, outer[0], Part(axis)))
    parts.sort(key=lambda part: -part[0])
    packed_stride = 1
    for stride, extent, _ in reversed(parts):
        if extent > 1 and stride != packed_stride:
            raise FormatError("is no format: there are gaps or overlaps", where=str(layout))
        packed_stride *= extent
    return Format(tuple(part for _, _, part in parts))


def index_map(conversion: Conversion, shape: tuple[int, ...]) -> CuteLayout:
    """The offset in the source of each element of the destination, `dst[i] = src[map(i)]`, coalesced.

    Raises:
        FormatError: a format does not fit the shape, the formats pad it differently, or neither of two blocks of one axis
            divides the other, so that the map is not a layout.
    """
    src, dst = conversion.src, conversion.dst
    if src.padded_shape(shape) != dst.padded_shape(shape):
        raise FormatError(
            f"{src} and {dst} have different padding for the shape {shape}",
            hint="pad the tensor to blocks of both first",
        )
    return coalesce(composition(from_format(src, shape), right_inverse(from_format(dst, shape))))


def _mode(values: Iterable[int]) -> IntTuple:
    found = tuple(values)
    return found[0] if len(found) == 1 else found
