"""TensorRef: a pointer into memory and a layout, without bounds.

    ref = TensorRef(buffer, RowMajor(ldm))      ref[row, column] = 3      ref + (16, 0)      ref.at((row, column))

The memory is that of a numpy array, which is never copied: a write through a reference changes the array. A reference has no
extent, so only positions outside of the array are an error. Pointer arithmetic returns another reference; it is valid for
multiples of the layout's tile, and raises an error for other coordinates.

Source: CUTLASS include/cutlass/tensor_ref.h.
"""

import re
from operator import index
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass.layouts import Coord, Extent, Index, LayoutConcept

Array = NDArray[Any]

_NARROW = re.compile(r"(?:u?int|float)([1-7])(?![0-9])")


class TensorRef:
    """A pointer to elements of a numpy array, and a layout.

    Attributes:
        memory: the whole memory as a vector that shares it.
        layout: from coordinates to offsets.
        pointer: the offset of coordinate 0 in the memory, in elements.

    Args:
        data: the memory: an array of any dtype whose elements are stored without gaps, in any order of its axes, or a vector
            of any stride. The first element of a view is offset 0.
        layout: from coordinates to offsets.
        pointer: the offset of coordinate 0, in elements.

    Raises:
        FormatError: the array has gaps, or elements of less than a byte.
    """

    __slots__ = ("layout", "memory", "pointer")

    def __init__(self, data: Array, layout: LayoutConcept, pointer: int = 0) -> None:
        self.memory = linear(data)
        self.layout = layout
        self.pointer = index(pointer)

    @property
    def stride(self) -> tuple[int, ...]:
        """The strides of the layout."""
        return self.layout.stride

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.memory.dtype

    def offset(self, coord: Coord) -> Index:
        """The offset of a coordinate from the pointer, in elements."""
        return self.layout(coord)

    def at(self, coord: Coord) -> Any:
        """The element at a coordinate; an array for arrays of coordinates.

        Raises:
            FormatError: the element is outside of the memory.
        """
        return self.memory[self._positions(coord)]

    def __getitem__(self, coord: Coord) -> Any:
        return self.at(coord)

    def __setitem__(self, coord: Coord, value: ArrayLike) -> None:
        if not self.memory.flags.writeable:
            raise FormatError("the memory is read-only", where=repr(self), hint="refer to an array that is not")
        self.memory[self._positions(coord)] = value

    def add_pointer_offset(self, offset: int) -> Self:
        """The reference with its pointer moved by an offset in elements."""
        return self._like(self.memory, self.pointer + index(offset))

    def __add__(self, coord: Coord) -> Self:
        return self.add_pointer_offset(self._steps(coord))

    def __sub__(self, coord: Coord) -> Self:
        return self.add_pointer_offset(-self._steps(coord))

    def const_ref(self) -> Self:
        """The same reference without write access."""
        memory = self.memory.view()
        memory.flags.writeable = False
        return self._like(memory, self.pointer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.layout!r}, pointer {self.pointer})"

    def _like(self, memory: Array, pointer: int) -> Self:
        """The reference with another memory and pointer."""
        return type(self)(memory, self.layout, pointer)

    def _steps(self, coord: Coord) -> int:
        """The offset of a coordinate that is a multiple of the layout's tile."""
        tile = self.layout.tile
        if any(np.any(each % step) for each, step in zip(self.layout.components(coord), tile, strict=True)):
            raise FormatError(
                f"the coordinate {tuple(coord)} is within a block, where pointer arithmetic is not valid",
                where=repr(self.layout),
                hint=f"move by multiples of {tile}",
            )
        return int(self.layout(coord))

    def _positions(self, coord: Coord) -> Index:
        positions = self.layout(coord) + self.pointer
        if np.any((positions < 0) | (positions >= self.memory.size)):
            raise FormatError(
                f"the coordinate {briefly(coord)} is outside the memory of {self.memory.size} elements",
                where=repr(self),
                hint="enlarge the array",
            )
        return positions


