"""Move an array between its logical shape and the memory of a Format.

    pack:   pad the axes to their blocks, split them into digits, transpose those into the order of the parts
    unpack: the same backwards

Both work for every dtype that a numpy array can have, those of `ml_dtypes` and strings included. Lanes are
filled with the all-zero bit pattern of the dtype, and with the empty string; `float8_e8m0fnu`, which has no
zero, gets its smallest value.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.format import Format, known

Array = NDArray[Any]


def pack(array: Array, fmt: Format) -> Array:
    """The memory of a logical array in a format, in row-major order and with one axis per part.

    Args:
        array: the logical tensor, of any dtype.
        fmt: the format; its rank is that of the array.

    Returns:
        An array of shape `fmt.physical_shape(array.shape)`; it shares the
        memory of the argument if nothing had to move.

    Raises:
        FormatError: the format does not fit the shape.
    """
    return np.asarray(packed_view(array, fmt), order="C")


def packed_view(array: Array, fmt: Format) -> Array:
    """What `pack` returns, as a view of the argument if no axis is padded: its memory need not be contiguous."""
    padded = resize(array, known(fmt.padded_shape(array.shape)))
    order, digits = _digits(fmt, array.shape)
    return padded.reshape(digits).transpose(order)


def packed_elements(array: Array, fmt: Format, places: Array) -> Array:
    """The elements of `pack(array, fmt)` at places of the flattened result, computed one by one."""
    order, digits = _digits(fmt, array.shape)
    padded = known(fmt.padded_shape(array.shape))
    parts = np.unravel_index(places, [digits[index] for index in order])
    by_digit = [parts[order.index(index)] for index in range(len(order))]
    logical = np.unravel_index(np.ravel_multi_index(by_digit, digits), padded) if digits else ()
    is_element = np.ones(len(places), bool)
    for index, extent in zip(logical, array.shape, strict=True):
        is_element &= index < extent
    result: Array = np.zeros(len(places), array.dtype)
    result[is_element] = array[tuple(index[is_element] for index in logical)]
    return result


def unpack(physical: Array, fmt: Format, shape: tuple[int, ...]) -> Array:
    """The logical array of the given shape that `physical` holds in a format; the inverse of `pack`.

    Args:
        physical: an array of shape `fmt.physical_shape(shape)`; what its lanes hold does not matter.
        fmt: the format.
        shape: the logical shape.

    Returns:
        An array of the logical shape; a view of the argument where that is possible.

    Raises:
        FormatError: the format does not fit the shape, or the physical array has another shape.
    """
    expected = fmt.physical_shape(shape)
    if physical.shape != expected:
        raise FormatError(f"an array of shape {physical.shape} is given, not {expected}", where=str(fmt))
    order, _ = _digits(fmt, shape)
    padded = physical.transpose(np.argsort(order)).reshape(known(fmt.padded_shape(shape)))
    return resize(padded, shape)


def resize(array: Array, shape: tuple[int, ...]) -> Array:
    """The array with each axis cut off or filled up with zeros at its end; itself if it has that shape."""
    kept = tuple(slice(min(old, new)) for old, new in zip(array.shape, shape, strict=True))
    if all(new <= old for old, new in zip(array.shape, shape, strict=True)):
        return array[kept] if array.shape != shape else array
    filled: Array = np.full(shape, "", object) if array.dtype == object else np.zeros(shape, array.dtype)
    filled[kept] = array[kept]
    return filled


def _digits(fmt: Format, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The digits of all axes in logical order: the place of each part among them, and their extents."""
    physical = known(fmt.physical_shape(shape))
    logical = fmt.logical_order
    order = sorted(range(len(logical)), key=logical.__getitem__)
    return order, [physical[index] for index in logical]
