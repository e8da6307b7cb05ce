"""Winograd's minimal filtering: convolutions with fewer multiplications, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of four
rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np

from layoutopt.dialects.onnxruntime.writers import DOMAIN, float32_type
from layoutopt.formats import Dim, Shape
from layoutopt.ir.constants import elements_at, stored, stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, Data, DType, Op, TensorType, Value
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import Pass, PassContext

# Minimal filtering F(m, r) along one axis, in rational arithmetic.
#
# m outputs of a correlation with r taps take m + r - 1 products where the definition takes m * r:
#
#     y = A^T ((G g) * (B^T d))        y: m outputs, g: r taps, d: m + r - 1 inputs, *: element-wise product
#
# The construction from evaluation points is the Toom-Cook algorithm.
Row: TypeAlias = tuple[Fraction, ...]

_PAIRS = (Fraction(1), Fraction(2))
"""The evaluation points, as pairs a, -a, whose products have common sums for even and differences for odd outputs. Each further
point costs a digit in float32, so F(6, 3) is not supported."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(outputs, taps).

    A component is one element of the element-wise product, for one evaluation point: the first for the point 0, two for each
    pair a, -a, and the last for infinity.

    Attributes:
        outputs, taps: m and r.
        pairs: the points a; components 1 + 2 * p and 2 + 2 * p are those of a = pairs[p] and -a.
        input_rows, filter_rows, output_rows: B^T, G and A^T.
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
        inputs, filters, outputs = (
            np.square(np.array(rows, np.float64)) for rows in (self.input_rows, self.filter_rows, self.output_rows)
        )
        return math.sqrt((outputs @ (inputs.sum(axis=1) * filters.sum(axis=1))).max() / self.taps)

    def window(self, component: int) -> tuple[int, Row]:
        """The index of the first input of a tile that a component reads, and the coefficients from that input on."""
        row = self.input_rows[component]
        used = [position for position, coefficient in enumerate(row) if coefficient]
        return used[0], row[used[0] : used[-1] + 1]


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
        inputs.append((*_polynomial(others), Fraction(0)))
        filters.append(tuple(point**power / prod(point - other for other in others) for power in range(taps)))
    inputs.append(_polynomial(points))
    filters.append(_powers_at_infinity(taps))
    columns = [*(tuple(point**power for power in range(outputs)) for point in points), _powers_at_infinity(outputs)]
    return Algorithm(outputs, taps, pairs, tuple(inputs), tuple(filters), tuple(zip(*columns, strict=True)))


def _polynomial(roots: Iterable[Fraction]) -> Row:
    """The coefficients of the product of all (x - root), lowest power first."""
    coefficients: Row = (Fraction(1),)
    for root in roots:
        pairs = zip((Fraction(0), *coefficients), (*coefficients, Fraction(0)), strict=True)
        coefficients = tuple(high - root * low for high, low in pairs)
    return coefficients


def _powers_at_infinity(length: int) -> Row:
    return (*(Fraction(0),) * (length - 1), Fraction(1))


# Convolutions that can be tiled, and their tiles.


@dataclass(frozen=True, slots=True)
class ConvolutionAxis:
    """The parameters of a convolution along one axis of the image: extents, padding in front and behind, stride, dilation."""

    input: int
    output: int
    kernel: int
    front: int = 0
    back: int = 0
    stride: int = 1
    dilation: int = 1


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
        return self.axis if self.algorithm is None else ConvolutionAxis(self.count, self.count, 1)

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


Tiling: TypeAlias = tuple[Tiles, Tiles]  # of rows and columns


