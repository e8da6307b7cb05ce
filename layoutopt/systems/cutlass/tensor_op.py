"""Layouts of matrix operands in shared memory, swizzled for writes and reads without bank conflicts.

Memory is divided into lines of 128 bytes, each with every bank once. A tile of the operand occupies a part of several lines,
and within a line vectors are permuted by an exclusive or with a number that differs from line to line:

    TensorOpMultiplicand    vectors of 16 bytes: chunk ^ line, in lines that hold as many rows of `Crosswise` elements as fit

Such a permutation is linear over bits: each bit of a coordinate changes a fixed set of bits of the offset, its mask.

*Congruous* operands have the order that the instruction requires (the contiguous axis is M or N), *crosswise* ones do not (it
is K). Coordinates are (contiguous, strided); the layouts whose names begin with ColumnMajor or RowMajor take (row, column).
The stride is the number of elements along a line: along the contiguous axis in all layouts but Crosswise of 64 and 128 bits,
whose lines are along the strided axis.

Source: CUTLASS include/cutlass/layout/tensor_op_multiplicand_sm75.h and tensor_op_multiplicand_sm80.h. In CUTLASS some of these
have no inverse, and `packed` and `capacity` require whole tiles; here extents are rounded up to tiles.
"""

import difflib
import re
from functools import cache, reduce
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
        masks: the mask of each bit of a coordinate (contiguous, strided) of a tile, in the number line * width + position.
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
    masks: ClassVar[tuple[tuple[int, ...], tuple[int, ...]]]
    crosses_lines: ClassVar[bool] = False

    @classmethod
    def place(cls, c: Index, s: Index) -> Index:
        """The place of the element (c, s) of a tile: line * width + position in the line."""
        bits = (
            (each >> bit & 1) * mask
            for each, masks in zip((c, s), cls.masks, strict=True)
            for bit, mask in enumerate(masks)
        )
        return reduce(np.bitwise_xor, bits)

    @classmethod
    def packed(cls, extent: Extent) -> Self:
        """The layout whose lines have the length of the tensor, rounded up to tiles."""
        along = cls._contiguous_first(cls.extents(extent))[cls.crosses_lines]
        step = cls._tile()[cls.crosses_lines]
        return cls(-(-along // step) * step)

    def __call__(self, coord: Coord) -> Index:
        """The tile of a coordinate, and its position in the tile."""
        (tile_c, c), (tile_s, s) = map(np.divmod, self._contiguous_first(self.components(coord)), self._tile())
        line, position = np.divmod(self.place(c, s), self.width)
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
        c, s = _elements(type(self))[:, line * self.width + position]
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
    """The element (c, s) of a tile at each place, as an array of shape (2, lines * width)."""
    c, s = np.indices(kind._tile())
    table = np.empty((2, kind.lines * kind.width), np.int64)
    table[:, kind.place(c, s)] = c, s
    return table


class TensorOpMultiplicand(TensorOpLayout):
    """Vectors of 16 bytes that are permuted within their line.

    Parameters: the bits of an element, and Crosswise, the number of adjacent elements of a row in a line; a line of 128 bytes
    has 1, 2, 4 or 8 rows. The index of a vector in its line is xored with the index of the line.
    """

    parameters = ("ElementSize", "Crosswise")

    @classmethod
    def bind(cls, *arguments: int) -> dict[str, Any]:
        """The shape of a tile: 8 vectors by 8 or 4 rows of lines."""
        element_size, crosswise = arguments
        per_access, rest = divmod(ACCESS_BITS, element_size)
        rows, remains = divmod(LINE_BITS, element_size * crosswise)
        if rest or remains or rows not in (1, 2, 4, 8):
            raise FormatError(
                f"{crosswise} elements of {element_size} bits do not fill 1, 1/2, 1/4 or 1/8 line of 128 bytes",
                where=cls.__name__,
            )
        lines = max(8 // rows, 4)
        members: dict[str, Any] = {
            "element_size": element_size,
            "elements_per_access": per_access,
            "lines": lines,
            "width": 8 * per_access,
        }
        in_line = _powers_of_2(crosswise, rows)
        of_lines = tuple(9 * per_access * power for power in _powers_of_2(1, lines))
        return {
            **members,
            "tile": cls._contiguous_first((crosswise, lines * rows)),
            "masks": (_powers_of_2(1, crosswise), in_line + of_lines),
        }


def _powers_of_2(first: int, factor: int) -> tuple[int, ...]:
    """The numbers first, 2 * first, 4 * first, ... below first * factor."""
    return tuple(first << bit for bit in range(factor.bit_length() - 1))


class TensorOpMultiplicandCongruous(TensorOpMultiplicand):
    """`TensorOpMultiplicand`, except for 32 bits, which are read one by one: vector xor twice the row, in tiles of 32 x 4."""

    @classmethod
    def bind(cls, *arguments: int) -> dict[str, Any]:
        """The class attributes of TensorOpMultiplicand, except for the specialisation for 32 bits."""
        members = super().bind(*arguments)
        if members["element_size"] != 32:
            return members
        tile, masks = cls._contiguous_first((32, 4)), ((1, 2, 4, 8, 16), (32 + 8, 64 + 16))
        return {**members, "lines": 4, "width": 32, "tile": tile, "masks": masks}


class TensorOpMultiplicandCrosswise(TensorOpMultiplicand):
    """`TensorOpMultiplicand` for operands whose contiguous axis is K."""


class TensorOpMultiplicandCongruous64b(TensorOpLayout):
    """Elements of 64 bits, of which a thread reads two together: c and c + 8."""

    element_size, tile, lines, width = 64, (16, 4), 4, 16
    masks = (8, 16 + 2, 32 + 4, 1), (2, 4)


class TensorOpMultiplicand64bCrosswise(TensorOpLayout):
    """Elements of 64 bits, of which a thread reads two together: s and s + 8."""

    element_size, tile, lines, width = 64, (16, 16), 16, 16
    masks = (2, 4, 64 + 1, 128 + 8), (8, 16, 32, 1)
    crosses_lines = True


class TensorOpMultiplicandCongruous128b(TensorOpLayout):
    """Elements of 128 bits, congruous."""

    element_size, tile, lines, width = 128, (8, 4), 4, 8
    masks = (4, 8 + 1, 16 + 2), (1, 2)


class TensorOpMultiplicandCrosswise128x4(TensorOpLayout):
    """Elements of 128 bits, crosswise."""

    element_size, tile, lines, width = 128, (8, 8), 8, 8
    masks = (1, 2, 32 + 4), (4, 8, 16)
    crosses_lines = True


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
