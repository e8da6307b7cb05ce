"""Convolutions in tiles: the algorithm, the sites, the constants, the ops, and the estimated times."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN, float32_type
from layoutopt.formats import Dim, Shape
from layoutopt.ir.constants import elements_at
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, Data, DType, Op, TensorType, Value

# Winograd's minimal filtering F(m, r) along one axis, in rational arithmetic.
#
# m outputs of a correlation with r taps take m + r - 1 products where the definition takes m * r:
#
#     y = A^T ((G g) * (B^T d))        y: m outputs, g: r taps, d: m + r - 1 inputs, *: element-wise product
#
# Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308); the
# construction from evaluation points is the Toom-Cook algorithm.

Row = tuple[Fraction, ...]

_PAIRS = (Fraction(1), Fraction(2))
"""The evaluation points, as pairs a, -a, whose products have common sums for even and differences for odd outputs. Each further
point costs a digit in float32, so F(6, 3) is not supported."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(outputs, taps).

    A component is one element of the element-wise product, for one evaluation point: the first for the point 0, two for each
    pair a, -a, and the last for infinity.

    Attributes:
        outputs: m.
        taps: r.
        pairs: the points a; components 1 + 2 * p and 2 + 2 * p are those of a = pairs[p] and -a.
        input_rows: B^T, m + r - 1 rows of m + r - 1.
        filter_rows: G, m + r - 1 rows of r.
        output_rows: A^T, m rows of m + r - 1.
    """

    outputs: int
    taps: int
    pairs: tuple[Fraction, ...]
    input_rows: tuple[Row, ...]
    filter_rows: tuple[Row, ...]
    output_rows: tuple[Row, ...]

    @property
    def num_components(self) -> int:
        """The number of components of a tile: m + r - 1."""
        return self.outputs + self.taps - 1

    @property
    def error_growth(self) -> float:
        """The rounding error of the least exact output of a tile, as root mean square, relative to that of the definition."""
        components = zip(self.input_rows, self.filter_rows, strict=True)
        squares = [sum(b * b for b in inputs) * sum(g * g for g in filters) for inputs, filters in components]
        errors = (sum(a * a * square for a, square in zip(row, squares, strict=True)) for row in self.output_rows)
        return math.sqrt(max(errors) / self.taps)

    def window(self, component: int) -> tuple[int, Row]:
        """The index of the first input of a tile that a component reads, and the coefficients from that input on."""
        transform_row = self.input_rows[component]
        used = [position for position, coefficient in enumerate(transform_row) if coefficient]
        return used[0], transform_row[used[0] : used[-1] + 1]


@cache
def minimal_filtering(outputs: int, taps: int) -> Algorithm | None:
    """F(outputs, taps) at the points 0, 1, -1, 2, -2 and infinity; None for sizes with another number of points."""
    pairs = _PAIRS[: (outputs + taps - 3) // 2]
    points = [Fraction(0), *(point for pair in pairs for point in (pair, -pair))]
    if outputs < 2 or taps < 2 or len(points) + 1 != outputs + taps - 1:
        return None
    inputs, filters = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        inputs.append((*_polynomial(others), Fraction(0)))
        filters.append(tuple(point**power / scale for power in range(taps)))
    inputs.append(_polynomial(points))
    filters.append(_unit(taps - 1, taps))
    columns = [tuple(point**power for power in range(outputs)) for point in points]
    columns.append(_unit(outputs - 1, outputs))
    rows = tuple(tuple(column[index] for column in columns) for index in range(outputs))
    return Algorithm(outputs, taps, pairs, tuple(inputs), tuple(filters), rows)


def _polynomial(roots: list[Fraction]) -> Row:
    """The coefficients of the product of all (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        pairs = zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        coefficients = [high - root * low for high, low in pairs]
    return tuple(coefficients)


def _unit(position: int, length: int) -> Row:
    return tuple(Fraction(int(index == position)) for index in range(length))


@dataclass(frozen=True, slots=True)
class ConvolutionAxis:
    """The parameters of a convolution along one axis of the image: extents, padding in front and behind, stride, dilation."""

    input: int
    output: int
    kernel: int
    front: int
    back: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True)