@dataclass(frozen=True, slots=True)
class Site:
    """A blocked convolution without groups, with a constant, packed filter.

    The numbers of input and output channels, `channels` and `filters`, are multiples of the block. The residual has the storage
    of y. `axes` are rows and columns, `activation` the attributes of the activation, if there is one.
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

    @property
    def known_batch(self) -> int:
        """The batch; 1 if it is symbolic."""
        return self.batch if isinstance(self.batch, int) else 1

    @property
    def shape_key(self) -> Hashable:
        """Everything that the time of the convolution depends on, besides its elements."""
        operands = self.bias is not None, self.residual is not None
        return self.batch, self.channels, self.filters, self.axes, operands, tuple(sorted(self.activation.items()))


def site_of(op: Op, block: int) -> Site | None:
    """The properties of a blocked convolution that can be tiled; None for other ops."""
    if op.op_type != "Conv" or op.domain != DOMAIN or op.integer("group", 1) != 1 or len(op.inputs) > 4:
        return None
    x, filter, bias, residual, *_ = [*op.inputs, None, None, None, None]
    y = op.outputs[0]
    if x is None or filter is None or y is None or filter.data is None or filter.static_shape is None:
        return None
    if x.shape is None or y.shape is None or not len(filter.static_shape) == len(x.shape) == len(y.shape) == 4:
        return None
    filters, channels, *kernel = filter.static_shape
    inputs, outputs = ([dim for dim in each.shape[1:] if isinstance(dim, int)] for each in (x, y) if each.shape)
    if len(inputs) < 3 or len(outputs) < 3 or inputs[0] != channels or channels % block or filters % block:
        return None
    padding = op.attributes.get("auto_pad", "NOTSET")
    if (residual is not None and residual.shape != y.shape) or padding not in ("NOTSET", "VALID"):
        return None
    pads = (op.integers("pads") if padding == "NOTSET" else ()) or (0, 0, 0, 0)
    steps = op.integers("strides") or (1, 1), op.integers("dilations") or (1, 1)
    rows, columns = (
        ConvolutionAxis(*each) for each in zip(inputs[1:], outputs[1:], kernel, pads[:2], pads[2:], *steps, strict=True)
    )
    activation = {name: each for name, each in op.attributes.items() if name in ("activation", "activation_params")}
    return Site(op, x, filter, y, bias, residual, x.shape[0], channels, filters, (rows, columns), activation)


def tilings(site: Site) -> list[Tiling]:
    """The ways to cut the image of a convolution into tiles.

    None is wider than high if rows can be tiled, because interleaving columns moves blocks one by one, which takes longer.
    """
    rows, columns = ([Tiles(axis, each) for each in (None, *_algorithms(axis))] for axis in site.axes)
    pairs = [(first, second) for first in rows for second in columns if first.algorithm or second.algorithm]
    return [pair for pair in pairs if len(rows) == 1 or pair[0].outputs >= pair[1].outputs]


def _algorithms(axis: ConvolutionAxis) -> list[Algorithm]:
    """The algorithms for an axis, which must be at least as long as a tile."""
    if axis.stride != 1 or axis.dilation != 1 or not (0 <= axis.front < axis.kernel and 0 <= axis.back < axis.kernel):
        return []
    found = (minimal_filtering(outputs, axis.kernel) for outputs in (2, 4) if outputs <= axis.output)
    return [each for each in found if each is not None]


def filter_growth(tiles: Tiling) -> float:
    """The ratio of the sizes of the transformed filters and the filter."""
    return prod(each.num_components / each.axis.kernel for each in tiles if each.algorithm is not None)


# Times of a convolution in seconds, direct and in tiles: estimated, or measured on a graph of its own.
#
#     convolutions   operations at the rate of the kernel, and bytes of the filter at its bandwidth
#     transforms     bytes read and written at the bandwidth of the cache or of memory, and a constant per op
#
# Against 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), in five tilings, the estimated ratio of the
# two times is 5 % too large on average and within 10 % of the measured one; the chosen tiling takes 1 % longer than the best.

_ELEMENT = 4  # bytes
_MEASURED_TILINGS = 3
_MEASURED_RATIO = 2.0  # of an estimate to the least one
_TIE_RATIO = 1.05  # of two times that count as equal


@dataclass(frozen=True, slots=True)
class MachineRates:
    """The measured rates of a machine, and the thresholds of the rewrite.

    The defaults are fitted to one thread of an AMD EPYC (family 26) with AVX-512, blocks of 16, onnxruntime 1.31.1. With
    more threads all rates grow, and their ratios, on which the choice depends, stay about the same.
    """

    flops: float = 226e9  # operations of blocked convolutions per second
    filter_bandwidth: float = 25e9  # bytes of filters read per second
    cache_bandwidth: float = 60e9  # bytes per second that transforms read and write if the arrays fit the cache
    memory_bandwidth: float = 35e9  # the same for larger arrays
    cache_bytes: float = 12e6  # the largest size of input and output that fits the cache
    op_seconds: float = 1.5e-6  # of any op: 0.6 us measured, and a share of the 25 us that it adds to loading the model
    min_speedup: float = 1.1  # the smallest estimated speed-up for which a convolution is rewritten
    min_measured_speedup: float = 1.1  # the same where the convolution and its tilings are timed


MACHINE_RATES = {16: MachineRates(), 8: MachineRates(min_speedup=1.2)}
"""Rates by block size. Machines without AVX-512 were not measured: they compute at half the rate or less with the same memory,
so these rates are conservative, and the threshold is higher."""

_FAST_SESSIONS_OP_SECONDS = 3.1e-6
"""The constant time of an op for `sessions="fast"`: 0.6 us in a run, and a tenth of the 25 us that it adds to a session."""


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of one convolution, direct and in tilings, and the smallest speed-up for which it is rewritten."""

    direct: float
    tiled: Mapping[Tiling, float]
    min_speedup: float

    @property
    def best(self) -> Tiling | None:
        """The tiling to use; None if no tiling is faster than the direct convolution.

        Of tilings with about equal times, the one with the smallest filters, which is also the most accurate.
        """
        limit = min(min(self.tiled.values(), default=0.0) * _TIE_RATIO, self.direct / self.min_speedup)
        return min((each for each in self.tiled if self.tiled[each] <= limit), key=filter_growth, default=None)

    @property
    def promising(self) -> list[Tiling]:
        """The tilings to time: at most three, whose estimates are at most twice that of the fastest one; none if that is slow.

        The margin is wide, because all machines with the same block size have the same estimates.
        """
        least = min(self.tiled.values(), default=math.inf)
        fastest = sorted(self.tiled, key=self.tiled.__getitem__)[:_MEASURED_TILINGS]
        is_close = least <= _MEASURED_RATIO * self.direct
        return [each for each in fastest if is_close and self.tiled[each] <= _MEASURED_RATIO * least]


