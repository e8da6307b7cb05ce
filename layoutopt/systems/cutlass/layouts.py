"""The layout concept of CUTLASS: a function from logical coordinates to offsets in linear memory.

    rank          number of logical axes
    stride rank   number of free strides; the others follow from the layout
    size          number of elements of a tensor, the product of its extents
    capacity      number of elements of its memory, including the gaps of leading dimensions

    layout = RowMajor(ldm)      layout((row, column)) = row * ldm + column      layout.capacity((rows, columns)) = rows * ldm

A layout has strides and no extents, so that one layout applies to every tensor with these strides, and to its sub-tensors. It
is periodic: `layout(x + t) = layout(x) + layout(t)` for multiples t of its `tile`, for which pointer arithmetic is valid. The
template arguments of CUTLASS are written in brackets: `RowMajorInterleaved[32]`.

Source: CUTLASS media/docs/cpp/layout.md, "CUTLASS Layout Concept"; `IdentityTensorLayout` in include/cutlass/tensor_ref.h.
"""

import math
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.formats import Format, Layout, Part
from layoutopt.formats.extent import static_shape

# --- The names of coordinates ---
#
# Source: CUTLASS include/cutlass/pitch_linear_coord.h, matrix_coord.h and tensor_coord.h. All tensors have the coordinates
# (n, h, w, c) for every layout; for filters these are K, R, S and C.


class PitchLinearCoord(NamedTuple):
    """A position in lines of memory: the position in the line, and the line."""

    contiguous: ArrayLike
    strided: ArrayLike


class MatrixCoord(NamedTuple):
    """A position in a matrix."""

    row: ArrayLike
    column: ArrayLike


class Tensor4DCoord(NamedTuple):
    """A position in a batch of images, or in filters (K, R, S, C)."""

    n: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike


class Tensor5DCoord(NamedTuple):
    """A position in a batch of volumes."""

    n: ArrayLike
    d: ArrayLike
    h: ArrayLike
    w: ArrayLike
    c: ArrayLike


Index: TypeAlias = NDArray[np.int64]
Coord: TypeAlias = Sequence[ArrayLike]
"""One integer, or one array of integers, per axis; arrays broadcast against each other."""

Extent: TypeAlias = Sequence[int]
"""The size of a tensor along each axis."""

_Type = TypeVar("_Type")


class Template(ABCMeta):
    """Metaclass of templates: `RowMajorInterleaved[32]` is an instance of `RowMajorInterleaved<Interleave>`."""

    def __new__(mcs, name: str, bases: tuple[type, ...], members: dict[str, Any], **options: Any) -> Any:
        """A class whose instances have no attributes of their own, because layouts are frozen."""
        return super().__new__(mcs, name, bases, {"__slots__": (), **members}, **options)

    def __getitem__(cls: type[_Type], arguments: int | tuple[int, ...]) -> type[_Type]:
        """The layout with these arguments; equal arguments give the same class.

        Raises:
            FormatError: the template has other parameters.
        """
        template: Any = cls
        kind: type[_Type] = _instance(template, *(arguments if isinstance(arguments, tuple) else (arguments,)))
        return kind


