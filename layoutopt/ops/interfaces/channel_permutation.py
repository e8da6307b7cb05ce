"""Permuted channels: kernels that accept any order of channels, as long as all operands have the same order.

    x N H W 2c C    w O H W 2i I    y N H W O      is the channels-last kernel, its filter packed in another order

So a channel shuffle costs nothing between dense convolutions, whose filters are constants, and propagates through ops that
compute every channel in the same way. Grouped convolutions depend on the order.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Op, Slot
from layoutopt.ops.interfaces.kernel_formats import KernelFormats
from layoutopt.ops.signatures import OperandFormats

Channels: TypeAlias = Sequence[tuple[Slot, int]]
"""Axes of operands that are the same channels."""


class PermutableChannels(KernelFormats):
    """An op whose kernels do not depend on the order of channels, as long as all operands have the same order."""

    @abstractmethod
    def permuted_formats(self, op: Op, base: OperandFormats, slot: Slot, format: Format) -> OperandFormats | None:
        """The formats `base` with the channel permutation that `format` has at `slot`; None if `format` differs in more."""


def axis_digits(format: Format, axis: int, shape: Shape) -> tuple[Part, ...] | None:
    """The digits of an axis, outermost first; None if they are not adjacent or the axis is padded."""
    positions = [position for position, part in enumerate(format.parts) if part.axis == axis]
    if (
        not positions
        or positions != list(range(positions[0], positions[-1] + 1))
        or format.padded_shape(shape)[axis] != shape[axis]
    ):
        return None
    return tuple(format.parts[position] for position in positions)


def with_axis_digits(format: Format, axis: int, digits: Iterable[Part]) -> Format:
    """The format with other digits for an axis, in the position of its first digit."""
    first = next(position for position, part in enumerate(format.parts) if part.axis == axis)
    replaced = (Part(axis, part.block, part.step) for part in digits)
    before = (part for part in format.parts[:first] if part.axis != axis)
    behind = (part for part in format.parts[first:] if part.axis != axis)
    return Format((*before, *replaced, *behind))


def with_permutation(
    op: Op, base: OperandFormats, slot: Slot, format: Format, channels: Channels
) -> OperandFormats | None:
    """The formats of a kernel with the channel permutation that one operand has.

    Args:
        op: the op.
        base: formats that the kernel accepts.
        slot: the operand.
        format: its format.
        channels: the axes that are the same channels as the operand's.

    Returns:
        The formats; None if `format` differs from `base` in more than the order of channels.
    """
    shapes = _shapes(op, channels)
    axis = next((channel_axis for each, channel_axis in channels if each == slot), None)
    if axis is None or len(shapes) < len({each for each, _ in channels}) or not format.fits(shapes[slot]):
        return None
    digits = axis_digits(format, axis, shapes[slot])
    if digits is None or len(digits) < 2:
        return None
    found = dict(base)
    for each, channel_axis in channels:
        own = found.get(each, Format.canonical(len(shapes[each])))
        if not own.fits(shapes[each]) or axis_digits(own, channel_axis, shapes[each]) is None:
            return None
        found[each] = with_axis_digits(own, channel_axis, digits)
    return found if found[slot] == format else None


def without_permutation(op: Op, formats: OperandFormats, channels: Channels) -> OperandFormats:
    """The formats with channels in natural order, if all operands have the same permutation."""
    shapes = _shapes(op, channels)
    if any(slot not in formats or slot not in shapes for slot, _ in channels):
        return formats
    runs = [axis_digits(formats[slot], axis, shapes[slot]) for slot, axis in channels]
    levels = {None if run is None else tuple((part.block, part.step) for part in run) for run in runs}
    if len(levels) != 1 or None in levels or levels == {((0, 0),)}:
        return formats
    return {**formats, **_whole(formats, channels)}


def _whole(formats: OperandFormats, channels: Channels) -> Mapping[Slot, Format]:
    found: dict[Slot, Format] = {}
    for slot, axis in channels:
        found[slot] = with_axis_digits(found.get(slot, formats[slot]), axis, (Part(axis),))
    return found


def _shapes(op: Op, channels: Channels) -> dict[Slot, Shape]:
    values = {slot: op.operand(slot) for slot, _ in channels}
    return {slot: value.shape for slot, value in values.items() if value is not None and value.shape is not None}


__all__ = ["Channels", "axis_digits", "with_axis_digits", "with_permutation", "without_permutation"]