def estimated_times(site: Site, rates: MachineRates) -> Times:
    """The estimated times of a convolution."""
    rows, columns = site.axes
    direct = _product_seconds(site, rows.output * columns.output, rows.kernel * columns.kernel, rates)
    return Times(direct, {each: _tiled_seconds(site, each, rates) for each in tilings(site)}, rates.min_speedup)


def _product_seconds(site: Site, pixels: int, taps: int, rates: MachineRates) -> float:
    weights = site.channels * site.filters * taps
    return 2 * weights * pixels * site.known_batch / rates.flops + _ELEMENT * weights / rates.filter_bandwidth


def _tiled_seconds(site: Site, tiles: Tiling, rates: MachineRates) -> float:
    rows, columns = tiles
    image = site.channels * rows.axis.input * columns.axis.input + site.filters * rows.axis.output * columns.axis.output
    fits_cache = _ELEMENT * site.known_batch * image <= rates.cache_bytes
    num_components, outputs = rows.num_components * columns.num_components, rows.outputs * columns.outputs
    taps = prod(each.axis.kernel for each in tiles if each.algorithm is None)
    product = _product_seconds(site, rows.count * columns.count, taps, rates)
    # Elements that the input transforms read and write, for one image. A window of taps reads no element twice.
    windows = ([len(each.taps(component)[0]) for component in range(each.num_components)] for each in tiles)
    read, written = 1, num_components
    for each, lengths in zip(tiles, windows, strict=True):
        extent = each.product_axis.input
        read *= sum(min(each.axis.input, length * extent) for length in lengths)
        written *= extent
    # Sums of two arrays in the output transform, and elements that they and the interleaving of the tiles read and write.
    sums = _sums(rows) * columns.outputs + _sums(columns) * rows.num_components
    sums += (rows.algorithm is not None and columns.algorithm is not None) * 2 * columns.outputs
    cut = [each for each in tiles if each.count * each.outputs > each.axis.output]
    copies = 2 * sum(each.algorithm is not None for each in tiles) + 2 * len(cut) + 3 * (site.residual is not None)
    combined = site.filters * rows.count * columns.count * (3 * sums + outputs * copies)
    nbytes = _ELEMENT * site.known_batch * (site.channels * (read + written) + combined)
    ops = 2 * num_components + sums + rows.outputs * (columns.outputs + 1) + 2
    bandwidth = rates.cache_bandwidth if fits_cache else rates.memory_bandwidth
    return num_components * product + nbytes / bandwidth + ops * rates.op_seconds


