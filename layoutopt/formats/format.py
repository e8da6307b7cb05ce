"""A Format: the order of a tensor's elements in memory, independent of its shape.

A format is a sequence of *parts*, outermost first. A part is one physical dimension: the outer part of a logical
axis, or an inner block of b elements. `NCHW16c` has the parts N, C, H, W, 16c: channels are cut into blocks of 16,
and the 16 channels of a block are adjacent. A coordinate x of an axis is thereby a number in a mixed radix system,

    x = digit_0 * span_0 + digit_1 * span_1 + ...      span_i = product of all less significant blocks of the axis

and memory is the row-major array of all digits, in the order of the parts. The digits of an axis may have any
order: the outer part is the most significant digit at any position, and blocks are ordered from left to right as
major to minor unless they declare their spans:

    NHW2cC          the even channels, then the odd ones: the result of a channel shuffle of two groups
    NC2_1c3_2cHW    blocks of six channels, in each the even ones (span 2) before the odd ones

An extent that is no multiple of the blocks of its axis is rounded up; the physical elements that this adds have no
logical counterpart and are called padding.

Axes are positions; letters exist only in the notation.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import ParamSpec, Self, TypeVar, cast

from msgspec.structs import force_setattr

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Dim, Extent, Shape, Volume, quotient, round_up, volume
from layoutopt.record import Record

# --- The grammar of format names, which oneDNN and TVM share ---
#
#     format = "scalar" | part { part }
#     part   = LETTER                       the outer part of an axis, such as C
#            | number [_ number] letter     an inner block of that axis, such as 16c; from left to right major to minor,
#                                           unless the second number is the span of the block, as in 4_3c
#
#     format = numbered { , numbered }              for axes without letters: d0,d2,d3,d1,16d1
#     numbered = [number [_ number]] d number       the same parts, with the number of the axis in place of its letter
#
# Parsing turns letters into positions of axes. The caller declares which letter is which axis; otherwise the order
# follows from the set of letters: N, C, H, W are the axes of NCHW, and O, I, H, W those of OIHW.


_KNOWN_AXES = {
    frozenset(axes): axes
    for axes in (
        *("NC", "NCW", "NCHW", "NCDHW"),
        *("OI", "OIW", "OIHW", "OIDHW", "GOI", "GOIW", "GOIHW", "GOIDHW"),
        *("KCRS", "GKCRS", "KCTRS"),
        *("MN", "MK", "KN"),
        *("TN", "TNC", "LDNC", "LDIGO", "LDIO", "LDGO"),  # of recurrent networks, in oneDNN
    )
}
_DEFAULT_AXES = ("", "C", "MN", "NCW", "NCHW", "NCDHW")
SCALAR = "scalar"
"""The format of rank 0."""

_PART = re.compile(r"([A-Z])|([1-9][0-9]*)(?:_([1-9][0-9]*))?([a-z])")
_NUMBERED = re.compile(r"(?:([1-9][0-9]*)(?:_([1-9][0-9]*))?)?d([0-9]+)")


class Part(Record, order=True):
    """One physical dimension: the outer part of an axis (`block` is 0), or an inner block of `block` elements.

    Attributes:
        axis: the position of the axis.
        block: the number of elements of an inner block; 0 for the outer part.
        step: the span of the block (see `Format.spans`); 0 for the default, the product of the axis's blocks to the right.
    """

    axis: int
    block: int = 0
    step: int = 0


def parse_parts(text: str, axes: str | None) -> Iterator[Part]:
    """The parts of a format in this notation.

    Raises:
        FormatError: the text does not follow the grammar, or its letters are not those of the axes.
    """
    if text == SCALAR and axes in (None, "", SCALAR):
        return
    if is_numbered(text):
        numbered = filter(None, map(_NUMBERED.fullmatch, text.split(",")))
        yield from (Part(int(part[3]), int(part[1] or 0), int(part[2] or 0)) for part in numbered)
        return
    parts = list(_PART.finditer(text))
    if not text or "".join(part[0] for part in parts) != text:
        raise FormatError("not a format", where=text or "''", hint="write it like NHWC or NCHW16c")
    letters = [part[1] for part in parts if part[1]]
    axes = _axes_of(letters, text) if axes is None else axes
    if sorted(letters) != sorted(set(axes)) or len(set(axes)) != len(axes):
        raise FormatError(f"does not name each of the axes {axes} once", where=text)
    if stray := {part[4] for part in parts if part[4]} - set(axes.lower()):
        raise FormatError(f"has blocks of the unknown axes {sorted(stray)}", where=text)
    for part in parts:
        yield Part(axes.index((part[1] or part[4]).upper()), int(part[2] or 0), int(part[3] or 0))


def is_numbered(text: str) -> bool:
    """Whether a text has numbers for its axes: `d0,d2,d1`."""
    return all(map(_NUMBERED.fullmatch, text.split(",")))


def _block_text(part: Part) -> str:
    return f"{part.block or ''}{f'_{part.step}' if part.step else ''}"


def _axes_of(letters: Sequence[str], text: str) -> str:
    if len(letters) == 1 or set(letters) == set(ascii_uppercase[: len(letters)]):
        return "".join(sorted(letters))
    if axes := _KNOWN_AXES.get(frozenset(letters)):
        return axes
    raise FormatError(f"the order of the axes {letters} is ambiguous", where=text, hint="pass axes='NCHW'")


# --- Digits: the parts of a format for a given shape ---
#
# The coordinate x of an axis is a number in a mixed radix system, and each part of a format is one of its digits:
#
#     digit(x) = x // span % extent        x = sum of digit * span over the digits of the axis


class Digit(Record):
    """One physical dimension of a tensor: a part of its format, with its span and its extent.

    Attributes:
        axis: the position of the axis.
        span: the number of elements of the axis between two consecutive values of the digit.
        extent: the number of values of the digit.
    """

    axis: int
    span: int
    extent: Dim

    def joined(self, inner: "Digit") -> "Digit | None":
        """This digit and the one next to it in memory as one digit; None if `inner` does not continue this one."""
        if isinstance(self.extent, Extent) or isinstance(inner.extent, Extent):
            return None
        if self.axis != inner.axis or self.span != inner.span * inner.extent:
            return None
        return Digit(inner.axis, inner.span, self.extent * inner.extent)


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _memoised(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Cache the results of a pure function: a model has thousands of tensors, but few formats and shapes."""
    return cast(Callable[_P, _R], lru_cache(maxsize=1 << 14)(function))


