"""The laws of memory formats: names, packing, offsets and conversions."""

import math
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np

from layoutopt.formats import Conversion, Entry, Format, Layout, Part, Reshape, Transpose, pack, unpack
from layoutopt.formats.extent import static_shape
from layoutopt.ir.types import Array

_EXTENTS = (3, 17, 5, 4, 2)  # none of them is a multiple of a usual block
_DTYPE = "float16"  # for notations with {C0}


def numbered(shape: tuple[int, ...]) -> Array:
    """The array of a shape with the elements 1, 2, 3, ...: all differ, and none is 0 like padding."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape)


def check_format(format: Format, shape: tuple[int, ...]) -> None:
    """Assert that a format is read back from its name, and that packing, offsets and keys agree for a shape.

    Raises:
        AssertionError: they do not.
    """
    letters = "ZYXWVUTS"[: format.rank]
    assert Format.parse(str(format)) == format
    assert Format.parse(format.name(letters), letters) == format
    _check_construction(format)
    array = numbered(shape)
    physical = pack(array, format)
    assert physical.shape == format.physical_shape(shape)
    assert physical.flags.c_contiguous
    assert np.array_equal(unpack(physical, format, shape), array)
    assert np.count_nonzero(physical == 0) == format.padding_elements(shape)
    assert format.has_padding(shape) == (format.padding_elements(shape) > 0)
    assert math.prod(static_shape(format.padded_shape(shape))) == physical.size
    layout = Layout.packed(format, shape)
    assert layout.capacity == physical.size
    assert np.array_equal(physical.ravel()[layout.offset(*np.indices(array.shape))], array)


def _check_construction(format: Format) -> None:
    """Assert that redundant parts and steps make no other format, and that derived properties agree with the format."""
    assert Format(format.parts) == format
    assert Format(tuple(part for old in format.parts for part in (old, Part(old.axis, 1)))) == format
    spans = zip(format.parts, format.spans, strict=True)
    assert Format(tuple(Part(part.axis, part.block, span if part.block else 0) for part, span in spans)) == format
    assert format.is_plain == (format == Format.plain(format.order))
    assert format.is_canonical == (format == Format.canonical(format.rank))
    assert format.without_blocks(range(format.rank)) == Format.plain(format.order)
    assert format.restrict(range(format.rank)) == format


def check_conversion(source: Format, target: Format, shape: tuple[int, ...]) -> None:
    """Assert that the steps of a conversion equal unpacking and packing, and that every step has an effect.

    Raises:
        AssertionError: they do not.
    """
    conversion = Conversion(source, target)
    array = numbered(shape)
    physical, expected = pack(array, source), pack(array, target)
    for padding_is_zero in (False, True):
        assert np.array_equal(conversion.apply(physical, shape, padding_is_zero=padding_is_zero), expected), (
            f"{source} to {target}"
        )
        steps = conversion.steps(shape, padding_is_zero=padding_is_zero)
        ends = [source.physical_shape(shape), *(step.after for step in steps)]
        assert [step.before for step in steps] == ends[:-1]
        assert ends[-1] == target.physical_shape(shape)
        assert all(isinstance(step, Transpose) or step.before != step.after for step in steps)
        assert all(type(left) is not type(right) for left, right in pairwise(steps))
        assert sum(not isinstance(step, Reshape) for step in steps) <= 5


def check_keys(one: Format, other: Format, shape: tuple[int, ...]) -> None:
    """Assert that two formats have the same key for a shape exactly if they have the same bytes.

    Raises:
        AssertionError: they do not.
    """
    same = np.array_equal(pack(numbered(shape), one).ravel(), pack(numbered(shape), other).ravel())
    assert (one.key(shape) == other.key(shape)) == same, f"the keys of {one} and {other} contradict their bytes"


def check_format_system(entries: Sequence[Entry]) -> None:
    """Assert the laws of every format of a system, and of the conversions between those of the same axes.

    Raises:
        AssertionError: a format breaks a law, or two formats have one name.
    """
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names), f"two formats have one name: {sorted(names)}"
    by_axes: dict[str, list[Format]] = {}
    for entry in entries:
        assert entry.system and entry.source, f"{entry.name}: a format needs a system and a source"
        by_axes.setdefault(entry.axes, []).append(entry.format(_DTYPE))
    for axes, formats in by_axes.items():
        shape = _EXTENTS[: len(axes)]
        for format in formats:
            check_format(format, shape)
        for source, target in permutations([Format.canonical(len(axes)), *formats], 2):
            check_conversion(source, target, shape)
            check_keys(source, target, shape)


__all__ = ["check_conversion", "check_format", "check_format_system", "check_keys", "numbered"]
