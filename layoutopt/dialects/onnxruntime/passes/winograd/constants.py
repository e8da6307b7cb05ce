"""The constants of a Winograd convolution, computed whenever they are read, with at most one source filter in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles
from layoutopt.ir.constants import elements_at
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Data, DType, TensorType, Value


@dataclass(slots=True)
class CachedReader:
    """Reads constants and keeps the last one in memory, since a file contains the components of one filter consecutively."""

    data: Data | None = None
    array: Array | None = None

    def read(self, data: Data) -> Array:
        """The elements of a constant."""
        if self.array is None or self.data is not data:
            self.data, self.array = None, None  # so that two are never in memory at once
            self.data, self.array = data, data.numpy()
        return self.array


class TransformedFilter:
    """One component of a packed filter: OIHW{b}i{b}o, with axes of the kernel multiplied by rows of G."""

    def __init__(
        self,
        data: Data,
        shape: tuple[int, ...],
        block: int,
        transform_rows: Sequence[Array | None],
        reader: CachedReader,
    ) -> None:
        """Transform a filter declared as (O, I, H, W).

        Args:
            data: the packed filter.
            shape: its declared shape.
            block: channels of a block.
            transform_rows: a row of G for H and one for W; None for an axis without tiles.
            reader: reads the filter.
        """
        self._data = data
        self._reader = reader
        filters, _, *kernel = shape
        coefficients, taps, after = np.ones(1), 1, block**2
        for transform_row, extent in zip(reversed(transform_rows), reversed(kernel), strict=True):
            if transform_row is not None:
                coefficients, taps = np.multiply.outer(transform_row, coefficients).ravel(), taps * extent
            elif taps == 1:
                after *= extent
        size = int(np.prod(shape))
        # The axes are (block of filters, before, tap, after); one block of filters at a time fits the cache.
        self._source_shape = (filters // block, size // (filters // block * taps * after), taps, after)
        self._coefficients = coefficients
        pairs = zip(transform_rows, kernel, strict=True)
        self.shape = (*shape[:2], *(1 if transform_row is not None else extent for transform_row, extent in pairs))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 4 * int(np.prod(self.shape))

    def numpy(self) -> Array:
        """The packed filter, computed in float64 and rounded once."""
        blocks, before, _, after = self._source_shape
        source = self._reader.read(self._data).reshape(self._source_shape)
        result = np.empty((blocks, before, after), dtype=np.float32)
        for position, each in enumerate(source):
            result[position] = self._coefficients @ each.astype(np.float64)
        return result.reshape(self.shape)

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened packed filter."""
        blocks, before, taps, after = self._source_shape
        first, second, last = np.unravel_index(positions, (blocks, before, after))
        rows = (np.ravel_multi_index((first, second), (blocks, before)) * taps)[None] + np.arange(taps)[:, None]
        found = elements_at(self._data, (rows * after + last).ravel()).reshape(taps, -1)
        return np.asarray(self._coefficients @ found.astype(np.float64), np.float32)


class UniformDepthwiseFilter:
    """A depthwise filter (C, 1, H, W) with the same H x W coefficients for every channel, packed OIHW{b}o."""

    def __init__(self, channels: int, block: int, coefficients: Array) -> None:
        """Repeat `coefficients` for all channels."""
        self._coefficients = coefficients
        self._block = block
        self.shape = (channels, 1, *coefficients.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 4 * int(np.prod(self.shape))

    def numpy(self) -> Array:
        """The packed filter."""
        extents = (self.shape[0] // self._block, *self._coefficients.shape, self._block)
        broadcast = np.broadcast_to(self._coefficients[:, :, None], extents)
        return broadcast.astype(np.float32).reshape(self.shape)


class Constants:
    """The constants of all Winograd convolutions of a graph; equal ones are shared."""

    def __init__(self, graph: Graph, block: int) -> None:
        """Add constants to `graph`, for blocks of `block` channels."""
        self.block = block
        self._graph = graph
        self._values: dict[object, Value] = {}
        self._reader = CachedReader()

    def filter(self, site: Site, tiles: tuple[Tiles, Tiles], component: tuple[int, int]) -> Value:
        """The transformed filter of a component, given by its indices along rows and columns."""
        exact_rows = [
            None if each.algorithm is None else each.algorithm.filter_rows[index]
            for each, index in zip(tiles, component, strict=True)
        ]
        transform_rows = [None if row is None else np.asarray([*map(float, row)]) for row in exact_rows]
        assert site.filter.data is not None and site.filter.static_shape is not None
        data = TransformedFilter(site.filter.data, site.filter.static_shape, self.block, transform_rows, self._reader)
        return self._shared((site.filter, *exact_rows), f"{site.filter.name}/winograd", data, data.shape)

    def depthwise(self, channels: int, coefficients: Array) -> Value:
        """A depthwise filter with the same coefficients for all channels."""
        data = UniformDepthwiseFilter(channels, self.block, coefficients)
        key = (channels, coefficients.shape, coefficients.tobytes())
        return self._shared(key, "winograd/transform", data, data.shape)

    def integers(self, *numbers: int) -> Value:
        """A vector of int64."""
        array = np.asarray(numbers, dtype=np.int64)
        return self._shared(numbers, "winograd/shape", ArrayData(array), array.shape, DType.INT64)

    def _shared(
        self, key: object, name: str, data: Data, shape: tuple[int, ...], dtype: DType = DType.FLOAT32
    ) -> Value:
        if key not in self._values:
            self._values[key] = self._graph.new_value(name, TensorType(dtype, shape), data=data)
        return self._values[key]
