"""oneDNN's memory descriptors: the fields and queries of `dnnl_memory_desc_t`, with the names of the C API.

    md = MemoryDescriptor.with_tag((1, 17, 5, 4), "f32", "aBcd16b")
    md.padded_dims      (1, 32, 5, 4)
    md.strides          (640, 320, 64, 16)      of the outer dimensions
    md.size             2560                    bytes

By convention padding is zero: a primitive requires zeros in the padding of its inputs and writes zeros to that of its
outputs.

Source: oneDNN include/oneapi/dnnl/dnnl.h and dnnl_types.h; tests compare the results with those of the library.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from layoutopt.errors import FormatError
from layoutopt.formats.catalog import lookup
from layoutopt.formats.extent import static_shape
from layoutopt.formats.format import Format, Part
from layoutopt.formats.layout import Layout, pack, unpack
from layoutopt.record import Record

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


class MemoryDescriptor(Record):
    """A blocked memory descriptor of a packed tensor, `dnnl_memory_desc_t`.

    Attributes:
        dims: the logical extents.
        data_type: one of `DATA_TYPES`.
        format: the format, whose blocks are innermost.

    Raises:
        FormatError: there is no such data type, the format has another rank, or blocks that are not innermost.
    """

    dims: tuple[int, ...]
    data_type: str
    format: Format

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        if self.data_type not in DATA_TYPES:
            raise FormatError("no data type of oneDNN", where=self.data_type, hint=f"there are {', '.join(DATA_TYPES)}")
        self.format.check(self.dims)
        if any(dim < 0 for dim in self.dims):
            raise FormatError("a dimension is below 0", where=str(self.dims))
        if any(part.block for part in self.format.parts[: len(self.dims)]):
            raise FormatError("blocks of a descriptor are innermost", where=str(self.format), hint="use a Layout")

    @classmethod
    def with_tag(cls, dims: Sequence[int], data_type: str, tag: str) -> Self:
        """`dnnl_memory_desc_create_with_tag`.

        Raises:
            FormatError: there is no such tag, or it has another number of dimensions.
        """
        return cls(tuple(dims), data_type, tag_format(tag))

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """The extents with padding, multiples of the blocks."""
        return static_shape(self.format.padded_shape(self.dims))

    @property
    def strides(self) -> tuple[int, ...]:
        """The number of elements from one index of each outer dimension to the next."""
        outer = zip(self.format.order, Layout(self.format, self.dims).strides, strict=False)
        return tuple(stride for _, stride in sorted(outer))

    @property
    def size(self) -> int:
        """`dnnl_memory_desc_get_size`: bytes, padding included."""
        return prod(self.padded_dims) * DATA_TYPES[self.data_type].itemsize

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """A new flat memory with the elements of an array of shape `dims`, and zeros in the padding.

        Raises:
            FormatError: the array has another shape.
        """
        if array.shape != self.dims:
            raise FormatError(f"an array of shape {array.shape} is given", where=str(self.dims))
        return pack(array.astype(DATA_TYPES[self.data_type]), self.format).reshape(-1)

    def read(self, memory: NDArray[Any]) -> NDArray[Any]:
        """The array of shape `dims` in a flat memory."""
        return unpack(memory.reshape(static_shape(self.format.physical_shape(self.dims))), self.format, self.dims)
