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
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError

Index: TypeAlias = NDArray[np.int64]
Coord: TypeAlias = Sequence[ArrayLike]
"""One integer, or one array of integers, per axis; arrays broadcast against each other."""

Extent: TypeAlias = Sequence[int]
"""The size of a tensor along each axis."""

_Type = TypeVar("_Type")


class Template(ABCMeta):
    """Metaclass of templates: `RowMajorInterleaved[32]` is an instance of `RowMajorInterleaved<Interleave>`."""

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
    members = {"__doc__": template.__doc__, "__module__": template.__module__, "__slots__": ()}
    bound = template.bind(*arguments)
    return type(template)(
        f"{name}<{','.join(map(str, arguments))}>", (template,), {**members, "arguments": arguments, **bound}
    )


def _template(kind: type[LayoutConcept]) -> type[LayoutConcept]:
    return kind.__base__ if kind.arguments and kind.__base__ is not None else kind


def _restored(template: Any, arguments: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    return (template[arguments] if arguments else template)(*stride)
