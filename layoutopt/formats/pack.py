"""Packing of an array into the physical array of a Format, and unpacking.

    pack:   pad the axes to their blocks, split them into digits, transpose those into the order of the parts
    unpack: the same backwards

Both work for every dtype of numpy arrays, including those of `ml_dtypes` and strings. Padding is the all-zero bit
pattern of the dtype, and the empty string; for `float8_e8m0fnu`, which has no zero, it is the smallest value.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.format import Format
from layoutopt.formats.shapes import static_shape

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
    order, digits = _digits(fmt, array.shape)
    padded = static_shape(fmt.padded_shape(array.shape))
    parts = np.unravel_index(offsets, [digits[index] for index in order])
    by_digit = [parts[order.index(index)] for index in range(len(order))]
    logical = np.unravel_index(np.ravel_multi_index(by_digit, digits), padded) if digits else ()
    is_element = np.ones(len(offsets), bool)
    for index, extent in zip(logical, array.shape, strict=True):
        is_element &= index < extent
    result: Array = np.zeros(len(offsets), array.dtype)
    result[is_element] = array[tuple(index[is_element] for index in logical)]
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