class LayoutConcept(ABC, metaclass=Template):
    """A layout: frozen, hashable, equal to layouts of the same type and strides.

    Attributes:
        rank: number of logical axes.
        stride_rank: number of strides.
        coordinate: the named tuple of coordinates; functions accept any other sequence, too.
        contiguous: the axis along which elements are adjacent in memory.
        tile: the period of the layout along each axis.
        parameters: the names of the parameters of a template; empty for other layouts.
        arguments: their values.
    """

    rank: ClassVar[int]
    stride_rank: ClassVar[int]
    coordinate: ClassVar[type[tuple[Any, ...]]]
    contiguous: ClassVar[int]
    tile: ClassVar[tuple[int, ...]]
    parameters: ClassVar[tuple[str, ...]] = ()
    arguments: ClassVar[tuple[int, ...]] = ()

    __slots__ = ("stride",)
    stride: tuple[int, ...]
    """The free strides in elements, in the order of CUTLASS: innermost first."""

    def __init__(self, *stride: int) -> None:
        self.check_bound()
        name = type(self).__name__
        if len(stride) != self.stride_rank:
            raise FormatError(f"has {self.stride_rank} strides, {len(stride)} are given", where=name)
        if not all(isinstance(step, int | np.integer) and step >= 0 for step in stride):
            raise FormatError(f"a stride is no integer of 0 or more: {stride}", where=name)
        object.__setattr__(self, "stride", tuple(map(int, stride)))

    @classmethod
    def bind(cls, *arguments: int) -> dict[str, Any]:
        """The class attributes that follow from a template's arguments.

        Raises:
            FormatError: there is no layout with these arguments.
        """
        return {}

    @classmethod
    @abstractmethod
    def packed(cls, extent: Extent) -> Self:
        """The layout with the smallest strides for a tensor of this extent."""

    @abstractmethod
    def __call__(self, coord: Coord) -> Index:
        """The offsets of the given coordinates, in elements.

        Raises:
            FormatError: there is not one coordinate per axis, or one is no integer.
        """

    @abstractmethod
    def inverse(self, offset: ArrayLike) -> tuple[Any, ...]:
        """The coordinates at the given offsets; outside of the tensor's extent for offsets of gaps.

        Raises:
            FormatError: an offset is below 0, or a stride is 0.
        """

    @abstractmethod
    def capacity(self, extent: Extent) -> int:
        """The number of elements of memory of a tensor, gaps included.

        Raises:
            FormatError: elements of the tensor would overlap.
        """

    def cosize(self, extent: Extent) -> int:
        """One more than the largest offset of a tensor: the size of its memory without gaps at the end."""
        sizes = self.extents(extent)
        if 0 in sizes:
            return 0
        # Offsets repeat tile by tile and grow with them, so the largest is in one of the last two along each axis.
        starts = (max(0, (size - 1) // step - 1) * step for size, step in zip(sizes, self.tile, strict=True))
        last = np.ix_(*(np.arange(start, size) for start, size in zip(starts, sizes, strict=True)))
        return int(self(last).max()) + 1

    def size(self, extent: Extent) -> int:
        """The number of elements of a tensor."""
        return math.prod(self.extents(extent))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, LayoutConcept) and self.stride == other.stride

    def __hash__(self) -> int:
        return hash((type(self), self.stride))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (_template(type(self)), self.arguments, self.stride)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.stride))})"

    @classmethod
    def check_bound(cls) -> None:
        """Raise an error for a template without arguments.

        Raises:
            FormatError: the class is a template without arguments.
        """
        if len(cls.arguments) != len(cls.parameters):
            expected = ", ".join(cls.parameters)
            raise FormatError(f"requires {expected}", where=cls.__name__, hint=f"write {cls.__name__}[{expected}]")

    @classmethod
    def extents(cls, extent: Extent) -> tuple[int, ...]:
        """An extent as integers.

        Raises:
            FormatError: there is not one per axis, or one is no integer of 0 or more.
        """
        cls.check_bound()
        sizes = tuple(extent)
        if len(sizes) != cls.rank or not all(isinstance(size, int | np.integer) and size >= 0 for size in sizes):
            raise FormatError(f"the extent {sizes} is not {cls.rank} integers of 0 or more", where=cls.__name__)
        return tuple(map(int, sizes))

    @classmethod
    def components(cls, coord: Coord) -> list[Index]:
        """A coordinate as arrays, one per axis.

        Raises:
            FormatError: there is not one per axis, or one is no integer.
        """
        count = len(coord) if hasattr(coord, "__len__") else 1
        if count != cls.rank:
            raise FormatError(f"{count} coordinates for {cls.rank} axes", where=cls.__name__)
        return [cls._integers(each) for each in coord]

    @classmethod
    def _offsets(cls, offset: ArrayLike) -> Index:
        offsets = cls._integers(offset)
        if np.any(offsets < 0):
            raise FormatError("an offset below 0 has no coordinate", where=cls.__name__)
        return offsets

    @classmethod
    def _integers(cls, values: ArrayLike) -> Index:
        array = np.asarray(values)
        if array.dtype.kind not in "iu" and array.size:
            raise FormatError(f"coordinates and offsets are integers, not {array.dtype}", where=cls.__name__)
        return array.astype(np.int64)


@cache
def _instance(template: Any, *arguments: int) -> Any:
    name = template.__name__
    if template.arguments or len(arguments) != len(template.parameters):
        expected = f"takes the arguments {', '.join(template.parameters)}" if template.parameters else "is no template"
        raise FormatError(f"{expected}, not {arguments}", where=name)
    if not all(isinstance(argument, int) and argument > 0 for argument in arguments):
        raise FormatError(f"the arguments {arguments} are not integers above 0", where=name)
    members = {"__doc__": template.__doc__, "__module__": template.__module__}
    bound = template.bind(*arguments)
    return type(template)(
        f"{name}<{','.join(map(str, arguments))}>", (template,), {**members, "arguments": arguments, **bound}
    )


def _template(kind: type[LayoutConcept]) -> type[LayoutConcept]:
    return kind.__base__ if kind.arguments and kind.__base__ is not None else kind


