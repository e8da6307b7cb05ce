"""Memory formats and conversions as CuTe layouts.

A tensor in a format is a layout with one mode per axis. The submodes of a mode are the digits of its axis, the least
significant first. For (1, 32, 5, 5) in NCHW16c:

    (1,(16,2),5,5):(800,(1,400),80,16)

The offset in the source of element i of the destination is then a composition,

    index_map = source o right_inverse(destination)

and its coalesced form is the loop nest of the copy: extents, and strides in the source, innermost loop first; the
destination is written from its first element to its last.
"""

from collections.abc import Iterable

from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, Layout, Part
from layoutopt.systems.cute.algebra import coalesce, composition, right_inverse
from layoutopt.systems.cute.int_tuple import IntTuple
from layoutopt.systems.cute.layout import CuteLayout


def from_format(format: Format, shape: tuple[int, ...]) -> CuteLayout:
    """The layout of a tensor of a shape in a format, without gaps: from logical coordinates to offsets.

    Extents of blocked axes include padding.

    Raises:
        FormatError: the format does not fit the shape, or an extent is 0.
    """
    return from_bound_layout(Layout.packed(format, shape))


def from_bound_layout(bound: Layout) -> CuteLayout:
    """The CuTe layout of a bound layout, which may have gaps.

    Raises:
        FormatError: an extent is 0.
    """
    modes: list[list[tuple[int, int, int]]] = [[] for _ in bound.shape]
    for digit, stride in zip(bound.format.digits(bound.shape), bound.strides, strict=True):
        modes[digit.axis].append((digit.span, int(digit.extent), stride))
    if not modes:
        return CuteLayout(1, 0)
    shape = tuple(_mode(extent for _, extent, _ in sorted(digits)) for digits in modes)
    return CuteLayout(shape, tuple(_mode(stride for _, _, stride in sorted(digits)) for digits in modes))


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
