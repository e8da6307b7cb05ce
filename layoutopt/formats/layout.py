"""A Layout: a Format bound to a shape and to strides, a function from logical coordinates to offsets.

    offset(x) = sum over the parts of  digit(x) * stride        digit(x) = x[axis] // span % extent

The strides must nest: ordered by size, each is larger than the largest offset that the smaller ones reach
together. Then no two elements share an offset, and dividing by the strides from the largest to the smallest
inverts the function. Offsets, strides and capacities count elements, not bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.extent import static_shape
from layoutopt.formats.format import Digit, Format

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """The offset of each element of a tensor in memory.

    Args:
        format: the order of the parts.
        shape: the logical shape, without symbolic extents.
        strides: in elements, one per part.

    Raises:
        FormatError: the format does not fit the shape, or the strides do not nest.
    """

    format: Format
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that offsets are unique."""
        if len(self.strides) != len(self.physical_shape):
            raise FormatError(
                f"{len(self.strides)} strides for {len(self.physical_shape)} parts", where=str(self.format)
            )
        largest_offset = 0
        for stride, extent, _ in reversed(self._descending()):
            if stride <= largest_offset:
                raise FormatError(f"the strides {self.strides} overlap", where=str(self.format), hint="let them nest")
            largest_offset += stride * (extent - 1)

    @classmethod
    def packed(cls, format: Format, shape: Sequence[int]) -> Self:
        """The layout without gaps: row-major over the parts."""
        return cls.padded(format, shape, static_shape(format.physical_shape(tuple(shape))))

    @classmethod
    def padded(cls, format: Format, shape: Sequence[int], physical_extents: Sequence[int]) -> Self:
        """The row-major layout of a larger array of `physical_extents`, one per part, that contains the tensor.

        Raises:
            FormatError: an extent is smaller than that of the tensor.
        """
        needed, given = static_shape(format.physical_shape(tuple(shape))), tuple(physical_extents)
        if len(given) != len(needed) or any(have < need for have, need in zip(given, needed, strict=True)):
            raise FormatError(f"the extents {given} do not hold {needed}", where=str(format), hint="enlarge them")
        strides = tuple(math.prod(dim or 1 for dim in given[index + 1 :]) for index in range(len(given)))
        return cls(format, tuple(shape), strides)

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The extents of the parts, with padding and without gaps between them."""
        return static_shape(self.format.physical_shape(self.shape))

    @property
    def capacity(self) -> int:
        """Elements of the memory that holds the tensor, with padding and gaps, as in CUTLASS."""
        if 0 in self.shape:
            return 0
        return max(
            (stride * extent for stride, extent in zip(self.strides, self.physical_shape, strict=True)),
            default=1,
        )

    def offset(self, *coords: ArrayLike) -> Index:
        """The offsets of the elements at the given coordinates.

        Args:
            coords: one integer or integer array per logical axis, broadcastable against each other.

        Raises:
            FormatError: not one coordinate per axis, or a coordinate outside the shape.
        """
        if len(coords) != self.rank:
            raise FormatError(f"{len(coords)} coordinates for {self.rank} axes", where=str(self.format))
        arrays = [np.asarray(coord, np.int64) for coord in coords]
        for axis, (coord, dim) in enumerate(zip(arrays, self.shape, strict=True)):
            if np.any((coord < 0) | (coord >= dim)):
                raise FormatError(f"a coordinate of axis {axis} is outside 0 .. {dim - 1}", where=str(self.format))
        total = np.zeros(np.broadcast_shapes(*(coord.shape for coord in arrays)), np.int64)
        for digit, stride in zip(self._digits(), self.strides, strict=True):
            total += arrays[digit.axis] // digit.span % max(1, int(digit.extent)) * stride
        return total

    def inverse(self, offset: ArrayLike) -> tuple[Index, ...]:
        """The coordinates of the elements at the given offsets, one array per logical axis.

        Raises:
            FormatError: an offset is that of padding or a gap, or is out of range; see `holds`.
        """
        coords, is_element = self.decode(offset)
        if not is_element.all():
            raise FormatError(
                "an offset holds no element of the tensor", where=str(self.format), hint="check it with holds first"
            )
        return coords

    def holds(self, offset: ArrayLike) -> NDArray[np.bool_]:
        """Whether each of the given offsets is that of a logical element, not of padding or a gap, and in range."""
        return self.decode(offset)[1]

    def decode(self, offset: ArrayLike) -> tuple[tuple[Index, ...], NDArray[np.bool_]]:
        """The coordinates at the given offsets, and whether each is the offset of a logical element."""
        rest = np.asarray(offset, np.int64)
        is_element = rest >= 0
        coords = [np.zeros_like(rest) for _ in self.shape]
        digits = self._digits()
        for stride, extent, index in self._descending():
            number, rest = np.divmod(rest, stride)
            is_element &= number < extent
            coords[digits[index].axis] += number * digits[index].span
        is_element &= rest == 0
        for coord, dim in zip(coords, self.shape, strict=True):
            is_element &= coord < dim
        return tuple(coords), np.asarray(is_element)

    def _digits(self) -> tuple[Digit, ...]:
        return self.format.digits(self.shape)

    def _descending(self) -> list[tuple[int, int, int]]:
        """Stride, extent and index of the parts that have more than one element, the largest stride first."""
        parts = zip(self.strides, self.physical_shape, range(len(self.strides)), strict=True)
        return sorted((part for part in parts if part[1] > 1), reverse=True)


# --- Packing of an array into the physical array of a Format, and unpacking ---
#
#     pack:   pad the axes to their blocks, split them into digits, transpose those into the order of the parts
#     unpack: the same backwards
#
# Both work for every dtype of numpy arrays, including those of `ml_dtypes` and strings. Padding is the all-zero bit
# pattern of the dtype, and the empty string; for `float8_e8m0fnu`, which has no zero, it is the smallest value.


Array = NDArray[Any]


def pack(array: Array, fmt: Format) -> Array:
    """The physical array of a logical array in a format, contiguous and with one axis per part.

    Args:
        array: the logical tensor, of any dtype.
        fmt: the format; its rank is that of the array.

    Returns:
        An array of shape `fmt.physical_shape(array.shape)`; it shares the memory of the argument if no byte moves.

    Raises:
        FormatError: the format does not fit the shape.
    """
    return np.asarray(packed_view(array, fmt), order="C")


def packed_view(array: Array, fmt: Format) -> Array:
    """The array that `pack` returns, as a view of the argument if no axis is padded; it may be non-contiguous."""
    padded = resize(array, static_shape(fmt.padded_shape(array.shape)))
    order, digits = _digits(fmt, array.shape)
    return padded.reshape(digits).transpose(order)


def packed_elements(array: Array, fmt: Format, offsets: Array) -> Array:
    """The elements of the flattened `pack(array, fmt)` at the given offsets, without packing the whole array."""
    coords, is_element = Layout.packed(fmt, array.shape).decode(offsets)
    result: Array = np.zeros(len(offsets), array.dtype)
    result[is_element] = array[tuple(each[is_element] for each in coords)]
    return result


def unpack(physical: Array, fmt: Format, shape: tuple[int, ...]) -> Array:
    """The logical array of the given shape that `physical` holds in a format; the inverse of `pack`.

    Args:
        physical: an array of shape `fmt.physical_shape(shape)`; its padding may have any values.
        fmt: the format.
        shape: the logical shape.

    Returns:
        An array of the logical shape; a view of the argument if possible.

    Raises:
        FormatError: the format does not fit the shape, or the physical array has another shape.
    """
    expected = fmt.physical_shape(shape)
    if physical.shape != expected:
        raise FormatError(f"an array of shape {physical.shape} is given, not {expected}", where=str(fmt))
    order, _ = _digits(fmt, shape)
    padded = physical.transpose(np.argsort(order)).reshape(static_shape(fmt.padded_shape(shape)))
    return resize(padded, shape)


def resize(array: Array, shape: tuple[int, ...]) -> Array:
    """The array with each axis truncated or padded with zeros at its end; the same object if it has that shape."""
    kept = tuple(slice(min(old, new)) for old, new in zip(array.shape, shape, strict=True))
    if all(new <= old for old, new in zip(array.shape, shape, strict=True)):
        return array[kept] if array.shape != shape else array
    filled: Array = np.full(shape, "", object) if array.dtype == object else np.zeros(shape, array.dtype)
    filled[kept] = array[kept]
    return filled


def _digits(fmt: Format, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The index of each part among the digits in logical order (axis by axis, major to minor), and their extents."""
    physical = static_shape(fmt.physical_shape(shape))
    logical = fmt.logical_order
    order = sorted(range(len(logical)), key=logical.__getitem__)
    return order, [physical[index] for index in logical]