class Site:
    """A blocked convolution without groups, with a constant filter.

    Attributes:
        op: the convolution.
        x, filter, y: its input of shape (batch, channels, H, W), its packed filter, and its output.
        bias, residual: its optional operands; the residual has the storage of y.
        batch: the number of samples, or a symbolic extent.
        channels, filters: the numbers of input and output channels, multiples of the block.
        axes: rows and columns.
        activation: the attributes of the activation; empty if there is none.
    """

    op: Op
    x: Value
    filter: Value
    y: Value
    bias: Value | None
    residual: Value | None
    batch: Dim
    channels: int
    filters: int
    axes: tuple[ConvolutionAxis, ConvolutionAxis]
    activation: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class Tiles:
    """One axis in tiles of m outputs; without an algorithm, the axis is not tiled.

    before: 14 outputs        after: 4 tiles of 4 outputs, of which the last 2 are dropped
    """

    axis: ConvolutionAxis
    algorithm: Algorithm | None

    @property
    def outputs(self) -> int:
        """The number of outputs of a tile, m."""
        return self.algorithm.outputs if self.algorithm is not None else 1

    @property
    def num_components(self) -> int:
        """The number of components of a tile, each of which is one product."""
        return self.algorithm.num_components if self.algorithm is not None else 1

    @property
    def count(self) -> int:
        """The number of tiles; the last one may be cut."""
        return -(-self.axis.output // self.outputs)

    @property
    def product_axis(self) -> ConvolutionAxis:
        """The axis of the products: the axis itself if it is not tiled, else one element per tile."""
        return self.axis if self.algorithm is None else ConvolutionAxis(self.count, self.count, 1, 0, 0, 1, 1)

    def taps(self, component: int) -> tuple[tuple[float, ...], int, int]:
        """The input transform of a component as a convolution with stride m: its coefficients, padding in front and behind."""
        if self.algorithm is None:
            return (1.0,), 0, 0
        first, coefficients = self.algorithm.window(component)
        missing = max(0, first - self.axis.front)  # the window begins behind the first element
        taps = (0.0,) * missing + tuple(map(float, coefficients))
        front = self.axis.front - first + missing
        end = (self.count - 1) * self.outputs - front + len(taps)
        return taps, front, max(0, end - self.axis.input)


def site_of(op: Op, block: int) -> Site | None:
    """The properties of a blocked convolution that can be tiled; None for other ops."""
    if op.op_type != "Conv" or op.domain != DOMAIN or op.integer("group", 1) != 1 or len(op.inputs) > 4:
        return None
    x, filter, bias, residual, *_ = [*op.inputs, None, None, None, None]
    y = op.outputs[0]
    if x is None or filter is None or y is None or filter.data is None or filter.static_shape is None:
        return None
    filters, channels, *kernel = filter.static_shape
    source, result = x.shape, y.shape
    if source is None or result is None or len(source) != 4 or len(result) != 4 or len(kernel) != 2:
        return None
    extents = [dim for dim in (*source[1:], *result[1:]) if isinstance(dim, int)]
    if len(extents) != 6 or source[1] != channels or channels % block or filters % block:
        return None
    if residual is not None and residual.shape != result:
        return None
    padding = op.attributes.get("auto_pad", "NOTSET")
    if padding not in ("NOTSET", "VALID"):
        return None
    pads = (op.integers("pads") if padding == "NOTSET" else ()) or (0, 0, 0, 0)
    strides, dilations = op.integers("strides") or (1, 1), op.integers("dilations") or (1, 1)
    rows, columns = (
        ConvolutionAxis(
            extents[1 + position],
            extents[4 + position],
            kernel[position],
            pads[position],
            pads[2 + position],
            strides[position],
            dilations[position],
        )
        for position in (0, 1)
    )
    activation: dict[str, Attribute] = {
        name: op.attributes[name] for name in ("activation", "activation_params") if name in op.attributes
    }
    return Site(op, x, filter, y, bias, residual, source[0], channels, filters, (rows, columns), activation)


def can_be_tiled(axis: ConvolutionAxis, algorithm: Algorithm) -> bool:
    """Whether an algorithm computes this axis, which must be at least as long as a tile."""
    fits = axis.kernel == algorithm.taps and axis.stride == axis.dilation == 1 and axis.output >= algorithm.outputs
    return fits and 0 <= axis.front < axis.kernel and 0 <= axis.back < axis.kernel


# Estimated times of a convolution in seconds, direct and in tiles.
#
#     convolutions   operations at the rate of the kernel, and bytes of the filter at its bandwidth
#     transforms     bytes read and written at the bandwidth of the cache or of memory, and a constant per op
#
# Against 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), each in five tilings: the estimated ratio
# of the two times is 5 % too large on average and within 10 % of the measured one, and the chosen tiling takes 1 % longer
# than the best.

_ELEMENT = 4  # bytes


@dataclass(frozen=True, slots=True)
class MachineRates:
    """The measured rates of a machine, and the thresholds of the rewrite.

    The defaults are fitted to one thread of an AMD EPYC (family 26) with AVX-512, blocks of 16, onnxruntime 1.31.1. With
    more threads all rates grow, and their ratios, on which the choice depends, stay about the same.

    Attributes:
        flops: the rate of blocked convolutions, in operations per second.
        filter_bandwidth: bytes of filters read per second.
        cache_bandwidth: bytes per second that transforms read and write if the arrays fit the cache.
        memory_bandwidth: the same for larger arrays.
        cache_bytes: the largest size of input and output that fits the cache.
        op_seconds: the constant time of an op: 0.6 us measured, and a share of the 25 us that it adds to loading the model.
        min_speedup: the smallest estimated speed-up for which a convolution is rewritten.
        min_measured_speedup: the smallest measured speed-up, where the convolution and its tilings are timed.
        tie_ratio: the ratio up to which two estimates count as equal.
        max_filter_growth: the largest permitted ratio of the sizes of a transformed filter and the filter.
    """

    flops: float = 226e9
    filter_bandwidth: float = 25e9
    cache_bandwidth: float = 60e9
    memory_bandwidth: float = 35e9
    cache_bytes: float = 12e6
    op_seconds: float = 1.5e-6
    min_speedup: float = 1.1
    min_measured_speedup: float = 1.1
    tie_ratio: float = 1.05
    max_filter_growth: float = 4.0


MACHINE_RATES = {16: MachineRates(), 8: MachineRates(min_speedup=1.2)}
"""Rates by block size. Machines without AVX-512 were not measured: they compute at half the rate or less with the same memory,
so these rates are conservative, and the threshold is higher."""

FAST_SESSIONS_OP_SECONDS = 3.1e-6
"""The constant time of an op for `sessions="fast"`: 0.6 us in a run, and a tenth of the 25 us that it adds to a session."""


def direct_convolution_seconds(site: Site, rates: MachineRates) -> float:
    """The estimated time of the direct convolution, which multiplies every tap."""
    rows, columns = site.axes
    return _product_seconds(site, rows.output * columns.output, rows.kernel * columns.kernel, rates)


def winograd_seconds(site: Site, tiles: tuple[Tiles, Tiles], rates: MachineRates) -> float:
    """The estimated time of the convolution in tiles."""
    rows, columns = tiles
    num_components = rows.num_components * columns.num_components
    taps = prod(each.axis.kernel for each in tiles if each.algorithm is None)
    product = _product_seconds(site, rows.count * columns.count, taps, rates)
    transform_bytes = _batch(site) * (_input_bytes(site, tiles) + _output_bytes(site, tiles))
    image = site.channels * rows.axis.input * columns.axis.input + site.filters * rows.axis.output * columns.axis.output
    fits_cache = _ELEMENT * _batch(site) * image <= rates.cache_bytes
    ops = 2 * num_components + sum(_combinations(tiles)) + rows.outputs * (columns.outputs + 1) + 2
    bandwidth = rates.cache_bandwidth if fits_cache else rates.memory_bandwidth
    return num_components * product + transform_bytes / bandwidth + ops * rates.op_seconds


def filter_growth(tiles: tuple[Tiles, Tiles]) -> float:
    """The ratio of the sizes of the transformed filters and the filter."""
    return prod(each.num_components / each.axis.kernel for each in tiles if each.algorithm is not None)


def _product_seconds(site: Site, pixels: int, taps: int, rates: MachineRates) -> float:
    weights = site.channels * site.filters * taps
    return 2 * weights * pixels * _batch(site) / rates.flops + _ELEMENT * weights / rates.filter_bandwidth


def _input_bytes(site: Site, tiles: tuple[Tiles, Tiles]) -> float:
    """The bytes that the input transforms read and write, for one image. A window of taps reads no element twice."""
    read = prod(
        sum(
            min(each.axis.input, len(each.taps(component)[0]) * each.product_axis.input)
            for component in range(each.num_components)
        )
        for each in tiles
    )
    written = prod(each.num_components * each.product_axis.input for each in tiles)
    return _ELEMENT * site.channels * (read + written)


def _output_bytes(site: Site, tiles: tuple[Tiles, Tiles]) -> float:
    """The bytes that the output transforms read and write, for one image."""
    rows, columns = tiles
    phase = site.filters * rows.count * columns.count
    whole = phase * rows.outputs * columns.outputs
    copies = sum(
        2 * (each.algorithm is not None) + 2 * (each.count * each.outputs > each.axis.output) for each in tiles
    )
    copies += 3 * (site.residual is not None)
    return _ELEMENT * (3 * phase * sum(_combinations(tiles)) + whole * copies)


def _combinations(tiles: tuple[Tiles, Tiles]) -> tuple[int, int]:
    """The numbers of sums of two arrays that the output transform takes, over rows and over columns."""
    rows, columns = tiles
    both = rows.algorithm is not None and columns.algorithm is not None
    return _sums(rows) * columns.outputs, _sums(columns) * rows.num_components + both * 2 * columns.outputs


def _sums(tiles: Tiles) -> int:
    """The number of sums over one axis that no product computes: two for each pair of points, and those over pairs."""
    if tiles.algorithm is None:
        return 0
    pairs = len(tiles.algorithm.pairs)
    return 2 * pairs + (pairs - 1) * tiles.outputs


def _batch(site: Site) -> int:
    """The batch; 1 if it is symbolic."""
    return site.batch if isinstance(site.batch, int) else 1


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


# Writes a Winograd convolution with onnxruntime's own kernels, on blocked arrays.
#
#     B^T d      depthwise convolutions with stride m, whose padding does the borders
#     products   convolutions along the axes that are not tiled, 1x1 if both are
#     A^T        sums and differences, and depthwise 1x1 convolutions that add: sum + factor * x
#     tiles      Concat on the arrays reshaped so that the outputs of a tile are an axis
#
# A phase is the array of one output of every tile: of 4 x 4 outputs there are 16 phases, which are interleaved at the
# end. The products of the points 0 and infinity add the other terms of the first and of the last output and apply the
# activation.

_DECLARATION = re.compile(r"(.*)/winograd/(\d+)of(\d+)x(\d+)of(\d+)/")

Arrays = list[Value]
ComponentFunction = Callable[[int, Arrays | None, bool], Arrays]
"""Computes a component from its index, the addends of its elements, and whether the sums are results, to be activated."""


def error_growths(names: Iterable[str]) -> dict[str, float]:
    """The growth of the rounding error by the name of a convolution's result, declared by the names of what computes it."""
    found: dict[str, float] = {}
    for name in names:
        if match := _DECLARATION.match(name):
            stem, *sizes = match.groups()
            pairs = zip(map(int, sizes[::2]), map(int, sizes[1::2]), strict=True)
            tiled = (minimal_filtering(outputs, taps) for outputs, taps in pairs)
            found[stem] = prod(each.error_growth for each in tiled if each is not None)
    return found


class WinogradRewriter:
    """Replaces one convolution by its Winograd form."""

    def __init__(self, graph: Graph, constants: Constants, site: Site, tiles: tuple[Tiles, Tiles]) -> None:
        """Rewrite `site` in `tiles` along rows and columns."""
        self._graph = graph
        self._constants = constants
        self._site = site
        self._tiles = tiles
        self._phase_shape: Shape = (
            site.batch,
            site.filters,
            tiles[0].product_axis.output,
            tiles[1].product_axis.output,
        )

    def run(self) -> None:
        """Replace the convolution."""
        is_final = self._site.residual is None
        phases = self._outputs(self._tiles[0], self._columns, None, is_final)
        result = self._interleaved(phases)
        if not is_final:
            result = self._with_residual(result)
        self._graph.replace_value(self._site.y, result)
        if not self._graph.is_used(self._site.filter):
            self._graph.remove_value(self._site.filter)

    def _columns(self, row: int, addends: Arrays | None, is_final: bool) -> Arrays:
        """Component `row` along the rows: one array for every output of a tile of columns."""

        def product(column: int, added: Arrays | None, is_last: bool) -> Arrays:
            return [self._product((row, column), added[0] if added else None, is_last)]

        separate = [[each] for each in addends] if addends is not None else None
        return [each for (each,) in self._outputs(self._tiles[1], product, separate, is_final)]

    def _outputs(
        self, tiles: Tiles, produce: ComponentFunction, addends: list[Arrays] | None, is_final: bool
    ) -> list[Arrays]:
        """The output transform A^T: every output of a tile from the components along an axis, plus its addends."""
        algorithm = tiles.algorithm
        if algorithm is None:
            return [produce(0, addends[0] if addends is not None else None, is_final)]
        halves: list[tuple[Arrays, Arrays]] = []
        for pair in range(len(algorithm.pairs)):
            plus, minus = (produce(index + 2 * pair, None, False) for index in (1, 2))
            halves.append((self._each("Add", plus, minus), self._each("Sub", plus, minus)))
        found = []
        for output in range(algorithm.outputs):
            edge_component = {0: 0, algorithm.outputs - 1: algorithm.num_components - 1}.get(output)
            terms = [(point**output, half[output % 2]) for point, half in zip(algorithm.pairs, halves, strict=True)]
            total = self._sum(
                terms, addends[output] if addends is not None else None, is_final and edge_component is None
            )
            found.append(total if edge_component is None else produce(edge_component, total, is_final))
        return found

    def _sum(self, terms: Sequence[tuple[Fraction, Arrays]], addends: Arrays | None, is_final: bool) -> Arrays:
        """The sum of the terms times their factors, the first of which is 1, and of the addends, activated if `is_final`."""
        total = terms[0][1] if addends is None else self._each("Add", terms[0][1], addends)
        for index, (factor, term) in enumerate(terms[1:], 2):
            is_last = is_final and index == len(terms)
            if factor == 1 and not is_last:
                total = self._each("Add", total, term)
            else:
                total = [self._add_multiple(a, b, factor, is_last) for a, b in zip(total, term, strict=True)]
        return total

    # --- single ops ----------------------------------------------------------------------------------------------

    def _product(self, component: tuple[int, int], added: Value | None, is_final: bool) -> Value:
        """The convolution of one component."""
        site = self._site
        ones = tuple(int(each.algorithm is not None) for each in self._tiles)
        bias = site.bias if component == ones else None  # every output has the point 1 with factor 1
        rows, columns = (each.product_axis for each in self._tiles)
        return self._conv(
            (self._transformed(component), self._constants.filter(site, self._tiles, component), bias, added),
            self._phase_shape,
            is_final,
            group=1,
            kernel_shape=(rows.kernel, columns.kernel),
            pads=(rows.front, columns.front, rows.back, columns.back),
            strides=(rows.stride, columns.stride),
            dilations=(rows.dilation, columns.dilation),
        )

    def _transformed(self, component: tuple[int, int]) -> Value:
        """The transformed input of one component."""
        site = self._site
        (rows, top, bottom), (columns, left, right) = (
            tiles.taps(index) for tiles, index in zip(self._tiles, component, strict=True)
        )
        coefficients = np.outer(rows, columns)
        return self._conv(
            (site.x, self._constants.depthwise(site.channels, coefficients), None, None),
            (site.batch, site.channels, *(each.product_axis.input for each in self._tiles)),
            False,
            group=site.channels,
            kernel_shape=coefficients.shape,
            pads=(top, left, bottom, right),
            strides=(self._tiles[0].outputs, self._tiles[1].outputs),
            dilations=(1, 1),
        )

    def _add_multiple(self, total: Value, term: Value, factor: Fraction | int, is_final: bool) -> Value:
        """total + factor * term."""
        assert total.shape is not None
        filter = self._constants.depthwise(self._site.filters, np.full((1, 1), float(factor)))
        ones = {"strides": (1, 1), "dilations": (1, 1), "kernel_shape": (1, 1), "pads": (0, 0, 0, 0)}
        return self._conv((term, filter, None, total), total.shape, is_final, group=self._site.filters, **ones)

    def _conv(self, inputs: Sequence[Value | None], shape: Shape, is_final: bool, **fields: Attribute) -> Value:
        operands = list(inputs)
        while operands[-1] is None:
            operands.pop()
        return self._op("Conv", operands, shape, DOMAIN, **fields, **(self._site.activation if is_final else {}))

    def _each(self, kind: str, first: Arrays, second: Arrays) -> Arrays:
        return [self._op(kind, (a, b), a.shape) for a, b in zip(first, second, strict=True)]

    def _op(
        self, kind: str, inputs: Sequence[Value | None], shape: Shape | None, domain: str = "", **fields: Attribute
    ) -> Value:
        assert shape is not None
        sizes = (f"{each.outputs}of{each.axis.kernel if each.algorithm else 1}" for each in self._tiles)
        stem = f"{self._site.y.name}/winograd/{'x'.join(sizes)}/{kind}"
        full = f"{domain}::{kind}" if domain else kind
        return self._graph.new_result(full, tuple(inputs), float32_type(shape), stem, self._site.op, attributes=fields)

    # --- interleaving the tiles ----------------------------------------------------------------------------------

    def _interleaved(self, phases: list[Arrays]) -> Value:
        """The array of y from one array for every output of a tile."""
        site, block, (rows, columns) = self._site, self._constants.block, self._tiles
        images = site.batch * (site.filters // block)
        tiles = images * rows.product_axis.output
        lines = [self._interleaved_along(phase, tiles, columns, block) for phase in phases]
        whole = self._interleaved_along(lines, images, rows, columns.axis.output * block)
        return self._reshape(whole, (site.batch, site.filters, rows.axis.output, columns.axis.output))

    def _interleaved_along(self, pieces: Arrays, outer: Dim, tiles: Tiles, inner: int) -> Value:
        """(outer, tiles, inner), one for every output of a tile  -->  (outer, outputs of all tiles, inner)."""
        if tiles.algorithm is None:
            return pieces[0]
        all_tiles = outer * tiles.count
        views = [self._reshape(piece, (all_tiles, 1, inner)) for piece in pieces]
        whole = self._op("Concat", views, (all_tiles, len(pieces), inner), axis=1)
        if tiles.axis.output == tiles.count * tiles.outputs:
            return whole
        return self._prefix(self._reshape(whole, (outer, tiles.count * tiles.outputs, inner)), tiles.axis.output)

    def _prefix(self, x: Value, count: int) -> Value:
        """The first `count` elements along axis 1."""
        assert x.shape is not None
        shape = (x.shape[0], count, x.shape[2])
        if self._graph.opsets[""] < 10:
            return self._op("Slice", (x,), shape, starts=(0,), ends=(count,), axes=(1,))
        bounds = [self._constants.integers(number) for number in (0, count, 1)]
        return self._op("Slice", (x, *bounds), shape)

    def _reshape(self, x: Value, shape: Shape) -> Value:
        extents = [dim if isinstance(dim, int) else -1 for dim in shape]
        return self._op("Reshape", (x, self._constants.integers(*extents)), shape)

    def _with_residual(self, result: Value) -> Value:
        residual = self._site.residual
        assert residual is not None
        if not self._site.activation:
            return self._op("Add", (result, residual), result.shape)
        return self._add_multiple(residual, result, 1, True)
