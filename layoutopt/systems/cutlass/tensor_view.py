"""TensorView: a TensorRef with an extent, hence with bounds.

    view = TensorView(buffer, ColumnMajor.packed((5, 7)), (5, 7))
    view[4, 6] = 1        view.contains((5, 0))        view.subview((2, 3), (1, 4))        np.asarray(view)

Source: CUTLASS include/cutlass/tensor_view.h.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass.concept import Coord, Extent, Index, LayoutConcept
from layoutopt.systems.cutlass.tensor_ref import Array, TensorRef, briefly


class TensorView(TensorRef):
    """A tensor in memory.

    Args:
        data: the memory, as of TensorRef.
        layout: from coordinates to offsets.
        extent: the size along each axis.
        pointer: the offset of coordinate 0, in elements.

    Raises:
        FormatError: the memory is too small for the tensor, or is no memory for a TensorRef.
    """

    __slots__ = ("_extent",)

    def __init__(self, data: Array, layout: LayoutConcept, extent: Extent, pointer: int = 0) -> None:
        super().__init__(data, layout, pointer)
        self._extent = layout.extents(extent)
        self._check_memory()

    @classmethod
    def of(cls, ref: TensorRef, extent: Extent) -> Self:
        """The tensor of a reference and an extent."""
        return cls(ref.memory, ref.layout, extent, ref.pointer)

    @property
    def extent(self) -> tuple[int, ...]:
        """The size along each axis."""
        return self._extent

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size(self._extent)

    @property
    def capacity(self) -> int:
        """The number of elements of memory of the tensor, gaps included.

        Raises:
            FormatError: elements of the tensor overlap.
        """
        return self._layout.capacity(self._extent)

    @property
    def ref(self) -> TensorRef:
        """The reference without bounds."""
        return TensorRef(self._memory, self._layout, self._pointer)

    def contains(self, coord: Coord) -> NDArray[np.bool_]:
        """Whether a coordinate is within the extent; an array for arrays of coordinates."""
        inside: Any = np.bool_(True)
        for each, size in zip(self._layout.components(coord), self._extent, strict=True):
            inside = inside & (each >= 0) & (each < size)
        found: NDArray[np.bool_] = inside
        return found

    def subview(self, extent: Extent, location: Extent | None = None) -> Self:
        """A part of the tensor from a location on, clipped to the extent.

        Raises:
            FormatError: the location is outside, or within a block of the layout.
        """
        start = self._layout.extents((0,) * len(self._extent) if location is None else location)
        if any(at > size for at, size in zip(start, self._extent, strict=True)):
            raise FormatError(f"the location {start} is outside the extent {self._extent}", where=repr(self))
        rest = (size - at for at, size in zip(start, self._extent, strict=True))
        sizes = tuple(map(min, self._layout.extents(extent), rest))
        return type(self)(self._memory, self._layout, sizes, self._pointer + self._steps(start))

    def assign(self, values: ArrayLike) -> None:
        """Write all elements from an array that broadcasts to the extent."""
        self[np.ix_(*map(np.arange, self._extent))] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("the elements of a layout cannot be an array without a copy")
        values: Array = self.at(np.ix_(*map(np.arange, self._extent)))
        return values if dtype is None else values.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self._layout!r}, {self._extent}, pointer {self._pointer})"

    def _like(self, memory: Array, pointer: int) -> Self:
        return type(self)(memory, self._layout, self._extent, pointer)

    def _positions(self, coord: Coord) -> Index:
        if not np.all(self.contains(coord)):
            raise FormatError(f"the coordinate {briefly(coord)} is outside the extent {self._extent}", where=repr(self))
        return super()._positions(coord)

    def _check_memory(self) -> None:
        needed = self._layout.cosize(self._extent)
        if needed and (self._pointer < 0 or self._pointer + needed > self._memory.size):
            raise FormatError(
                f"the memory has {self._memory.size} elements, {self._pointer} to {self._pointer + needed - 1} are needed",
                where=repr(self),
                hint="enlarge the array",
            )
