"""Index maps: for each axis of a tensor, the digits of the coordinates of another tensor that its coordinate consists of.

A digit (axis, stride, extent) is `coordinate[axis] // stride % extent`. A transpose reorders the axes, a reshape groups the
digits anew, a block is one digit of an axis. An extent may be symbolic, so a map is proven for all sizes.
"""

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from layoutopt.certificate.checker.terms import Array, Extent, Shape

Digit: TypeAlias = tuple[int, int, Extent]
Axes: TypeAlias = tuple[tuple[Digit, ...], ...]


def identity(shape: Shape) -> Axes:
    """The map of a tensor to itself."""
    return tuple(((axis, 1, extent),) if extent != 1 else () for axis, extent in enumerate(shape))


def volume(extents: Sequence[Extent]) -> Extent:
    """The product of extents; of symbolic ones the text of the product, with its factors in order."""
    factors = [_factors(extent) for extent in extents]
    number = prod(number for _, number in factors)
    symbols = sorted(name for names, _ in factors for name in names)
    if not symbols or number == 0:
        return number
    return "*".join([*symbols, *([str(number)] if number != 1 else [])])


def canonical(axes: Sequence[Sequence[Digit]]) -> Axes:
    """The map with neighbouring digits merged where they are neighbours in their axis too."""
    result = []
    for digits in axes:
        merged: list[Digit] = []
        for axis, stride, extent in digits:
            if extent == 1:
                continue
            if merged and merged[-1][0] == axis and isinstance(extent, int) and merged[-1][1] == stride * extent:
                merged[-1] = (axis, stride, volume([merged[-1][2], extent]))
            else:
                merged.append((axis, stride, extent))
        result.append(tuple(merged))
    return tuple(result)


def shape_of(axes: Axes) -> Shape:
    """The extents of the axes."""
    return tuple(volume([extent for _, _, extent in digits]) for digits in axes)


def reshape(axes: Axes, shape: Shape) -> Axes | None:
    """The map after a reshape; None if an extent cuts a digit where it cannot be cut."""
    pending = list(canonical([[digit for digits in axes for digit in digits]])[0])
    groups: list[list[Digit]] = []
    for extent in shape:
        group: list[Digit] = []
        while (rest := quotient(extent, volume([digit[2] for digit in group]))) != 1:
            if rest is None or not pending:
                return None
            axis, stride, size = pending.pop(0)
            if quotient(rest, size) is None:
                inner = quotient(size, rest)
                if not isinstance(inner, int) or inner == 1:
                    return None
                pending.insert(0, (axis, stride, inner))
                stride, size = stride * inner, rest
            group.append((axis, stride, size))
        groups.append(group)
    return canonical(groups) if not pending else None


def compose(outer: Axes, inner: Axes) -> Axes | None:
    """The map of the outer tensor to the core, where `inner` maps the middle one to the core; None if digits do not align."""
    result = []
    for digits in outer:
        found: list[Digit] = []
        for axis, stride, extent in digits:
            part = _section(inner[axis], stride, extent)
            if part is None:
                return None
            found += part
        result.append(found)
    return canonical(result)


def inverse(axes: Axes, shape: Shape) -> Axes | None:
    """The map of the core, which has this shape, to the tensor; None if the map is not a bijection."""
    by_axis: list[list[tuple[int, Extent, Digit]]] = [[] for _ in shape]
    for position, digits in enumerate(axes):
        below: list[Extent] = []
        for axis, stride, extent in reversed(digits):
            step = volume(below)
            if axis >= len(shape) or not isinstance(step, int):
                return None
            by_axis[axis].append((stride, extent, (position, step, extent)))
            below.append(extent)
    result = []
    for total, entries in zip(shape, by_axis, strict=True):
        entries.sort(key=lambda entry: entry[0])
        reached: Extent = 1
        for stride, extent, _ in entries:
            if stride != reached:
                return None
            reached = volume([reached, extent])
        if reached != total:
            return None
        result.append([digit for _, _, digit in reversed(entries)])
    return canonical(result)


def rearranged(array: Array, axes: Axes, shape: Shape) -> Array:
    """The array that the map makes of an array of the core, which has no symbolic extent."""
    digits = [digit for group in axes for digit in group]
    stored = sorted(range(len(digits)), key=lambda index: (digits[index][0], -digits[index][1]))
    split = array.reshape([int(digits[index][2]) for index in stored])
    return split.transpose([stored.index(index) for index in range(len(digits))]).reshape(
        [int(extent) for extent in shape]
    )


def _section(digits: Sequence[Digit], stride: int, extent: Extent) -> list[Digit] | None:
    """The digits of `coordinate // stride % extent` of an axis that consists of `digits`."""
    found: list[Digit] = []
    skip: Extent = stride
    wanted: Extent = extent
    for axis, step, size in reversed(digits):
        if skip != 1:
            if (rest := quotient(skip, size)) is not None:
                skip = rest
                continue
            if not isinstance(skip, int) or (left := quotient(size, skip)) is None:
                return None
            step, size, skip = step * skip, left, 1
        if wanted == 1:
            break
        if (rest := quotient(wanted, size)) is not None:
            found.append((axis, step, size))
            wanted = rest
        elif quotient(size, wanted) is not None:
            found.append((axis, step, wanted))
            wanted = 1
        else:
            return None
    return found[::-1] if skip == 1 and wanted == 1 else None


def quotient(extent: Extent, divisor: Extent) -> Extent | None:
    """extent / divisor, if that is exact for all sizes."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return extent // divisor if divisor and extent % divisor == 0 else None
    factors, number = _factors(extent)
    others, other = _factors(divisor)
    for name in others:
        if name not in factors:
            return None
        factors.remove(name)
    return volume([*factors, number // other]) if other and number % other == 0 else None


def _factors(extent: Extent) -> tuple[list[str], int]:
    names = str(extent).split("*")
    return [name for name in names if not name.isdecimal()], prod(int(name) for name in names if name.isdecimal())