def _sums(tiles: Tiles) -> int:
    """The number of sums over one axis that no product computes: two for each pair of points, and those over pairs."""
    pairs = len(tiles.algorithm.pairs) if tiles.algorithm is not None else 0
    return 2 * pairs + (pairs - 1) * tiles.outputs if pairs else 0


def convolution_graph(site: Site, tiling: Tiling | None, block: int) -> Graph:
    """A lowered graph of one convolution, in tiles unless `tiling` is None."""
    graph = Graph("convolution", {"": 18, DOMAIN: 1})
    graph.stage = "lowered"
    copies: dict[Value, Value] = {}
    for index, value in enumerate(site.op.inputs):
        if value is not None and value not in copies:
            copies[value] = graph.add_value(Value(f"x{index}", value.type, data=value.data))
    graph.inputs += [each for each in copies.values() if each.data is None]
    y = graph.add_value(Value("y", site.y.type))
    op = site.op.copy(tuple(value and copies[value] for value in site.op.inputs), (y,), name="convolution", order=())
    graph.add_op(op)
    graph.outputs.append(y)
    copy = site_of(op, block)
    if tiling is not None and copy is not None:
        WinogradRewriter(graph, Constants(graph, block), copy, tiling).run()
    return graph


def alternatives(graph: Graph, block: int) -> tuple[Iterable[Graph], float]:
    """The promising tilings of a lowered graph of one convolution, and the estimated speed-up of the one that is chosen."""
    site = site_of(graph.ops[0], block) if block and len(graph.ops) == 1 else None
    if site is None or not isinstance(site.batch, int) or block not in MACHINE_RATES:
        return (), 1.0
    times = estimated_times(site, MACHINE_RATES[block])
    speed_up = times.direct / times.tiled[times.best] if times.best is not None else 1.0
    return (convolution_graph(site, tiling, block) for tiling in times.promising), speed_up


# The convolutions to rewrite within the limit on the growth of the file.

_NODE_BYTES = 200  # of a node in the file


@dataclass(frozen=True, slots=True)
class TilingOption:
    """One way to tile one convolution of a graph, and the estimated gain of one run of the model in seconds."""

    graph: Graph
    site: Site
    tiles: Tiling
    seconds: float

    @property
    def nbytes(self) -> int:
        """The growth of the file in bytes with this option alone."""
        return total_bytes((self,))


def select(options: Sequence[TilingOption], budget: float) -> dict[Op, TilingOption]:
    """One option for each convolution, or none, so that the file grows by no more than `budget` bytes.

    This knapsack problem is solved greedily: options are taken in the order of seconds per byte, and an option replaces another
    one of the same convolution if it gains more and fits. With tens of small items the result is close to the optimum.
    """
    chosen: dict[Op, TilingOption] = {}
    for option in sorted(options, key=lambda each: each.seconds / max(1, each.nbytes), reverse=True):
        before, changed = chosen.get(option.site.op), {**chosen, option.site.op: option}
        if (before is None or before.seconds < option.seconds) and total_bytes(changed.values()) <= budget:
            chosen = changed
    return chosen


def total_bytes(chosen: Iterable[TilingOption]) -> int:
    """The growth of the file in bytes: shared filters count once, and originals without other readers are removed."""
    growth, transformed, readers = 0, dict[Hashable, int](), Counter[tuple[Graph, Value]]()
    for option in chosen:
        filter, algorithms = option.site.filter, tuple(each.algorithm for each in option.tiles)
        assert filter.data is not None
        transformed[option.graph, filter, algorithms] = int(filter.data.nbytes * filter_growth(option.tiles))
        readers[option.graph, filter] += 1
        growth += 4 * _NODE_BYTES * prod(each.num_components for each in option.tiles)  # two nodes each, and sums
    for (graph, filter), count in readers.items():
        if graph.use_count(filter) == count and not graph.is_output(filter):
            growth -= sum(stored(filter).values())
    return growth + sum(transformed.values())