def _restored(template: Any, arguments: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    return (template[arguments] if arguments else template)(*stride)


# --- Layouts that consist of a Format and free outer strides ---
#
# This includes all layouts of CUTLASS for matrices and tensors in global memory: the innermost part, and the part around a
# block, are contiguous; every other part has a free stride. `TensorNCxHWx<32>` is NCHW32c,
#
#     offset(n, h, w, c) = c % 32 + 32 * w + stride[0] * h + stride[1] * (c / 32) + stride[2] * n


class StridedLayout(LayoutConcept):
    """A Format with free strides.

    Attributes:
        notation: the format, with {} for the template's argument; the letters are the initials of the coordinates.
        format: the format of the coordinates.
    """

    notation: ClassVar[str]
    format: ClassVar[Format]

    def __init_subclass__(cls) -> None:
        """Parse the format of a class whose template arguments are set."""
        if cls.parameters and not cls.arguments:
            return
        letters = "".join(name[0].upper() for name in cls.coordinate.__annotations__)
        cls.format = Format.parse(cls.notation.format(*cls.arguments), letters)
        cls.rank = cls.format.rank
        cls.stride_rank = cls.rank - 1
        cls.tile = tuple(map(cls.format.block, range(cls.rank)))
        cls.contiguous = cls.format.parts[-1].axis

    @classmethod
    def packed(cls, extent: Extent) -> Self:
        """The layout without gaps, blocks rounded up.

        Where the block does not divide the extent, the samples of CUTLASS's TensorNCxHWx::packed overlap.
        """
        sizes = cls.extents(extent)
        physical = static_shape(cls.format.physical_shape(sizes))
        return cls(*(math.prod(physical[index:]) for index in range(cls.stride_rank, 0, -1)))

    def __call__(self, coord: Coord) -> Index:
        """The sum of the digits of the coordinates, each times the stride of its part."""
        coords = self.components(coord)
        total = np.zeros(np.broadcast_shapes(*(each.shape for each in coords)), np.int64)
        for part, span, stride in self._levels():
            digit = coords[part.axis] // span
            total += (digit % part.block if part.block else digit) * stride
        return total[()]

    def inverse(self, offset: ArrayLike) -> tuple[Any, ...]:
        """Offsets divided by the strides, from the largest to the smallest."""
        rest = self._offsets(offset)
        if 0 in self._strides():
            raise FormatError("has no inverse: a stride is 0", where=str(self), hint="use the strides of `packed`")
        coords: list[Any] = [0] * self.rank
        for part, span, stride in sorted(self._levels(), key=lambda level: -level[2]):
            digit, rest = np.divmod(rest, stride)
            coords[part.axis] = coords[part.axis] + digit * span
        return self.coordinate(*coords)

    def capacity(self, extent: Extent) -> int:
        """The outermost stride times the extent of the outermost part."""
        if 0 in self.extents(extent):
            return 0
        layout = self.bound_layout(extent)
        capacity = layout.physical_shape[0] * layout.strides[0]
        if capacity < self.cosize(extent):
            raise FormatError(
                f"does not hold the extent {tuple(extent)}", where=str(self), hint="enlarge the last stride"
            )
        return capacity

    def bound_layout(self, extent: Extent) -> Layout:
        """The format bound to an extent and these strides.

        Raises:
            FormatError: elements would overlap.
        """
        return Layout(self.format, self.extents(extent), self._strides())

    def _strides(self) -> tuple[int, ...]:
        """The stride of every part, outermost first."""
        block = self.format.parts[-1].block
        return (*reversed(self.stride), *((block, 1) if block else (1,)))

    def _levels(self) -> list[tuple[Part, int, int]]:
        """Every part, outermost first, with its span and stride."""
        return list(zip(self.format.parts, self.format.spans, self._strides(), strict=True))


# --- Layouts of matrices. Source: CUTLASS include/cutlass/layout/pitch_linear.h and matrix.h ---


class PitchLinear(StridedLayout):
    """Lines of memory: `contiguous + strided * stride`."""

    coordinate = PitchLinearCoord
    notation = "SC"


class RowMajor(StridedLayout):
    """Row by row: `row * ldm + column`."""

    coordinate = MatrixCoord
    notation = "RC"


class ColumnMajor(StridedLayout):
    """Column by column: `column * ldm + row`."""

    coordinate = MatrixCoord
    notation = "CR"


class RowMajorInterleaved(StridedLayout):
    """Blocks of k rows, each in column-major order.

    `row / k * ldm + column * k + row % k`, and ldm is k times as many columns.
    """

    coordinate = MatrixCoord
    notation = "RC{}r"
    parameters = ("Interleave",)


class ColumnMajorInterleaved(StridedLayout):
    """Blocks of k columns, each in row-major order.

    `column / k * ldm + row * k + column % k`, and ldm is k times as many rows.
    """

    coordinate = MatrixCoord
    notation = "CR{}c"
    parameters = ("Interleave",)


# --- Layouts of tensors. Source: CUTLASS include/cutlass/layout/tensor.h ---
#
# Coordinates are (n, h, w, c) for every layout; those of filters are (k, r, s, c).


class TensorNHWC(StridedLayout):
    """Channels last. Strides of w, h, n."""

    coordinate = Tensor4DCoord
    notation = "NHWC"


class TensorNCHW(StridedLayout):
    """Image by image. Strides of h, c, n."""

    coordinate = Tensor4DCoord
    notation = "NCHW"


class TensorNCxHWx(StridedLayout):
    """Blocks of x channels, which are innermost. Strides of h, blocks of c, n."""

    coordinate = Tensor4DCoord
    notation = "NCHW{}c"
    parameters = ("Interleave",)


class TensorCxRSKx(StridedLayout):
    """Filters with blocks of x input channels: blocks outermost, their channels innermost. Strides of s, r, blocks of c."""

    coordinate = Tensor4DCoord
    notation = "CHWN{}c"
    parameters = ("Interleave",)


class TensorNDHWC(StridedLayout):
    """Channels last of volumes. Strides of w, h, d, n."""

    coordinate = Tensor5DCoord
    notation = "NDHWC"
