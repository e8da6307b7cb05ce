"""Classes of conversions, which reach different fractions of the memory bandwidth: the longer the contiguous runs, the more.

The position of an axis in a format matters only if it has more than one element: for C = 1, NCHW and NHWC are the same bytes.
"""

from collections.abc import Sequence
from itertools import product
from math import inf
from typing import Any

from layoutopt.formats import Conversion, Format, Shape, Transpose, volume
from layoutopt.ir.types import TensorType
from layoutopt.ops import estimated_volume


def shortest_run(src: Format, dst: Format, shape: Shape) -> float:
    """The length of the contiguous runs that a conversion moves, in elements; infinite if it has no Transpose."""
    return max(
        _shortest_run(*pair, shape)
        for pair in product(_equivalent_formats(src, shape), _equivalent_formats(dst, shape))
    )


def _equivalent_formats(format: Format, shape: Shape) -> list[Format]:
    """A plain format with the axes of extent 1 moved outermost and innermost, which has the same bytes; others as they are.

    A conversion may treat NHWC as NCHW if C = 1.
    """
    non_unit = _non_unit_axes(format.order, shape) if format.is_plain else ()
    unit_axes = tuple(axis for axis in range(format.rank) if axis not in non_unit)
    return (
        [Format.plain(unit_axes + non_unit), Format.plain(non_unit + unit_axes)] if non_unit and unit_axes else [format]
    )


def _shortest_run(src: Format, dst: Format, shape: Shape) -> float:
    steps = [step for step in Conversion(src, dst).steps(shape) if isinstance(step, Transpose)]
    ends = [dim for step in steps for dim in (step.before[-1], step.after[-1]) if isinstance(dim, int)]
    return min(ends, default=inf)


def is_unblocked(key: tuple[Any, ...], shape: Shape) -> bool:
    """Whether a format's key is that of a plain format, as of NCHW16c for C = 16."""
    size, *axes = key
    return bool(size == volume(shape)) and all(len(digits) < 2 for digits in axes)


def is_channels_last(one: Format, other: Format, shape: Shape) -> bool:
    """Whether one of two formats is plain and its innermost axis is the blocked axis of the other."""
    pairs = ((one, other), (other, one))
    return any(
        plain.is_plain and _non_unit_axes(plain.order, shape)[-1:] == _non_unit_axes(blocked.blocked_axes, shape)[-1:]
        for plain, blocked in pairs
    )


def is_scattered(one: Format, other: Format, shape: Shape) -> bool:
    """Whether a conversion moves single elements, because no reorder kernel for blocked formats converts between these two."""
    if one == other:
        return False
    plain, blocked = (one, other) if one.is_plain else (other, one)
    orders = [_non_unit_axes(order, shape) for order in _orders(blocked)]
    return not plain.is_plain or not orders or _non_unit_axes(plain.order, shape) not in orders


def _orders(format: Format) -> list[tuple[int, ...]]:
    """The axis orders of plain formats that a reorder kernel converts to a format with one block: its own, or channels-last."""
    blocked, parts = format.blocked_axes, format.parts
    if len(blocked) != 1 or len(parts) != format.rank + 1 or not parts[-1].block:
        return []
    outer = tuple(part.axis for part in parts[:-1])
    return [outer, (*(axis for axis in outer if axis not in blocked), *blocked)]


def _non_unit_axes(axes: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """The axes with extents other than 1; the positions of all other axes change no offset."""
    return tuple(axis for axis in axes if shape[axis] != 1)


def intermediate_formats(*formats: Format) -> list[Format]:
    """Plain formats through which a conversion between the given formats may be faster."""
    rank = formats[0].rank
    own = (order for each in formats for order in ([each.order] if each.is_plain else _orders(each)))
    orders = [(*range(rank),), (0, *range(2, rank), 1), *own]
    return [Format.plain(order) for order in dict.fromkeys(orders) if sorted(order) == list(range(rank))]


def physical_bytes(type: TensorType, format: Format) -> float:
    """Bytes of a tensor in a format, padding included."""
    assert type.shape is not None
    return estimated_volume(format.padded_shape(type.shape)) * type.dtype.bits / 8


__all__ = ["intermediate_formats", "is_channels_last", "is_scattered", "is_unblocked", "physical_bytes", "shortest_run"]