def linear(data: Array) -> Array:
    """The memory of an array as a vector that shares it, in memory order.

    Raises:
        FormatError: the array has gaps, or elements of less than a byte.
    """
    if not isinstance(data, np.ndarray):
        raise FormatError(
            f"not a numpy array but {type(data).__name__}", hint="make one with np.frombuffer or np.asarray"
        )
    if data.dtype.itemsize == 1 and (narrow := _NARROW.match(data.dtype.name)):
        raise FormatError(
            f"elements of {narrow[1]} bits share bytes in memory, but not in numpy arrays",
            where=data.dtype.name,
            hint="refer to an array of uint8 instead",
        )
    if data.ndim == 1:
        return data
    # The stride of an axis of extent 1 has no effect, so the axis may have any position.
    ordered = data.transpose(sorted(range(data.ndim), key=lambda axis: (data.shape[axis] == 1, -data.strides[axis])))
    if not ordered.flags.c_contiguous:
        raise FormatError(
            f"an array of shape {data.shape} and strides {data.strides} bytes has gaps or repeats",
            hint="refer to the array that it is a view of, or to a copy",
        )
    return ordered.reshape(-1)


def briefly(coord: Coord) -> tuple[Any, ...]:
    """A coordinate as text; the largest value for arrays."""
    return tuple(each if np.ndim(each) == 0 else f"..{np.max(each)}" for each in coord)


# --- TensorView: a TensorRef with an extent, hence with bounds ---
#
#     view = TensorView(buffer, ColumnMajor.packed((5, 7)), (5, 7))
#     view[4, 6] = 1        view.contains((5, 0))        view.subview((2, 3), (1, 4))        np.asarray(view)
#
# Source: CUTLASS include/cutlass/tensor_view.h.


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

    __slots__ = ("extent",)

    def __init__(self, data: Array, layout: LayoutConcept, extent: Extent, pointer: int = 0) -> None:
        super().__init__(data, layout, pointer)
        self.extent = layout.extents(extent)
        self._check_memory()

    @classmethod
    def of(cls, ref: TensorRef, extent: Extent) -> Self:
        """The tensor of a reference and an extent."""
        return cls(ref.memory, ref.layout, extent, ref.pointer)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.layout.size(self.extent)

    @property
    def capacity(self) -> int:
        """The number of elements of memory of the tensor, gaps included.

        Raises:
            FormatError: elements of the tensor overlap.
        """
        return self.layout.capacity(self.extent)

    @property
    def ref(self) -> TensorRef:
        """The reference without bounds."""
        return TensorRef(self.memory, self.layout, self.pointer)

    def contains(self, coord: Coord) -> NDArray[np.bool_]:
        """Whether a coordinate is within the extent; an array for arrays of coordinates."""
        inside: Any = np.bool_(True)
        for each, size in zip(self.layout.components(coord), self.extent, strict=True):
            inside = inside & (each >= 0) & (each < size)
        found: NDArray[np.bool_] = inside
        return found

    def subview(self, extent: Extent, location: Extent | None = None) -> Self:
        """A part of the tensor from a location on, clipped to the extent.

        Raises:
            FormatError: the location is outside, or within a block of the layout.
        """
        start = self.layout.extents((0,) * len(self.extent) if location is None else location)
        if any(at > size for at, size in zip(start, self.extent, strict=True)):
            raise FormatError(f"the location {start} is outside the extent {self.extent}", where=repr(self))
        rest = (size - at for at, size in zip(start, self.extent, strict=True))
        sizes = tuple(map(min, self.layout.extents(extent), rest))
        return type(self)(self.memory, self.layout, sizes, self.pointer + self._steps(start))

    def assign(self, values: ArrayLike) -> None:
        """Write all elements from an array that broadcasts to the extent."""
        self[np.ix_(*map(np.arange, self.extent))] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("the elements of a layout cannot be an array without a copy")
        values: Array = self.at(np.ix_(*map(np.arange, self.extent)))
        return values if dtype is None else values.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.layout!r}, {self.extent}, pointer {self.pointer})"

    def _like(self, memory: Array, pointer: int) -> Self:
        return type(self)(memory, self.layout, self.extent, pointer)

    def _positions(self, coord: Coord) -> Index:
        if not np.all(self.contains(coord)):
            raise FormatError(f"the coordinate {briefly(coord)} is outside the extent {self.extent}", where=repr(self))
        return super()._positions(coord)

    def _check_memory(self) -> None:
        needed = self.layout.cosize(self.extent)
        if needed and (self.pointer < 0 or self.pointer + needed > self.memory.size):
            raise FormatError(
                f"the memory has {self.memory.size} elements, {self.pointer} to {self.pointer + needed - 1} are needed",
                where=repr(self),
                hint="enlarge the array",
            )