class Format(Record, cache_hash=True):
    """An order of parts, outermost first; positional, hashable, and normalised on construction.

    Blocks of one element are dropped, neighbours of one axis that continue each other are merged, so that `4c4c` is
    `16c`, and a `step` that equals the product of the blocks to the right becomes 0.

    Raises:
        FormatError: the parts do not name each of the axes 0 .. rank-1 by exactly one outer part, or the blocks of an
            axis are not the digits of a number.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """Check and normalise the parts."""
        force_setattr(self, "parts", _normalised(self.parts))

    @classmethod
    @_memoised
    def canonical(cls, rank: int) -> Self:
        """The row-major format of a tensor of `rank` axes, the one that ONNX assumes."""
        return cls.plain(range(rank))

    @classmethod
    def plain(cls, order: Sequence[int]) -> Self:
        """The unblocked format with the axes in `order`, outermost first: `plain((0, 2, 3, 1))` is NHWC."""
        return cls(tuple(Part(axis) for axis in order))

    @classmethod
    def parse(cls, text: str, axes: str | None = None) -> Self:
        """The format of a notation such as `NCHW16c`.

        Args:
            text: the notation; `scalar` is the format of rank 0. Axes may have numbers: `d0,d2,d3,d1,16d1`.
            axes: the letters of the logical axes in their order, `"NCHW"`. By default they follow from those
                used: feature maps (NCHW), filters (GOIHW, KCRS), matrices (MN), one letter, or A, B, C, ...

        Raises:
            FormatError: the text does not follow the grammar, or its letters are not those of the axes.
        """
        return cls(tuple(parse_parts(text, axes)))

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.order)

    @property
    @_memoised
    def order(self) -> tuple[int, ...]:
        """The axes of the outer parts, outermost first."""
        return tuple(part.axis for part in self.parts if not part.block)

    @property
    def is_plain(self) -> bool:
        """Whether no axis is blocked."""
        return len(self.parts) == self.rank

    @property
    @_memoised
    def is_canonical(self) -> bool:
        """Whether this is the row-major format."""
        return self.is_plain and self.order == tuple(range(self.rank))

    @property
    @_memoised
    def blocked_axes(self) -> tuple[int, ...]:
        """The axes that have inner blocks, ascending."""
        return tuple(sorted(self._blocks()))

    @property
    @_memoised
    def spans(self) -> tuple[int, ...]:
        """For each part its span: the number of elements of its axis between two consecutive values of its digit."""
        return tuple(_spans(self.parts))

    @property
    @_memoised
    def logical_order(self) -> tuple[int, ...]:
        """The indices of the parts, axis by axis, those of each axis from major to minor."""
        spans = self.spans
        return tuple(sorted(range(len(spans)), key=lambda index: (self.parts[index].axis, -spans[index])))

    def block(self, axis: int) -> int:
        """The product of the blocks of `axis`, to a multiple of which its extent is rounded up; 1 without blocks."""
        return self._blocks().get(axis, 1)

    @_memoised
    def name(self, axes: str | None = None) -> str:
        """The notation with the letters `axes`, by default those of a feature map; `parse` is the inverse.

        Raises:
            FormatError: the number of letters is not the rank.
        """
        if axes is None:
            axes = _DEFAULT_AXES[self.rank] if self.rank < len(_DEFAULT_AXES) else ascii_uppercase[: self.rank]
        if len(axes) != self.rank:
            raise FormatError(f"{self.rank} axes cannot be named with the letters '{axes}'")
        letters = ((part, axes[part.axis]) for part in self.parts)
        return "".join(_block_text(part) + (each.lower() if part.block else each) for part, each in letters) or SCALAR

    def text(self, axes: str = "") -> str:
        """The notation for people; `parse` is the inverse, with the same letters.

        Args:
            axes: the letters of the logical axes. Without them, or with another number of them than the rank, axes have
                the letters of a feature map; from rank 6 on, which has no such letters, they have numbers: `d0,d2,d1`.
        """
        if len(axes) == self.rank or self.rank < len(_DEFAULT_AXES):
            return self.name(axes if len(axes) == self.rank else None)
        return self.numbered()

    def numbered(self) -> str:
        """The notation with numbers for the axes; `parse` is the inverse, whatever the letters of the axes are."""
        return ",".join(f"{_block_text(part)}d{part.axis}" for part in self.parts) or SCALAR

    def __str__(self) -> str:
        """The notation for people, with the default letters."""
        return self.text()

    @_memoised
    def fits(self, shape: Shape) -> bool:
        """Whether a tensor of this shape can have the format: equal ranks, static extents of blocked axes."""
        return len(shape) == self.rank and not any(isinstance(shape[axis], Extent) for axis in self.blocked_axes)

    def check(self, shape: Shape) -> None:
        """Raise an error if a shape does not fit.

        Raises:
            FormatError: the format does not fit the shape, with the reason.
        """
        if len(shape) != self.rank:
            raise FormatError(f"has {self.rank} axes, the shape {shape} has {len(shape)}", where=str(self))
        if not self.fits(shape):
            raise FormatError(
                f"blocks a symbolic axis of the shape {shape}",
                where=str(self),
                hint="give that axis a fixed extent",
            )

    @_memoised
    def padded_shape(self, shape: Shape) -> Shape:
        """The logical shape with every axis rounded up to a multiple of its blocks.

        Raises:
            FormatError: the format does not fit the shape.
        """
        self.check(shape)
        blocks = self._blocks()
        return tuple(round_up(dim, blocks[axis]) if axis in blocks else dim for axis, dim in enumerate(shape))

    @_memoised
    def physical_shape(self, shape: Shape) -> Shape:
        """The extents of the parts, outermost first: the shape of the row-major array in memory.

        Raises:
            FormatError: the format does not fit the shape.
        """
        padded, blocks = self.padded_shape(shape), self._blocks()
        return tuple(part.block or quotient(padded[part.axis], blocks.get(part.axis, 1)) for part in self.parts)

    @_memoised
    def digits(self, shape: Shape) -> tuple[Digit, ...]:
        """The digits of a tensor of this shape in memory order, one per part.

        Raises:
            FormatError: the format does not fit the shape.
        """
        bound = zip(self.parts, self.spans, self.physical_shape(shape), strict=True)
        return tuple(Digit(part.axis, span, extent) for part, span, extent in bound)

    @_memoised
    def has_padding(self, shape: Shape) -> bool:
        """Whether some physical element has no logical counterpart; symbolic extents are assumed not to be zero.

        Raises:
            FormatError: the format does not fit the shape.
        """
        return self.padded_shape(shape) != shape and 0 not in shape

    @_memoised
    def key(self, shape: Shape) -> tuple[object, ...]:
        """The normal form of the offsets of a tensor of this shape: equal keys, equal bytes.

        Along one axis the offset of x is a sum of digits of x times physical strides. The key lists these
        (span, stride) pairs per axis, without digits that are always 0 and with digits joined that continue
        each other, and the size of the memory. Two formats have equal keys if and only if every element has the
        same offset in both and their memories have equal sizes, as of NCHW and NHWC for H = W = 1.

        Raises:
            FormatError: the format does not fit the shape.
        """
        physical = self.physical_shape(shape)
        size = volume(physical)
        digits: list[list[tuple[int, Volume]]] = [[] for _ in shape if size[0]]
        for index in self.logical_order:
            axis, span = self.parts[index].axis, self.spans[index]
            dim = shape[axis]
            if not size[0] or (not isinstance(dim, Extent) and dim <= span):
                continue
            factor, symbols = stride = volume(physical[index + 1 :])
            pairs = digits[axis]
            if pairs and pairs[-1][1] == (factor * (pairs[-1][0] // span), symbols):
                pairs.pop()
            pairs.append((span, stride))
        return (size, *map(tuple, digits))

    def same_bytes(self, other: Self, shape: Shape) -> bool:
        """Whether both formats store a tensor of this shape as the same bytes.

        Raises:
            FormatError: one of the formats does not fit the shape.
        """
        return self == other or self.key(shape) == other.key(shape)

    def propagate_transpose(self, perm: Sequence[int]) -> Self:
        """The format in which the same bytes are Transpose(x, perm), whose axis j is axis perm[j] of x.

        Raises:
            FormatError: `perm` is no permutation of the axes.
        """
        if sorted(perm) != list(range(self.rank)):
            raise FormatError(f"{tuple(perm)} is no permutation of {self.rank} axes", where=str(self))
        return self._renumbered({axis: new for new, axis in enumerate(perm)})

    def restrict(self, axes: Sequence[int]) -> Self:
        """The format of the given axes alone, renumbered in ascending order; the parts of all other axes are dropped.

        Raises:
            FormatError: there is no such axis.
        """
        kept = sorted(set(axes))
        if kept and not 0 <= kept[0] <= kept[-1] < self.rank:
            raise FormatError(f"has no axes {kept}", where=str(self), hint=f"they are 0 .. {self.rank - 1}")
        return self._renumbered({axis: new for new, axis in enumerate(kept)})

    def without_blocks(self, axes: Iterable[int]) -> Self:
        """The same order with the blocks of `axes` removed."""
        dropped = set(axes)
        return type(self)(tuple(part for part in self.parts if not (part.block and part.axis in dropped)))

    def _blocks(self) -> dict[int, int]:
        """The product of the blocks of each blocked axis."""
        blocks: dict[int, int] = {}
        for part in self.parts:
            if part.block:
                blocks[part.axis] = blocks.get(part.axis, 1) * part.block
        return blocks

    def _renumbered(self, numbers: dict[int, int]) -> Self:
        parts = (part for part in self.parts if part.axis in numbers)
        return type(self)(tuple(Part(numbers[part.axis], part.block, part.step) for part in parts))


@_memoised
def _normalised(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The normal form of the parts of a format.

    Raises:
        FormatError: the parts are not those of a format.
    """
    outer = [part.axis for part in parts if not part.block]
    if sorted(outer) != list(range(len(outer))):
        raise FormatError(f"the outer parts are of the axes {outer}", hint="name each axis 0 .. rank-1 once")
    digits: list[Part] = []
    for part, span in zip(parts, _spans(parts), strict=True):
        if part.block < 0 or part.axis not in range(len(outer)) or (part.step and not part.block):
            raise FormatError(f"{part} is no part of one of {len(outer)} axes", hint="name the axis of each block")
        last = digits[-1] if digits else Part(-1)
        if part.block and last.axis == part.axis and last.step == span * part.block:
            digits[-1] = Part(part.axis, last.block * part.block, span)
        elif part.block != 1:
            digits.append(Part(part.axis, part.block, span if part.block else 0))
    return _without_default_steps(digits)


def _spans(parts: Sequence[Part]) -> list[int]:
    """For each part its span.

    Raises:
        FormatError: the blocks of an axis are not the digits of a number.
    """
    spans = [0] * len(parts)
    inner: dict[int, int] = {}
    for index in reversed(range(len(parts))):
        part = parts[index]
        if part.block:
            spans[index] = part.step or inner.get(part.axis, 1)
            inner[part.axis] = inner.get(part.axis, 1) * part.block
    covered: dict[int, int] = {}
    for span, part in sorted(zip(spans, parts, strict=True)):
        if part.block > 1:
            if span != covered.get(part.axis, 1):
                raise FormatError(f"the blocks of axis {part.axis} are not the digits of a number: {part}")
            covered[part.axis] = span * part.block
    return [span if part.block else inner.get(part.axis, 1) for span, part in zip(spans, parts, strict=True)]


def _without_default_steps(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with `step` 0 where the span is the product of the blocks to the right."""
    inner: dict[int, int] = {}
    found: list[Part] = []
    for part in reversed(parts):
        span = inner.get(part.axis, 1)
        found.append(Part(part.axis, part.block, 0 if part.step == span else part.step))
        inner[part.axis] = span * (part.block or 1)
    return tuple(reversed(found))
