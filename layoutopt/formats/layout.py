"""A Layout: a Format bound to a shape, a function from logical coordinates to offsets in row-major memory without gaps.

    offset(x) = sum over the parts of  digit(x) * stride        digit(x) = x[axis] // span % extent

Offsets, strides and capacities count elements, not bytes.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.extent import static_shape
from layoutopt.formats.format import Format
from layoutopt.record import Record

Index = NDArray[np.int64]


class Layout(Record):
    """The offset of each element of a tensor in memory.

    Attributes:
        format: the order of the parts.
        shape: the logical shape, without symbolic extents.
    """

    format: Format
    shape: tuple[int, ...]

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
        """The extents of the parts, with padding.

        Raises:
            FormatError: the format does not fit the shape.
        """
        return static_shape(self.format.physical_shape(self.shape))

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of each part."""
        extents = self.physical_shape
        return tuple(math.prod(dim or 1 for dim in extents[index + 1 :]) for index in range(len(extents)))

    @property
    def capacity(self) -> int:
        """Elements of the memory that holds the tensor, with padding."""
        return math.prod(self.physical_shape)

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
        for digit, stride in zip(self.format.digits(self.shape), self.strides, strict=True):
            total += arrays[digit.axis] // digit.span % max(1, int(digit.extent)) * stride
        return total

    def decode(self, offset: ArrayLike) -> tuple[tuple[Index, ...], NDArray[np.bool_]]:
        """The coordinates at the given offsets, and whether each is the offset of a logical element, not of padding."""
        offsets = np.asarray(offset, np.int64)
        is_element = (offsets >= 0) & (offsets < self.capacity)
        coords = [np.zeros_like(offsets) for _ in self.shape]
        for digit, stride in zip(self.format.digits(self.shape), self.strides, strict=True):
            coords[digit.axis] += offsets // stride % max(1, int(digit.extent)) * digit.span
        for coord, dim in zip(coords, self.shape, strict=True):
            is_element &= coord < dim
        return tuple(coords), np.asarray(is_element)


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
