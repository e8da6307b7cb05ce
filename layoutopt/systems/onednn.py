"""oneDNN's memory descriptors: the fields and queries of `dnnl_memory_desc_t`, with the names of the C API.

    md = MemoryDescriptor.with_tag((1, 17, 5, 4), "f32", "aBcd16b")
    md.padded_dims      (1, 32, 5, 4)
    md.strides          (640, 320, 64, 16)      of the outer dimensions
    md.size             2560                    bytes

A descriptor is more general than a Format: strides may leave gaps, and a part of a tensor (`submemory`) has an offset.
By convention padding is zero: a primitive requires zeros in the padding of its inputs and writes zeros to that of its
outputs.

Source: oneDNN include/oneapi/dnnl/dnnl.h and dnnl_types.h; tests compare the results with those of the library.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.catalog import lookup
from layoutopt.formats.extent import static_shape
from layoutopt.formats.format import Format, Part
from layoutopt.formats.layout import Layout

DATA_TYPES: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "s32": np.dtype(np.int32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "boolean": np.dtype(np.bool_),
}
"""The members of dnnl_data_type_t with at least 8 bits, by name."""

_CANONICAL_TAG = re.compile(r"([a-lA-L]+)((?:[1-9][0-9]*[a-l])*)")
_BLOCK = re.compile(r"([1-9][0-9]*)([a-l])")
_TAGS_OF_HEADER = {"gIOhw2i8o16i2o": "aBCde2c8b16c2b", "gIOdhw2i8o16i2o": "aBCdef2c8b16c2b"}
"""Two tags whose letters contradict the order of O and I in dnnl_types.h."""


def tag_format(tag: str) -> Format:
    """The format of a tag, which is canonical (`aBcd16b`) or an alias (`nChw16c`, `ldgOI16o4i`).

    Raises:
        FormatError: oneDNN has no such tag.
    """
    tag = _TAGS_OF_HEADER.get(tag.removeprefix("dnnl_"), tag.removeprefix("dnnl_"))
    match = _CANONICAL_TAG.fullmatch(tag)
    if match is None or sorted(match[1].lower()) != [chr(ord("a") + axis) for axis in range(len(match[1]))]:
        return lookup(tag)
    outer = [Part(_axis(letter)) for letter in match[1].lower()]
    blocks = [Part(_axis(letter), int(size)) for size, letter in _BLOCK.findall(match[2])]
    if {part.axis for part in blocks} != {_axis(letter) for letter in match[1].lower() if letter.upper() in match[1]}:
        raise FormatError(
            "capital letters are the dimensions that have blocks", where=tag, hint="write it like aBcd16b"
        )
    return Format((*outer, *blocks))


def _axis(letter: str) -> int:
    return ord(letter) - ord("a")


@dataclass(frozen=True, slots=True)
class MemoryDescriptor:
    """A blocked memory descriptor, `dnnl_memory_desc_t`.

    Attributes:
        dims: the logical extents.
        data_type: one of `DATA_TYPES`.
        padded_dims: the extents with padding, multiples of the blocks.
        strides: the number of elements from one index of each outer dimension to the next.
        inner_blks: the extents of the inner blocks, the outermost first.
        inner_idxs: the dimension of each inner block.
        offset0: the offset of the first element, in elements.
    """

    dims: tuple[int, ...]
    data_type: str
    padded_dims: tuple[int, ...]
    strides: tuple[int, ...]
    inner_blks: tuple[int, ...] = ()
    inner_idxs: tuple[int, ...] = ()
    offset0: int = 0

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        if self.data_type not in DATA_TYPES:
            raise FormatError("no data type of oneDNN", where=self.data_type, hint=f"there are {', '.join(DATA_TYPES)}")
        if not len(self.dims) == len(self.padded_dims) == len(self.strides):
            raise FormatError("dims and strides differ in number", where=str(self.dims), hint="give one per dimension")
        if any(dim < 0 for dim in self.dims):
            raise FormatError("a dimension is below 0", where=str(self.dims))

    @classmethod
    def with_tag(cls, dims: Sequence[int], data_type: str, tag: str) -> Self:
        """`dnnl_memory_desc_create_with_tag`.

        Raises:
            FormatError: there is no such tag, or it has another number of dimensions.
        """
        return cls.with_format(dims, data_type, tag_format(tag))

    @classmethod
    def with_format(cls, dims: Sequence[int], data_type: str, format: Format) -> Self:
        """The descriptor of a packed tensor in a format.

        Raises:
            FormatError: the format has another rank, or blocks that are not innermost.
        """
        format.check(tuple(dims))
        count = sum(not part.block for part in format.parts)
        outer, blocks = format.parts[:count], format.parts[count:]
        if any(part.block for part in outer):
            raise FormatError("blocks of a descriptor are innermost", where=str(format), hint="use a Layout")
        strides = dict(zip(format.order, Layout.packed(format, dims).strides, strict=False))
        inner = tuple(part.block for part in blocks), tuple(part.axis for part in blocks)
        padded = static_shape(format.padded_shape(tuple(dims)))
        return cls(tuple(dims), data_type, padded, tuple(strides[axis] for axis in range(len(dims))), *inner)

    @classmethod
    def with_strides(cls, dims: Sequence[int], data_type: str, strides: Sequence[int]) -> Self:
        """`dnnl_memory_desc_create_with_strides`: a tensor without blocks.

        Raises:
            FormatError: the number of strides is not the number of dimensions.
        """
        return cls(tuple(dims), data_type, tuple(dims), tuple(strides))

    # --- queries ---------------------------------------------------------------------------------------------------

    @property
    def ndims(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DATA_TYPES[self.data_type].itemsize

    @property
    def blocks(self) -> tuple[int, ...]:
        """The product of the blocks of each dimension."""
        products = [1] * self.ndims
        for size, axis in zip(self.inner_blks, self.inner_idxs, strict=True):
            products[axis] *= size
        return tuple(products)

    @property
    def nelems(self) -> int:
        """The number of elements, without padding."""
        return prod(self.dims)

    @property
    def size(self) -> int:
        """`dnnl_memory_desc_get_size`: bytes from the first element to the end, padding included; 0 if there is no element."""
        if not self.nelems:
            return 0
        outer = [dim // block for dim, block in zip(self.padded_dims, self.blocks, strict=True)]
        extents = (count * (stride if count > 1 else 1) for count, stride in zip(outer, self.strides, strict=True))
        extent = max(extents, default=1)
        return (prod(self.inner_blks) if extent == 1 else extent) * self.itemsize

    @property
    def is_plain(self) -> bool:
        """Whether there are no blocks."""
        return not self.inner_blks

    @property
    def is_padded(self) -> bool:
        """Whether there is padding, which primitives require to be zero."""
        return self.dims != self.padded_dims

    def offset(self, *coords: ArrayLike) -> NDArray[np.int64]:
        """The offsets of the given elements or padding, in elements from the start of the memory.

        Args:
            coords: one integer or array per dimension, within the padded extents.

        Raises:
            FormatError: the number of coordinates is not the number of dimensions, or one is out of range.
        """
        arrays = [np.asarray(coord, np.int64) for coord in coords]
        if len(arrays) != self.ndims:
            raise FormatError(f"{len(arrays)} coordinates for {self.ndims} dimensions", where=str(self.dims))
        if any(np.any((each < 0) | (each >= dim)) for each, dim in zip(arrays, self.padded_dims, strict=True)):
            raise FormatError(f"a coordinate is outside {self.padded_dims}", where=str(self.dims))
        total = np.full(np.broadcast_shapes(*(each.shape for each in arrays)), self.offset0, np.int64)
        step = 1
        outer = list(arrays)
        for size, axis in zip(reversed(self.inner_blks), reversed(self.inner_idxs), strict=True):
            total += outer[axis] % size * step
            outer[axis] = outer[axis] // size
            step *= size
        for each, stride in zip(outer, self.strides, strict=True):
            total += each * stride
        return total

    # --- other descriptors of the same memory ----------------------------------------------------------------------

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> Self:
        """`dnnl_memory_desc_create_submemory`: a view of a part of the tensor.

        Raises:
            FormatError: the part is out of range, or begins or ends inside of a block.
        """
        if not len(dims) == len(offsets) == self.ndims:
            raise FormatError("not one extent and offset per dimension", where=str(self.dims))
        padded, start = list(self.padded_dims), self.offset0
        for axis, (dim, offset, block) in enumerate(zip(dims, offsets, self.blocks, strict=True)):
            if dim < 0 or offset < 0 or offset + dim > self.dims[axis]:
                raise FormatError(f"{offset} to {offset + dim} is outside dimension {axis}", where=str(self.dims))
            is_at_end = offset + dim == self.dims[axis]
            if offset % block or (dim % block and not is_at_end):
                hint = f"begin and end at multiples of {block}"
                raise FormatError(f"dimension {axis} is cut through a block", where=str(self.dims), hint=hint)
            padded[axis] = self.padded_dims[axis] - offset if is_at_end else dim
            start += offset // block * self.strides[axis]
        return replace(self, dims=tuple(dims), padded_dims=tuple(padded), offset0=start)

    def permute_axes(self, permutation: Sequence[int]) -> Self:
        """`dnnl_memory_desc_permute_axes`: dimension d becomes dimension `permutation[d]`; no byte moves.

        Raises:
            FormatError: `permutation` is no permutation of the dimensions.
        """
        if sorted(permutation) != list(range(self.ndims)):
            raise FormatError("no permutation of the dimensions", where=str(tuple(permutation)))
        inverse = np.argsort(permutation)

        def permuted(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(values[axis] for axis in inverse)

        return replace(
            self,
            dims=permuted(self.dims),
            padded_dims=permuted(self.padded_dims),
            strides=permuted(self.strides),
            inner_idxs=tuple(permutation[axis] for axis in self.inner_idxs),
        )

    # --- arrays ----------------------------------------------------------------------------------------------------

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """A new flat memory with the elements of an array of shape `dims`, and zeros in padding and gaps.

        Raises:
            FormatError: the array has another shape.
        """
        memory = np.zeros(self.offset0 + self.size // self.itemsize, DATA_TYPES[self.data_type])
        self.write(memory, array)
        return memory

    def write(self, memory: NDArray[Any], array: NDArray[Any]) -> None:
        """Write an array of shape `dims` to a flat memory, with zeros in the padding, as primitives do.

        Raises:
            FormatError: the array has another shape.
        """
        if array.shape != self.dims:
            raise FormatError(f"an array of shape {array.shape} is given", where=str(self.dims))
        if self.is_padded and self.nelems:
            memory[self.offset(*np.ogrid[tuple(slice(dim) for dim in self.padded_dims)])] = 0
        memory[self.offset(*np.ogrid[tuple(slice(dim) for dim in self.dims)])] = array

    def read(self, memory: NDArray[Any]) -> NDArray[Any]:
        """The array of shape `dims` in a flat memory."""
        return np.asarray(memory[self.offset(*np.ogrid[tuple(slice(dim) for dim in self.dims)])])
