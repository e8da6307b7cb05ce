"""The layouts of CUTLASS 2 in global memory under their names, and its TensorView over numpy arrays.

    layout = RowMajor(ldm)      layout((row, column)) = row * ldm + column      layout.capacity((rows, columns)) = rows * ldm

A layout has strides and no extents, so that one layout applies to every tensor with these strides, and to its sub-tensors.
It is a Format whose innermost part, and the part around a block, are contiguous; every other part has a free stride.
`TensorNCxHWx<32>` is NCHW32c,

    offset(n, h, w, c) = c % 32 + 32 * w + stride[0] * h + stride[1] * (c / 32) + stride[2] * n

The template arguments of CUTLASS are written in brackets: `RowMajorInterleaved[32]`. The layouts of CUTLASS 3 are in
`layoutopt.systems.cute`.

Source: CUTLASS media/docs/cpp/layout.md; include/cutlass/layout/pitch_linear.h, matrix.h, tensor.h; tensor_view.h.
"""

import difflib
import math
import re
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from msgspec.structs import force_setattr, replace
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.formats import Format
from layoutopt.formats.extent import static_shape
from layoutopt.record import Record

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = NDArray[np.int64]
Coord: TypeAlias = Sequence[ArrayLike]
"""One integer, or one array of integers, per axis; arrays broadcast against each other."""

Extent: TypeAlias = Sequence[int]
"""The size of a tensor along each axis."""

_NAME = re.compile(r"(\w+)(?:<\s*([0-9]+)\s*>)?")


class LayoutType(Record):
    """A layout of CUTLASS without its strides.

    Attributes:
        name: its name, with {} for the template's argument.
        notation: its format, with {} for the template's argument.
        axes: the letters of the coordinates. All tensors have the coordinates (n, h, w, c), filters (k, r, s, c).
    """

    name: str
    notation: str
    axes: str

    def __getitem__(self, interleave: int) -> Self:
        """The layout of a template with its argument.

        Raises:
            FormatError: it is no template, or the argument is no integer above 0.
        """
        if "{}" not in self.name:
            raise FormatError("is no template", where=self.name)
        if not isinstance(interleave, int) or interleave < 1:
            raise FormatError(f"the argument {interleave} is no integer above 0", where=self.name)
        return replace(self, name=self.name.format(interleave), notation=self.notation.format(interleave))

    def __call__(self, *stride: int) -> "StridedLayout":
        """The layout with these strides in elements, in the order of CUTLASS: innermost first."""
        return StridedLayout(self, stride)

    @property
    def format(self) -> Format:
        """The format of the coordinates.

        Raises:
            FormatError: it is a template without argument.
        """
        if "{}" in self.name:
            name = self.name.removesuffix("<{}>")
            raise FormatError("requires an argument", where=name, hint=f"write {name}[Interleave]")
        return Format.parse(self.notation, self.axes)

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len(self.axes)

    def packed(self, extent: Extent) -> "StridedLayout":
        """The layout without gaps, with blocks rounded up, which CUTLASS does not do."""
        physical = static_shape(self.format.physical_shape(self.extents(extent)))
        return self(*(math.prod(physical[index:]) for index in range(self.rank - 1, 0, -1)))

    def extents(self, extent: Extent) -> tuple[int, ...]:
        """An extent as integers.

        Raises:
            FormatError: there is not one per axis, or one is no integer of 0 or more.
        """
        sizes = tuple(extent)
        if len(sizes) != self.rank or not all(isinstance(size, int | np.integer) and size >= 0 for size in sizes):
            raise FormatError(f"the extent {sizes} is not {self.rank} integers of 0 or more", where=self.name)
        return tuple(map(int, sizes))

    def integers(self, values: ArrayLike) -> Index:
        """Coordinates or offsets as an array of integers."""
        array = np.asarray(values)
        if array.dtype.kind not in "iu" and array.size:
            raise FormatError(f"coordinates and offsets are integers, not {array.dtype}", where=self.name)
        return array.astype(np.int64)

    def components(self, coord: Coord) -> list[Index]:
        """A coordinate as arrays, one per axis.

        Raises:
            FormatError: there is not one per axis, or one is no integer.
        """
        if len(coord) != self.rank:
            raise FormatError(f"{len(coord)} coordinates for {self.rank} axes", where=self.name)
        return [self.integers(each) for each in coord]


