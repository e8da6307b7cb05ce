"""Constants in a format, which are packed whenever they are read, so that lowering allocates no packed array."""

from dataclasses import dataclass

from layoutopt.formats import Format, Shape, pack, packed_elements, packed_view
from layoutopt.ir.types import Array, Data
from layoutopt.ops import estimated_extent


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant in a format.

    Attributes:
        data: the elements in logical order.
        format: the format.
        shape: the shape of the packed array.
        nbytes: its size in bytes.
    """

    data: Data
    format: Format
    shape: Shape
    nbytes: int

    def numpy(self) -> Array:
        """The physical array."""
        return pack(self.data.numpy(), self.format).reshape([estimated_extent(dim) for dim in self.shape])

    def view(self) -> Array:
        """The physical array, one axis per part, as a view of the logical one if no axis is padded."""
        return packed_view(self.data.numpy(), self.format)

    def with_data(self, data: Data, nbytes: int) -> "Packed":
        """Another constant of that shape in this format."""
        return Packed(data, self.format, self.shape, nbytes)

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened physical array."""
        return packed_elements(self.data.numpy(), self.format, positions)


__all__ = ["Packed"]
