"""Layouts of matrix operands in shared memory, swizzled for writes and reads without bank conflicts.

Memory is divided into lines of 128 bytes, each with every bank once. A tile of the operand occupies a part of several lines,
and within a line vectors are permuted by an exclusive or with a number that differs from line to line:

    TensorOpMultiplicand    vectors of 16 bytes: chunk ^ line, in lines that hold as many rows of `Crosswise` elements as fit

*Congruous* operands have the order that the instruction requires (the contiguous axis is M or N), *crosswise* ones do not (it
is K). Coordinates are (contiguous, strided); the layouts whose names begin with ColumnMajor or RowMajor take (row, column).
The stride is the number of elements along a line: along the contiguous axis in all layouts but Crosswise of 64 and 128 bits,
whose lines are along the strided axis.

Source: CUTLASS include/cutlass/layout/tensor_op_multiplicand_sm75.h and tensor_op_multiplicand_sm80.h. In CUTLASS some of these
have no inverse, and `packed` and `capacity` require whole tiles; here extents are rounded up to tiles.
"""

import difflib
import re
from abc import abstractmethod
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass import layouts
from layoutopt.systems.cutlass.layouts import (
    Coord,
    Extent,
    Index,
    LayoutConcept,
    MatrixCoord,
    PitchLinearCoord,
    Template,
)

ACCESS_BITS = 128
LINE_BITS = 1024