PitchLinear = LayoutType("PitchLinear", "SC", "CS")
RowMajor = LayoutType("RowMajor", "RC", "RC")
ColumnMajor = LayoutType("ColumnMajor", "CR", "RC")
RowMajorInterleaved = LayoutType("RowMajorInterleaved<{}>", "RC{}r", "RC")
ColumnMajorInterleaved = LayoutType("ColumnMajorInterleaved<{}>", "CR{}c", "RC")
TensorNHWC = LayoutType("TensorNHWC", "NHWC", "NHWC")
TensorNCHW = LayoutType("TensorNCHW", "NCHW", "NHWC")
TensorNCxHWx = LayoutType("TensorNCxHWx<{}>", "NCHW{}c", "NHWC")
TensorCxRSKx = LayoutType("TensorCxRSKx<{}>", "CHWN{}c", "NHWC")
TensorNDHWC = LayoutType("TensorNDHWC", "NDHWC", "NDHWC")


def layout_types() -> dict[str, LayoutType]:
    """All layouts by their names; templates without their arguments."""
    found = (each for each in globals().values() if isinstance(each, LayoutType))
    return {each.name.removesuffix("<{}>"): each for each in found}


def layout_type(name: str) -> LayoutType:
    """The layout of a name like `RowMajor` or `TensorNCxHWx<32>`.

    Raises:
        FormatError: there is no such layout, or its template's argument is missing.
    """
    known, match = layout_types(), _NAME.fullmatch(name.strip())
    if match is None or match[1] not in known:
        close = difflib.get_close_matches(name.partition("<")[0], known, n=1)
        raise FormatError(
            "no layout of CUTLASS",
            where=name,
            hint=f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}",
        )
    return known[match[1]][int(match[2])] if match[2] else known[match[1]]


class StridedLayout(Record):
    """A layout with its free strides, a function from logical coordinates to offsets in linear memory.

    Attributes:
        type: the layout without strides.
        stride: the strides in elements, innermost first.

    Raises:
        FormatError: a stride is missing, or is no integer of 0 or more.
    """

    type: LayoutType
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the strides."""
        expected, name = self.type.format.rank - 1, self.type.name
        if len(self.stride) != expected:
            raise FormatError(f"has {expected} strides, {len(self.stride)} are given", where=name)
        if not all(isinstance(step, int | np.integer) and step >= 0 for step in self.stride):
            raise FormatError(f"a stride is no integer of 0 or more: {self.stride}", where=name)

    def __repr__(self) -> str:
        """The notation of CUTLASS: `TensorNCxHWx<32>(160, 480, 960)`."""
        return f"{self.type.name}({', '.join(map(str, self.stride))})"

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of every part of the format, outermost first."""
        block = self.type.format.parts[-1].block
        return (*reversed(self.stride), *((block, 1) if block else (1,)))

    def __call__(self, coord: Coord) -> Index:
        """The offsets of the given coordinates, in elements.

        Raises:
            FormatError: there is not one coordinate per axis, or one is no integer.
        """
        format, coords = self.type.format, self.type.components(coord)
        total = np.zeros(np.broadcast_shapes(*(each.shape for each in coords)), np.int64)
        for part, span, stride in zip(format.parts, format.spans, self.strides, strict=True):
            digit = coords[part.axis] // span
            total += (digit % part.block if part.block else digit) * stride
        return total[()]

    def inverse(self, offset: ArrayLike) -> tuple[Any, ...]:
        """The coordinates at the given offsets; outside of the tensor's extent for offsets of gaps.

        Raises:
            FormatError: an offset is below 0, or a stride is 0.
        """
        format, rest = self.type.format, self.type.integers(offset)
        if np.any(rest < 0) or 0 in self.strides:
            raise FormatError("has no inverse for a stride of 0, or an offset below 0", where=str(self))
        coords: list[Any] = [0] * format.rank
        levels = zip(self.strides, format.spans, format.parts, strict=True)
        for stride, span, part in sorted(levels, key=lambda level: -level[0]):
            digit, rest = np.divmod(rest, stride)
            coords[part.axis] = coords[part.axis] + digit * span
        return tuple(coords)

    def size(self, extent: Extent) -> int:
        """The number of elements of a tensor."""
        return math.prod(self.type.extents(extent))

    def capacity(self, extent: Extent) -> int:
        """The number of elements of memory of a tensor, gaps included: the outermost stride times its extent.

        Raises:
            FormatError: elements of the tensor would overlap.
        """
        sizes, strides = self.type.extents(extent), self.strides
        if 0 in sizes:
            return 0
        physical = static_shape(self.type.format.physical_shape(sizes))
        reached = [stride * count for stride, count in zip(strides, physical, strict=True)]
        counted = zip(strides, reached[1:], physical, strict=False)
        if any(stride < inner for stride, inner, count in counted if count > 1) or reached[0] < max(reached):
            raise FormatError(f"does not hold the extent {sizes}", where=str(self), hint="enlarge the strides")
        return reached[0]


