"""The memory of a tensor as runs: intervals of offsets whose elements are consecutive along one axis."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from layoutopt.formats import Layout

_MAX_OFFSETS = 1 << 16  # offsets


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """An interval of offsets.

    Attributes:
        first: the first offset.
        last: the last offset.
        start: the coordinate of the first element; None for padding.
        axis: the axis along which the elements are consecutive; None for a single element.
    """

    first: int
    last: int
    start: tuple[int, ...] | None
    axis: int | None = None

    def __str__(self) -> str:
        """The elements in array notation; the last index of the run is included."""
        count = self.last - self.first + 1
        if self.start is None:
            return f"{count} padding element{'s' if count > 1 else ''}"
        indices = (f"{at}…{at + count - 1}" if axis == self.axis else str(at) for axis, at in enumerate(self.start))
        return f"x[{', '.join(indices)}]"

    def record(self) -> dict[str, object]:
        """The fields as a dictionary."""
        return asdict(self)

    def with_next(self, coord: tuple[int, ...] | None) -> "MemoryRun | None":
        """The run extended by the element at the next offset; None if that element does not continue the run."""
        if self.start is None or coord is None:
            return MemoryRun(self.first, self.last + 1, None) if self.start is coord else None
        steps = [(axis, new - old) for axis, (old, new) in enumerate(zip(self.start, coord, strict=True))]
        moved = [(axis, step) for axis, step in steps if step]
        if len(moved) != 1 or self.axis not in (None, moved[0][0]) or moved[0][1] != self.last + 1 - self.first:
            return None
        return MemoryRun(self.first, self.last + 1, self.start, moved[0][0])


def memory_runs(layout: Layout) -> Iterator[MemoryRun]:
    """The runs of the first 65,536 offsets, in order."""
    offsets = np.arange(min(layout.capacity, _MAX_OFFSETS))
    has_element = layout.holds(offsets)
    axes = [axis.tolist() for axis in layout.inverse(offsets[has_element])]
    coords = zip(*axes, strict=True) if axes else iter([()] * int(has_element.sum()))
    current: MemoryRun | None = None
    for offset, is_element in enumerate(has_element.tolist()):
        coord = tuple(next(coords)) if is_element else None
        longer = None if current is None else current.with_next(coord)
        if current is not None and longer is None:
            yield current
        current = longer or MemoryRun(offset, offset, coord)
    if current is not None:
        yield current