@dataclass(frozen=True, slots=True)
class Winograd(Pass):
    """Compute 3x3 convolutions with fewer products if that is faster, within the permitted growth of the file.

    before: Conv(3x3)
    after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

    The tiles of each convolution, or none, are selected by their times where they can be measured, else by estimates.
    """

    rates: MachineRates | None = None
    """The rates of the machine; by default those measured for the block size."""

    name = "winograd"
    justifies_rewrite = False
    changes_rounding = True
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite convolutions of the main graph and its bodies, whose residuals and activations have been fused."""
        rates, block = self.rates or MACHINE_RATES.get(context.block), context.block
        if rates is None:
            return
        if context.sessions == "fast":
            rates = replace(rates, op_seconds=_FAST_SESSIONS_OP_SECONDS)
        runs = expected_runs(graph)
        sites = [
            (each, site)
            for each in regions_with_rule(graph)
            for op in each.ops
            if (site := site_of(op, block)) is not None and context.may_change_rounding(self, site.y) and tilings(site)
        ]
        times = {site.op: estimated_times(site, rates) for _, site in sites}
        if context.time_graphs is not None:
            ranked = sorted(sites, key=lambda each: -runs[each[0]] * times[each[1].op].direct)
            times |= _measured_times([site for _, site in ranked], times, rates, context)
        options = [
            TilingOption(each, site, tiles, runs[each] * (times[site.op].direct - seconds))
            for each, site in sites
            for tiles, seconds in _useful(times[site.op]).items()
        ]
        chosen = select(options, context.growth.limit - stored_bytes(graph.regions()))
        for op, best in {each.site.op: each for each in sorted(options, key=lambda each: each.seconds)}.items():
            option = chosen.get(op, best)
            context.growth.record(self.name, op.name, option.nbytes, option.seconds, is_accepted=op in chosen)
        constants: dict[Graph, Constants] = {}
        for option in (chosen[site.op] for _, site in sites if site.op in chosen):
            site = site_of(option.site.op, block)  # its operands may be the results of a convolution that was rewritten
            assert site is not None
            context.changed_rounding(self, site.y)
            shared = constants.setdefault(option.graph, Constants(option.graph, block))
            WinogradRewriter(option.graph, shared, site, option.tiles).run()


def _measured_times(
    sites: Sequence[Site], estimates: Mapping[Op, Times], rates: MachineRates, context: PassContext
) -> dict[Op, Times]:
    """The measured times of convolutions, the most important ones first, if the direct one and at least one tiling were timed.

    Equal convolutions are timed once, and those with a symbolic batch are not.
    """
    assert context.time_graphs is not None
    graphs: dict[tuple[Hashable, Tiling | None], Graph] = {}
    sites = [site for site in sites if isinstance(site.batch, int)]
    for site in sites:
        for tiling in (None, *estimates[site.op].promising):
            if (key := (site.shape_key, tiling)) not in graphs:
                graphs[key] = convolution_graph(site, tiling, context.block)
    seconds = dict(zip(graphs, context.time_graphs([*graphs.values()]), strict=True))
    found = {}
    for site in sites:
        direct = seconds[site.shape_key, None]
        timed = {each: seconds.get((site.shape_key, each)) for each in estimates[site.op].tiled}
        tiled = {each: time for each, time in timed.items() if time is not None}
        if direct is not None and tiled:
            found[site.op] = Times(direct, tiled, rates.min_measured_speedup)
    return found


def _useful(times: Times) -> dict[Tiling, float]:
    """The best tiling of a convolution, and those that are faster than no tiling and have smaller filters than the best."""
    best = times.best
    return {
        tiles: seconds
        for tiles, seconds in times.tiled.items()
        if best is not None
        and (
            tiles == best
            or (filter_growth(tiles) < filter_growth(best) and seconds <= times.direct / times.min_speedup)
        )
    }


# The constants of convolutions in tiles.


class TransformedFilter:
    """One component of a packed filter (O, I, H, W), OIHW{b}i{b}o: H and W times rows of G, unless these are None."""

    def __init__(
        self,
        data: Data,
        shape: tuple[int, ...],
        block: int,
        transform_rows: Sequence[Row | None],
        read: Callable[[Data], Array],
    ) -> None:
        self._data, self._read = data, read
        filters, _, *kernel = shape
        coefficients, taps, after = np.ones(1), 1, block**2
        for row, extent in zip(reversed(transform_rows), reversed(kernel), strict=True):
            if row is not None:
                coefficients, taps = np.multiply.outer([*map(float, row)], coefficients).ravel(), taps * extent
            elif taps == 1:
                after *= extent
        # The axes are (block of filters, before, tap, after); one block of filters at a time fits the cache.
        self._source_shape = (filters // block, prod(shape) // (filters // block * taps * after), taps, after)
        self._coefficients = coefficients
        self.shape = (*shape[:2], *(1 if row else extent for row, extent in zip(transform_rows, kernel, strict=True)))
        self.nbytes = 4 * prod(self.shape)

    def numpy(self) -> Array:
        """The packed filter, computed in float64 and rounded once."""
        source = self._read(self._data).reshape(self._source_shape)
        rows = [(self._coefficients @ each.astype(np.float64)).astype(np.float32) for each in source]
        return np.stack(rows).reshape(self.shape)

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened packed filter."""
        *_, taps, after = self._source_shape
        outer, last = np.divmod(positions, after)
        rows = outer * taps + np.arange(taps)[:, None]
        found = elements_at(self._data, (rows * after + last).ravel()).reshape(taps, -1)
        return np.asarray(self._coefficients @ found.astype(np.float64), np.float32)