class TensorOpLayout(LayoutConcept):
    """Tiles over lines of memory.

    Attributes:
        element_size: bits of an element.
        elements_per_access: elements that are written together.
        lines: the number of lines that a tile occupies.
        width: the number of elements of a tile in each of these lines.
        crosses_lines: whether consecutive tiles along the contiguous axis are on different lines.
    """

    rank = 2
    stride_rank = 1
    coordinate: ClassVar[type[tuple[Any, ...]]] = PitchLinearCoord
    contiguous = 0
    element_size: ClassVar[int]
    elements_per_access: ClassVar[int] = 1
    lines: ClassVar[int]
    width: ClassVar[int]
    crosses_lines: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """The line of the element (c, s) of a tile, and its position in the line."""

    @classmethod
    def packed(cls, extent: Extent) -> Self:
        """The layout whose lines have the length of the tensor, rounded up to tiles."""
        along = cls._contiguous_first(cls.extents(extent))[cls.crosses_lines]
        step = cls._tile()[cls.crosses_lines]
        return cls(-(-along // step) * step)

    def __call__(self, coord: Coord) -> Index:
        """The tile of a coordinate, and its position in the tile."""
        (tile_c, c), (tile_s, s) = map(np.divmod, self._contiguous_first(self.components(coord)), self._tile())
        line, position = self.position(c, s)
        across, along = (tile_c, tile_s) if self.crosses_lines else (tile_s, tile_c)
        offsets: Index = (line + across * self.lines) * self._pitch + position + along * self.width
        return offsets

    def inverse(self, offset: ArrayLike) -> tuple[Any, ...]:
        """The tile of an offset, and the element at the offset."""
        offsets = self._offsets(offset)
        if not self._pitch:
            raise FormatError("has no inverse: the stride is 0", where=str(self))
        line, position = np.divmod(offsets, self._pitch)
        (across, line), (along, position) = np.divmod(line, self.lines), np.divmod(position, self.width)
        tile_c, tile_s = (across, along) if self.crosses_lines else (along, across)
        c, s = _elements(type(self))[:, line, position]
        size_c, size_s = self._tile()
        return self.coordinate(*self._contiguous_first((c + tile_c * size_c, s + tile_s * size_s)))

    def capacity(self, extent: Extent) -> int:
        """The number of elements of the used lines."""
        needed = self.cosize(extent)
        if not needed:
            return 0
        along = self._contiguous_first(self.extents(extent))[self.crosses_lines]
        if -(-along // self._tile()[self.crosses_lines]) * self.width > self._pitch:
            raise FormatError(f"a stride of {self.stride[0]} does not hold {along}", where=str(self), hint="enlarge it")
        return -(-needed // self._pitch) * self._pitch

    @property
    def _pitch(self) -> int:
        """The stride of lines in elements."""
        rows = self._tile()[0 if self.crosses_lines else 1] // self.lines
        return self.stride[0] * rows

    @classmethod
    def _tile(cls) -> tuple[int, int]:
        """The tile, along the contiguous axis first."""
        c, s = cls._contiguous_first(cls.tile)
        return c, s

    @classmethod
    def _contiguous_first(cls, pair: Any) -> Any:
        """The values of both axes, exchanged if the second axis is contiguous; the function is its own inverse."""
        return pair if cls.contiguous == 0 else (pair[1], pair[0])


@cache
def _elements(kind: type[TensorOpLayout]) -> Index:
    """The element (c, s) of a tile at each position of its lines, as an array of shape (2, lines, width)."""
    c, s = np.indices(kind._tile())
    table = np.empty((2, kind.lines, kind.width), np.int64)
    table[:, *kind.position(c, s)] = c, s
    return table


class TensorOpMultiplicand(TensorOpLayout):
    """Vectors of 16 bytes that are permuted within their line.

    Parameters: the bits of an element, and Crosswise, the number of adjacent elements of a row in a line; a line of 128 bytes
    has `factor` rows.
    """

    parameters = ("ElementSize", "Crosswise")
    factor: ClassVar[int]

    @classmethod
    def bind(cls, *arguments: int) -> dict[str, Any]:
        """The shape of a tile: 8 vectors by 8 or 4 rows of lines."""
        element_size, crosswise = arguments
        per_access, rest = divmod(ACCESS_BITS, element_size)
        factor, remains = divmod(LINE_BITS, element_size * crosswise)
        if rest or remains or factor not in (1, 2, 4, 8):
            raise FormatError(
                f"{crosswise} elements of {element_size} bits do not fill 1, 1/2, 1/4 or 1/8 line of 128 bytes",
                where=cls.__name__,
            )
        lines = max(8 // factor, 4)
        return {
            "element_size": element_size,
            "elements_per_access": per_access,
            "factor": factor,
            "lines": lines,
            "width": 8 * per_access,
            "tile": cls._contiguous_first((crosswise, lines * factor)),
        }

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """The position in a line with the vectors of `factor` rows, whose index is xored with the index of the line."""
        vector, element = np.divmod(c, cls.elements_per_access)
        line, row = np.divmod(s, cls.factor)
        chunk = vector + row * (8 // cls.factor)
        return line, (chunk ^ line) * cls.elements_per_access + element


class TensorOpMultiplicandCongruous(TensorOpMultiplicand):
    """`TensorOpMultiplicand`, except for 32 bits, which are read one by one: vector xor twice the row, in tiles of 32 x 4."""

    @classmethod
    def bind(cls, *arguments: int) -> dict[str, Any]:
        """The class attributes of TensorOpMultiplicand, except for the specialisation for 32 bits."""
        members = super().bind(*arguments)
        if members["element_size"] != 32:
            return members
        tile = cls._contiguous_first((32, 4))
        return {**members, "factor": 1, "lines": 4, "width": 32, "tile": tile}

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """The position by the formula of the class."""
        return (s, ((c // 4) ^ (2 * s)) * 4 + c % 4) if cls.element_size == 32 else super().position(c, s)


class TensorOpMultiplicandCrosswise(TensorOpMultiplicand):
    """`TensorOpMultiplicand` for operands whose contiguous axis is K."""


class TensorOpMultiplicandCongruous64b(TensorOpLayout):
    """Elements of 64 bits, of which a thread reads two together: c and c + 8."""

    element_size = 64
    tile = (16, 4)
    lines = 4
    width = 16

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """Four columns to a line: pairs, numbered by the lowest bit of c, xor the row and the line."""
        line = c // 2 % 4
        return line, 2 * ((4 * (c % 2) + line) ^ s) + c // 8


class TensorOpMultiplicand64bCrosswise(TensorOpLayout):
    """Elements of 64 bits, of which a thread reads two together: s and s + 8."""

    element_size = 64
    tile = (16, 16)
    lines = 16
    width = 16
    crosses_lines = True

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """Four lines for each group of four columns, whose index is xored into the position."""
        group = c // 4
        line = 4 * group + s // 2 % 4
        return line, (8 * (s % 2) + 2 * (c % 4) + s // 8) ^ (8 * (group // 2) + group % 2)


class TensorOpMultiplicandCongruous128b(TensorOpLayout):
    """Elements of 128 bits, congruous."""

    element_size = 128
    tile = (8, 4)
    lines = 4
    width = 8

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """Two columns to a line: the row xor the line."""
        line = c // 2
        return line, 4 * (c % 2) + (s ^ line)


class TensorOpMultiplicandCrosswise128x4(TensorOpLayout):
    """Elements of 128 bits, crosswise."""

    element_size = 128
    tile = (8, 8)
    lines = 8
    width = 8
    crosses_lines = True

    @classmethod
    def position(cls, c: Index, s: Index) -> tuple[Index, Index]:
        """Four columns by two rows to a line."""
        return c // 4 * 4 + s // 2, (c % 4 + 4 * (s % 2)) ^ (c // 4 * 4)


# --- tensor op matrix ---
#
# The layouts of `tensor_op` for column-major and row-major matrices: the same offsets, with coordinates (row, column).
#
# Source: CUTLASS include/cutlass/layout/tensor_op_multiplicand_sm75.h and tensor_op_multiplicand_sm80.h.


class _ColumnMajor(TensorOpLayout):
    """(row, column) is (contiguous, strided)."""

    coordinate = MatrixCoord


class _RowMajor(TensorOpLayout):
    """(row, column) is (strided, contiguous)."""

    coordinate = MatrixCoord
    contiguous = 1

    def __init_subclass__(cls) -> None:
        """Exchange the axes of the tile, unless the arguments of a template determine it."""
        if not cls.parameters:
            cls.tile = cls.tile[::-1]


MATRICES: dict[str, type[LayoutConcept]] = {}
"""The layouts of matrices by name: ColumnMajorTensorOpMultiplicandCongruous, RowMajorTensorOpMultiplicandCongruous, ..."""

for _kind in (
    TensorOpMultiplicandCongruous,
    TensorOpMultiplicandCrosswise,
    TensorOpMultiplicandCongruous64b,
    TensorOpMultiplicand64bCrosswise,
    TensorOpMultiplicandCongruous128b,
    TensorOpMultiplicandCrosswise128x4,
):
    for _order, _prefix in ((_ColumnMajor, "ColumnMajor"), (_RowMajor, "RowMajor")):
        _name = f"{_prefix}{_kind.__name__}"
        _doc = f"`{_kind.__name__}` of a {_prefix[:-5].lower()}-major matrix."
        MATRICES[_name] = Template(_name, (_order, _kind), {"__doc__": _doc, "__module__": __name__})
globals().update(MATRICES)


# --- The layouts by their names ---

_NAME = re.compile(r"(\w+)(?:<([0-9, ]+)>)?")


def layout_types() -> tuple[type[LayoutConcept], ...]:
    """All layouts, sorted by name; templates have no arguments."""
    found = (each for each in (*vars(layouts).values(), *globals().values()))
    kinds = {each for each in found if isinstance(each, type) and issubclass(each, LayoutConcept)}
    return tuple(
        sorted((kind for kind in kinds if hasattr(kind, "tile") or kind.parameters), key=lambda kind: kind.__name__)
    )


def layout_type(name: str) -> type[LayoutConcept]:
    """The layout of a name like `RowMajor` or `TensorOpMultiplicandCrosswise<16,32>`.

    Raises:
        FormatError: there is no such layout, or it has other parameters.
    """
    known = {kind.__name__: kind for kind in layout_types()}
    match = _NAME.fullmatch(name.strip())
    kind = known.get(match[1]) if match else None
    if match is None or kind is None:
        close = difflib.get_close_matches(name.partition("<")[0], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise FormatError("no layout of CUTLASS", where=name, hint=hint)
    if match[2] is None:
        kind.check_bound()
        return kind
    try:
        arguments = tuple(map(int, match[2].split(",")))
    except ValueError:
        raise FormatError("arguments are integers", where=name) from None
    return kind[arguments]
