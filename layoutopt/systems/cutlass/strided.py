"""Layouts that consist of a Format and free outer strides.

This includes all layouts of CUTLASS for matrices and tensors in global memory: the innermost part, and the part around a block,
are contiguous; every other part has a free stride. `TensorNCxHWx<32>` is NCHW32c,

    offset(n, h, w, c) = c % 32 + 32 * w + stride[0] * h + stride[1] * (c / 32) + stride[2] * n
"""

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from layoutopt.errors import FormatError
from layoutopt.formats import Format, Layout, Part
from layoutopt.formats.shapes import static_shape
from layoutopt.systems.cutlass.concept import Coord, Extent, Index, LayoutConcept


class StridedLayout(LayoutConcept):
    """A Format with free strides.

    Attributes:
        notation: the format, with {} for the template's argument.
        letters: the letters of the coordinates, in their order.
        format: the format of the coordinates.
    """

    notation: ClassVar[str]
    letters: ClassVar[str]
    format: ClassVar[Format]

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Parse the format of a class whose template arguments are set."""
        if cls.parameters and not cls.arguments:
            return
        cls.format = Format.parse(cls.notation.format(*cls.arguments), cls.letters)
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