class Constants:
    """The constants of all Winograd convolutions of a graph, for blocks of `block` channels; equal ones are shared."""

    def __init__(self, graph: Graph, block: int) -> None:
        self.block = block
        self._graph = graph
        self._values: dict[Hashable, Value] = {}
        self._last_read: list[tuple[Data, Array]] = []

    def filter(self, site: Site, tiles: Tiling, component: tuple[int, int]) -> Value:
        """The transformed filter of a component, given by its indices along rows and columns."""
        rows = [
            None if each.algorithm is None else each.algorithm.filter_rows[index]
            for each, index in zip(tiles, component, strict=True)
        ]
        assert site.filter.data is not None and site.filter.static_shape is not None
        data = TransformedFilter(site.filter.data, site.filter.static_shape, self.block, rows, self._read)
        return self._shared((site.filter, *rows), f"{site.filter.name}/winograd", data, data.shape)

    def depthwise(self, channels: int, coefficients: Array) -> Value:
        """A depthwise filter (C, 1, H, W) with the same H x W coefficients for all channels, packed OIHW{b}o."""
        shape = channels, 1, *coefficients.shape
        extents = (channels // self.block, *coefficients.shape, self.block)
        array = np.broadcast_to(coefficients[:, :, None], extents).astype(np.float32).reshape(shape)
        return self._shared((shape, coefficients.tobytes()), "winograd/transform", ArrayData(array), shape)

    def integers(self, *numbers: int) -> Value:
        """A vector of int64."""
        array = np.asarray(numbers, dtype=np.int64)
        return self._shared(numbers, "winograd/shape", ArrayData(array), array.shape, DType.INT64)

    def _shared(
        self, key: Hashable, name: str, data: Data, shape: tuple[int, ...], dtype: DType = DType.FLOAT32
    ) -> Value:
        if key not in self._values:
            self._values[key] = self._graph.new_value(name, TensorType(dtype, shape), data=data)
        return self._values[key]

    def _read(self, data: Data) -> Array:
        """The elements of a filter; the last one stays in memory, since a file has the components of one consecutively."""
        if not self._last_read or self._last_read[0][0] is not data:
            self._last_read.clear()  # so that two are never in memory at once
            self._last_read.append((data, data.numpy()))
        return self._last_read[0][1]


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

Arrays: TypeAlias = list[Value]
ComponentFunction: TypeAlias = Callable[[int, Arrays | None, bool], Arrays]
"""Computes a component from its index, the addends of its elements, and whether the sums are results, to be activated."""


def error_growths(names: Iterable[str]) -> dict[str, float]:
    """The growth of the rounding error by the name of a convolution's result, declared by the names of what computes it."""
    found: dict[str, float] = {}
    for match in filter(None, map(_DECLARATION.match, names)):
        stem, *sizes = match.groups()
        outputs, taps = map(int, sizes[::2]), map(int, sizes[1::2])
        tiled = map(minimal_filtering, outputs, taps)
        found[stem] = prod(each.error_growth for each in tiled if each is not None)
    return found


class WinogradRewriter:
    """Replaces one convolution, `site`, by its Winograd form in `tiles` along rows and columns."""

    def __init__(self, graph: Graph, constants: Constants, site: Site, tiles: Tiling) -> None:
        self._graph = graph
        self._constants = constants
        self._site = site
        self._tiles = tiles

    def run(self) -> None:
        """Replace the convolution."""
        site, (rows, columns) = self._site, self._tiles
        is_final = site.residual is None
        phases = self._outputs(rows, self._columns, None, is_final)
        images = site.batch * (site.filters // self._constants.block)
        tiles, block = images * rows.product_axis.output, self._constants.block
        lines = [self._interleaved(phase, tiles, columns, block) for phase in phases]
        whole = self._interleaved(lines, images, rows, columns.axis.output * block)
        result = self._reshape(whole, (site.batch, site.filters, rows.axis.output, columns.axis.output))
        if site.residual is not None and site.activation:
            result = self._add_multiple(site.residual, result, 1, True)
        elif site.residual is not None:
            result = self._op("Add", (result, site.residual), result.shape)
        self._graph.replace_value(site.y, result)
        if not self._graph.is_used(site.filter):
            self._graph.remove_value(site.filter)

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

    def _product(self, component: tuple[int, int], added: Value | None, is_final: bool) -> Value:
        """The convolution of one component."""
        site = self._site
        ones = tuple(int(each.algorithm is not None) for each in self._tiles)
        bias = site.bias if component == ones else None  # every output has the point 1 with factor 1
        rows, columns = (each.product_axis for each in self._tiles)
        return self._conv(
            (self._transformed(component), self._constants.filter(site, self._tiles, component), bias, added),
            (site.batch, site.filters, rows.output, columns.output),
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
        filter = self._constants.depthwise(self._site.filters, np.full((1, 1), float(factor)))
        ones = {"strides": (1, 1), "dilations": (1, 1), "kernel_shape": (1, 1), "pads": (0, 0, 0, 0)}
        return self._conv((term, filter, None, total), total.shape, is_final, group=self._site.filters, **ones)

    def _conv(self, inputs: Sequence[Value | None], shape: Shape | None, is_final: bool, **fields: Attribute) -> Value:
        operands = list(inputs)
        while operands[-1] is None:
            operands.pop()
        return self._op(f"{DOMAIN}::Conv", operands, shape, **fields, **(self._site.activation if is_final else {}))

    def _each(self, kind: str, first: Arrays, second: Arrays) -> Arrays:
        return [self._op(kind, (a, b), a.shape) for a, b in zip(first, second, strict=True)]

    def _op(self, kind: str, inputs: Sequence[Value | None], shape: Shape | None, **fields: Attribute) -> Value:
        assert shape is not None
        sizes = (f"{each.outputs}of{each.axis.kernel if each.algorithm else 1}" for each in self._tiles)
        stem = f"{self._site.y.name}/winograd/{'x'.join(sizes)}/{kind.rpartition('::')[2]}"
        return self._graph.new_result(kind, tuple(inputs), float32_type(shape), stem, self._site.op, attributes=fields)

    def _interleaved(self, pieces: Arrays, outer: Dim, tiles: Tiles, inner: int) -> Value:
        """(outer, tiles, inner), one for every output of a tile  -->  (outer, outputs of all tiles, inner)."""
        if tiles.algorithm is None:
            return pieces[0]
        all_tiles = outer * tiles.count
        views = [self._reshape(piece, (all_tiles, 1, inner)) for piece in pieces]
        whole = self._op("Concat", views, (all_tiles, len(pieces), inner), axis=1)
        count = tiles.axis.output
        if count == tiles.count * tiles.outputs:
            return whole
        whole, shape = self._reshape(whole, (outer, tiles.count * tiles.outputs, inner)), (outer, count, inner)
        if self._graph.opsets[""] < 10:
            return self._op("Slice", (whole,), shape, starts=(0,), ends=(count,), axes=(1,))
        bounds = [self._constants.integers(number) for number in (0, count, 1)]
        return self._op("Slice", (whole, *bounds), shape)

    def _reshape(self, x: Value, shape: Shape) -> Value:
        extents = [dim if isinstance(dim, int) else -1 for dim in shape]
        return self._op("Reshape", (x, self._constants.integers(*extents)), shape)