class TensorView(Record):
    """A tensor in the memory of a numpy array, which is not copied: a write changes the array.

    Attributes:
        memory: a contiguous array of any dtype.
        layout: from coordinates to offsets.
        extent: the size along each axis.
        pointer: the offset of coordinate 0, in elements.

    Raises:
        FormatError: the array has gaps, or is too small for the tensor.
    """

    memory: Array
    layout: StridedLayout
    extent: tuple[int, ...]
    pointer: int = 0

    def __post_init__(self) -> None:
        """Check that the memory holds the tensor."""
        if not self.memory.flags.c_contiguous:
            raise FormatError("an array with gaps", hint="refer to the array that it is a view of, or to a copy")
        force_setattr(self, "memory", self.memory.reshape(-1))
        force_setattr(self, "extent", self.layout.type.extents(self.extent))
        if 0 in self.extent:
            return
        blocks = map(self.layout.type.format.block, range(len(self.extent)))
        ends = [np.arange(max(0, size - block), size) for size, block in zip(self.extent, blocks, strict=True)]
        last = int(self.layout(np.ix_(*ends)).max())
        if self.pointer < 0 or self.pointer + last >= self.memory.size:
            raise FormatError(
                f"the memory has {self.memory.size} elements, {self.pointer} to {self.pointer + last} are needed",
                where=str(self.layout),
                hint="enlarge the array",
            )

    def __getitem__(self, coord: Coord) -> Any:
        return self.memory[self._positions(coord)]

    def __setitem__(self, coord: Coord, value: ArrayLike) -> None:
        self.memory[self._positions(coord)] = value

    def subview(self, extent: Extent, location: Extent) -> Self:
        """A part of the tensor from a location on, clipped to the extent.

        Raises:
            FormatError: the location is outside, or within a block of the layout.
        """
        kind, start = self.layout.type, self.layout.type.extents(location)
        if any(at > size for at, size in zip(start, self.extent, strict=True)):
            raise FormatError(f"the location {start} is outside the extent {self.extent}", where=str(self.layout))
        tile = tuple(map(kind.format.block, range(kind.rank)))
        if any(at % step for at, step in zip(start, tile, strict=True)):
            hint = f"move by multiples of {tile}"
            raise FormatError(f"the location {start} is within a block", where=str(self.layout), hint=hint)
        rest = (size - at for at, size in zip(start, self.extent, strict=True))
        sizes = tuple(map(min, kind.extents(extent), rest))
        return replace(self, extent=sizes, pointer=self.pointer + int(self.layout(start)))

    def assign(self, values: ArrayLike) -> None:
        """Write all elements from an array that broadcasts to the extent."""
        self[np.ix_(*map(np.arange, self.extent))] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The elements, as a copy."""
        values: Array = self[np.ix_(*map(np.arange, self.extent))]
        return values if dtype is None else values.astype(dtype)

    def _positions(self, coord: Coord) -> Index:
        inside = zip(self.layout.type.components(coord), self.extent, strict=True)
        if any(np.any((each < 0) | (each >= size)) for each, size in inside):
            raise FormatError(f"a coordinate is outside the extent {self.extent}", where=str(self.layout))
        return self.layout(coord) + self.pointer
