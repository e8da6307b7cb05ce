"""Winograd's minimal filtering: convolutions with fewer multiplications, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of four
rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.dialects.builder import replace_op, rewriting
from layoutopt.dialects.onnxruntime.writers import DOMAIN, float32_type, kernel_call
from layoutopt.formats import Dim, Shape
from layoutopt.ir.constants import elements_at, stored
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Array, Attribute, Data, Op, Value
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import Pass, PassContext

# Minimal filtering F(m, 3) along one axis.
#
# m outputs of a correlation with 3 taps take m + 2 products where the definition takes 3 m:
#
#     y = A^T ((G g) * (B^T d))        y: m outputs, g: 3 taps, d: m + 2 inputs, *: element-wise product
#
# The construction from evaluation points is the Toom-Cook algorithm. The points are integers, so every coefficient is rounded
# once at most.

_TAPS = 3
_POINTS = np.array([0.0, 1.0, -1.0, 2.0, -2.0])
"""The evaluation points. The products of a pair a, -a have common sums for even and differences for odd outputs. Each further
pair costs a digit in float32, so F(6, 3) is not supported."""


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm:
    """F(outputs, taps).

    A component is one element of the element-wise product, for one evaluation point: the first for the point 0, two for each
    pair a, -a, and the last for infinity.

    Attributes:
        outputs, taps: m and 3; both are 1 for an axis that is not tiled.
        input_rows, filter_rows, output_rows: B^T, G and A^T.
    """

    outputs: int
    taps: int
    input_rows: Array
    filter_rows: Array
    output_rows: Array

    @property
    def num_components(self) -> int:
        """The number of components of a tile: m + 2."""
        return len(self.input_rows)

    @property
    def error_growth(self) -> float:
        """The rounding error of the least exact output of a tile, as root mean square, relative to that of the definition."""
        inputs, filters, outputs = map(np.square, (self.input_rows, self.filter_rows, self.output_rows))
        return math.sqrt((outputs @ (inputs.sum(axis=1) * filters.sum(axis=1))).max() / self.taps)


@cache
def minimal_filtering(outputs: int) -> Algorithm:
    """F(2, 3) or F(4, 3) at points 0, 1, -1, 2, -2 and infinity; F(1, 1) for one output."""
    if outputs == 1:
        return Algorithm(1, 1, *[np.ones((1, 1))] * 3)
    points = _POINTS[: outputs + 1]
    others = [points[points != point] for point in points]
    inputs = [*(np.append(np.poly(each)[::-1], 0.0) for each in others), np.poly(points)[::-1]]
    scales = [prod(point - each) for point, each in zip(points, others, strict=True)]
    filters = _powers(points, _TAPS) / np.array([*scales, 1.0])[:, None]
    # Adding 0 makes 0 of -0.
    return Algorithm(outputs, _TAPS, np.array(inputs) + 0.0, filters + 0.0, _powers(points, outputs).T)


def _powers(points: Array, count: int) -> Array:
    """The first powers of each point in a row, and those of infinity, of which the last counts."""
    return np.vstack([points[:, None] ** np.arange(count), np.eye(count)[-1]])


# Convolutions that can be tiled, and their tiles.


@dataclass(frozen=True, slots=True)
class Tiles:
    """An axis of `extent` outputs in tiles of m; with F(1, 1), the axis is not tiled.

    before: 14 outputs        after: 4 tiles of 4 outputs, of which the last 2 are dropped
    """

    extent: int
    algorithm: Algorithm

    @property
    def is_tiled(self) -> bool:
        """Whether the algorithm takes fewer products than the definition."""
        return self.algorithm.taps > 1

    @property
    def outputs(self) -> int:
        """The number of outputs of a tile, m."""
        return self.algorithm.outputs

    @property
    def count(self) -> int:
        """The number of tiles; the last one may be cut."""
        return -(-self.extent // self.outputs)

    def taps(self, component: int) -> tuple[Array, int, int]:
        """The input transform of a component as a convolution with stride m: its coefficients, padding in front and behind."""
        row = self.algorithm.input_rows[component]
        if not self.is_tiled:
            return row, 0, 0
        (used,) = row.nonzero()
        # The first input of a tile is the padding of the convolution in front of it.
        first, missing = int(used[0]), max(0, int(used[0]) - 1)
        taps = np.pad(row[first : used[-1] + 1], (missing, 0))
        front = 1 - first + missing
        return taps, front, max(0, (self.count - 1) * self.outputs - front + len(taps) - self.extent)


Tiling: TypeAlias = tuple[Tiles, Tiles]  # of rows and columns


@dataclass(frozen=True, slots=True)
class Site:
    """A blocked 3x3 convolution with a constant, packed filter, without groups or strides, of an image padded by 1.

    The numbers of input and output channels, `channels` and `filters`, are multiples of the block. The residual has the storage
    of the result. `image` has the extents of rows and columns.
    """

    op: Op
    batch: Dim
    channels: int
    filters: int
    image: tuple[int, int]

    @property
    def operands(self) -> tuple[Value, Value, Value | None, Value | None]:
        """The image, the filter, and the bias and the residual if there are any."""
        x, filter, bias, residual, *_ = (*self.op.inputs, None, None)
        assert x is not None and filter is not None
        return x, filter, bias, residual

    @property
    def activation(self) -> dict[str, Attribute]:
        """The attributes of the activation; none without an activation."""
        return {name: each for name, each in self.op.attributes.items() if name.startswith("activation")}

    @property
    def shape_key(self) -> Hashable:
        """Everything that the time of the convolution depends on, besides its elements."""
        types = tuple(value and value.type for value in self.op.inputs)
        return types, tuple(sorted(self.activation.items()))

    @property
    def tilings(self) -> list[Tiling]:
        """The ways to cut the image into tiles.

        None is wider than high, because interleaving columns moves blocks one by one, which takes longer.
        """
        rows, columns = (
            [Tiles(extent, minimal_filtering(size)) for size in (1, 2, 4) if size <= extent] for extent in self.image
        )
        return [(first, second) for first in rows for second in columns if first.outputs >= second.outputs][1:]


def site_of(op: Op, block: int) -> Site | None:
    """The properties of a blocked convolution that can be tiled; None for other ops."""
    filter = op.inputs[1] if op.op_type == "Conv" and op.domain == DOMAIN and len(op.inputs) <= 4 else None
    if filter is None or filter.data is None or filter.static_shape is None or op.integer("group", 1) != 1:
        return None
    (filters, channels, *kernel), (batch, _, *image) = filter.static_shape, op.x.dims
    steps = {*op.integers("strides"), *op.integers("dilations")}
    if (
        kernel != [_TAPS] * 2
        or op.integers("pads") != (1,) * 4
        or not steps <= {1}
        or channels % block
        or filters % block
    ):
        return None
    residual, known = op.inputs[3] if len(op.inputs) > 3 else None, [dim for dim in image if isinstance(dim, int)]
    if len(known) < 2 or op.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if residual is not None and residual.shape != op.y.shape:
        return None
    site = Site(op, batch, channels, filters, (known[0], known[1]))
    return site if site.tilings else None


def filter_growth(tiles: Tiling) -> float:
    """The ratio of the sizes of the transformed filters and the filter."""
    return prod(each.algorithm.num_components / each.algorithm.taps for each in tiles)


# Times of a convolution in seconds, direct and in tiles: estimated, or measured, on a graph of its own.
#
#     convolutions   operations at the rate of the kernel, and bytes of the filter at its bandwidth
#     other ops      bytes read and written at the bandwidth of the cache or of memory; none for a Reshape
#     any op         a constant
#
# A formula with the same terms was compared with 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), in five
# tilings: its ratio of the two times is 5 % too large on average and within 10 % of the measured one, and the chosen tiling
# takes 1 % longer than the best.

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
    def useful(self) -> list[Tiling]:
        """The tilings that are faster than the direct convolution, the fastest first, without larger filters than necessary.

        Of those that take about as long as the fastest one, the one with the smallest filters, the most accurate, decides.
        """
        limit = self.direct / self.min_speedup
        about = min(limit, min(self.tiled.values(), default=0.0) * _TIE_RATIO)
        largest = min((filter_growth(each) for each in self.tiled if self.tiled[each] <= about), default=0.0)
        found = [each for each in self.tiled if self.tiled[each] <= limit and filter_growth(each) <= largest]
        return sorted(found, key=self.tiled.__getitem__)

    @property
    def promising(self) -> list[Tiling]:
        """The tilings to time: at most three, whose estimates are at most twice that of the fastest one; none if that is slow.

        The margin is wide, because all machines with the same block size have the same estimates.
        """
        least = min(self.tiled.values(), default=math.inf)
        fastest = sorted(self.tiled, key=self.tiled.__getitem__)[:_MEASURED_TILINGS]
        is_close = least <= _MEASURED_RATIO * self.direct
        return [each for each in fastest if is_close and self.tiled[each] <= _MEASURED_RATIO * least]


def estimated_times(site: Site, block: int, rates: MachineRates, sizes: Sizes = NO_SIZES) -> Times:
    """The estimated times of a convolution."""
    tiled = {each: _seconds(convolution_graph(site, each, block), rates, sizes) for each in site.tilings}
    return Times(_seconds(convolution_graph(site, None, block), rates, sizes), tiled, rates.min_speedup)


def _seconds(graph: Graph, rates: MachineRates, sizes: Sizes) -> float:
    """The estimated seconds of a graph of one convolution."""

    def nbytes(values: Iterable[Value | None]) -> float:
        return _ELEMENT * sum(sizes.elements(each.dims) for each in values if each is not None and each.data is None)

    fits_cache = nbytes((*graph.inputs, *graph.outputs)) <= rates.cache_bytes
    bandwidth = rates.cache_bandwidth if fits_cache else rates.memory_bandwidth
    total = 0.0
    for op in graph.ops:
        total += rates.op_seconds
        if op.op_type == "Conv" and op.integer("group", 1) == 1:
            assert op.inputs[1] is not None
            products, pixels = sizes.elements(op.inputs[1].dims), sizes.elements((op.y.dims[0], *op.y.dims[2:]))
            total += 2 * products * pixels / rates.flops + _ELEMENT * products / rates.filter_bandwidth
        elif op.op_type != "Reshape":
            total += nbytes((*op.inputs, *op.outputs)) / bandwidth
    return total


def convolution_graph(site: Site, tiling: Tiling | None, block: int) -> Graph:
    """A lowered graph of one convolution, in tiles unless `tiling` is None."""
    graph = Graph("convolution", {"": 18, DOMAIN: 1})
    graph.stage = "lowered"
    copies: dict[Value, Value] = {}
    for index, value in enumerate(site.op.inputs):
        if value is not None and value not in copies:
            copies[value] = graph.add_value(Value(f"x{index}", value.type, data=value.data))
    graph.inputs += [each for each in copies.values() if each.data is None]
    y = graph.add_value(Value("y", site.op.y.type))
    op = site.op.copy(tuple(value and copies[value] for value in site.op.inputs), (y,), name="convolution", order=())
    graph.add_op(op)
    graph.outputs.append(y)
    copy = site_of(op, block)
    if tiling is not None and copy is not None:
        WinogradRewriter(graph, copy, tiling, block).run()
    return graph


def alternatives(graph: Graph, block: int) -> tuple[Iterable[Graph], float]:
    """The promising tilings of a lowered graph of one convolution, and the estimated speed-up of the one that is chosen."""
    site = site_of(graph.ops[0], block) if block and len(graph.ops) == 1 else None
    if site is None or not isinstance(site.batch, int) or block not in MACHINE_RATES:
        return (), 1.0
    times = estimated_times(site, block, MACHINE_RATES[block])
    speed_up = max((times.direct / times.tiled[each] for each in times.useful[:1]), default=1.0)
    return (convolution_graph(site, tiling, block) for tiling in times.promising), speed_up


# The convolutions to rewrite within the limit on the growth of the file.

_NODE_BYTES = 200  # of a node in the file


@dataclass(frozen=True, slots=True)
class TilingOption:
    """One way to tile one convolution of a graph.

    Attributes:
        seconds: the estimated gain of one run of the model.
        nbytes: the growth of the file in bytes.
    """

    graph: Graph
    site: Site
    tiles: Tiling
    seconds: float
    nbytes: int


def _file_growth(graph: Graph, site: Site, tiles: Tiling) -> int:
    """The growth of the file in bytes; a filter without other readers is removed."""
    _, filter, *_ = site.operands
    assert filter.data is not None
    nodes = 4 * _NODE_BYTES * prod(each.algorithm.num_components for each in tiles)  # two nodes each, and sums
    removed = sum(stored(filter).values()) if graph.has_one_use(filter) else 0
    return nodes + int(filter.data.nbytes * filter_growth(tiles)) - removed


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
            if (site := site_of(op, block)) is not None and context.may_change_rounding(self, op.y)
        ]
        times = _times_by_shape(sites, runs, rates, context)
        options: dict[Op, list[TilingOption]] = {}
        for each, site in sites:
            found = times[site.shape_key]
            for tiles in found.useful:
                seconds = runs[each] * (found.direct - found.tiled[tiles])
                option = TilingOption(each, site, tiles, seconds, _file_growth(each, site, tiles))
                options.setdefault(site.op, []).append(option)
        budget = context.budget(self, graph)
        chosen: dict[Op, TilingOption] = {}
        for op in sorted(options, key=lambda op: -options[op][0].seconds / max(1, options[op][0].nbytes)):
            fitting = [each for each in options[op] if each.nbytes <= budget.remaining]
            option = (fitting or options[op])[0]
            if budget.request(op.name, option.nbytes, option.seconds):
                chosen[op] = option
        for option in (chosen[op] for op in options if op in chosen):
            context.changed_rounding(self, option.site.op.y)
            WinogradRewriter(option.graph, option.site, option.tiles, block).run()


def _times_by_shape(
    sites: Sequence[tuple[Graph, Site]], runs: Mapping[Graph, float], rates: MachineRates, context: PassContext
) -> dict[Hashable, Times]:
    """The times of convolutions by `shape_key`, measured if the direct one and at least one tiling are timed.

    The most important ones are timed first, and those with a symbolic batch are not.
    """
    shapes, block = {site.shape_key: site for _, site in sites}, context.block
    times = {key: estimated_times(site, block, rates, context.sizes) for key, site in shapes.items()}
    if context.time_graphs is None:
        return times
    ranked = sorted(sites, key=lambda each: -runs[each[0]] * times[each[1].shape_key].direct)
    keys = dict.fromkeys(site.shape_key for _, site in ranked if isinstance(site.batch, int))
    pairs = [(key, tiling) for key in keys for tiling in (None, *times[key].promising)]
    graphs = [convolution_graph(shapes[key], tiling, block) for key, tiling in pairs]
    measured = dict(zip(pairs, context.time_graphs(graphs), strict=True))
    for key in keys:
        direct, found = measured[key, None], {each: measured[key, each] for each in times[key].promising}
        tiled = {tiling: seconds for tiling, seconds in found.items() if seconds is not None}
        if direct is not None and tiled:
            times[key] = Times(direct, tiled, rates.min_measured_speedup)
    return times


# The constants of convolutions in tiles.


@lru_cache(maxsize=1)
def _elements(data: Data) -> Array:
    """The elements of a filter; the last one stays in memory, since a file has the components of one consecutively."""
    return data.numpy()


class TransformedFilter:
    """One component of a packed 3x3 filter (O, I, H, W), OIHW{b}i{b}o: rows, or rows and columns, times `coefficients`."""

    def __init__(self, data: Data, filters: int, channels: int, block: int, coefficients: Array) -> None:
        self._data: Any = data  # hashable
        self._coefficients = coefficients.ravel()
        taps = self._coefficients.size
        width = _TAPS**2 // taps  # of the transformed filter
        # One block of filters at a time fits the cache.
        self._source_shape = (filters // block, channels // block, taps, width * block**2)
        self.shape = filters, channels, 1, width
        self.nbytes = 4 * prod(self.shape)

    def numpy(self) -> Array:
        """The packed filter, computed in float64 and rounded once."""
        source = _elements(self._data).reshape(self._source_shape)
        rows = [(self._coefficients @ each.astype(np.float64)).astype(np.float32) for each in source]
        return np.stack(rows).reshape(self.shape)

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened packed filter."""
        *_, taps, after = self._source_shape
        outer, last = np.divmod(positions, after)
        rows = outer * taps + np.arange(taps)[:, None]
        found = elements_at(self._data, (rows * after + last).ravel()).reshape(taps, -1)
        return np.asarray(self._coefficients @ found.astype(np.float64), np.float32)


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

_DECLARATION = re.compile(r"(.*)/winograd/([124])of\dx([124])of\d/")

Arrays: TypeAlias = list[Value]


def error_growths(names: Iterable[str]) -> dict[str, float]:
    """The growth of the rounding error by the name of a convolution's result, declared by the names of what computes it."""
    found: dict[str, float] = {}
    for match in filter(None, map(_DECLARATION.match, names)):
        stem, *sizes = match.groups()
        found[stem] = prod(minimal_filtering(int(each)).error_growth for each in sizes)
    return found


class WinogradRewriter:
    """Replaces one convolution, `site`, by its Winograd form in `tiles` along rows and columns."""

    def __init__(self, graph: Graph, site: Site, tiles: Tiling, block: int) -> None:
        self._graph = graph
        self._site = site
        self._tiles = tiles
        self._block = block
        self._x, self._filter, self._bias, self._residual = site.operands
        self._depthwise_filters: dict[Hashable, Value] = {}
        sizes = "x".join(f"{each.outputs}of{each.algorithm.taps}" for each in tiles)
        self._build = rewriting(graph, site.op, f"winograd/{sizes}")

    def run(self) -> None:
        """Replace the convolution."""
        site, (rows, columns) = self._site, self._tiles
        phases = self._outputs((), None, self._residual is None)
        images = site.batch * (site.filters // self._block)
        lines = [self._interleaved(phase, images * rows.count, columns, self._block) for phase in phases]
        whole = self._interleaved(lines, images, rows, columns.extent * self._block)
        result = self._build.reshape(whole, (site.batch, site.filters, *site.image))
        if self._residual is not None and site.activation:
            result = self._add_multiple(self._residual, result, 1, True)
        elif self._residual is not None:
            (result,) = self._each("Add", [result], [self._residual])
        self._build.set_output(0, result)
        replace_op(self._graph, site.op, self._build)
        if not self._graph.is_used(self._filter):
            self._graph.remove_value(self._filter)

    def _outputs(self, outer: tuple[int, ...], addends: list[Arrays] | None, is_final: bool) -> list[Arrays]:
        """The output transform A^T of rows, or of columns for a component `outer` of rows: every output of a tile.

        Args:
            outer: the component of rows; empty for rows.
            addends: what is added to each output.
            is_final: whether the sums are results, to be activated.
        """
        algorithm = self._tiles[len(outer)].algorithm
        if algorithm.outputs == 1:
            return [self._component((*outer, 0), addends[0] if addends is not None else None, is_final)]
        last = algorithm.num_components - 1
        halves: list[tuple[Arrays, Arrays]] = []
        for first in range(1, last, 2):
            plus, minus = (self._component((*outer, index), None, False) for index in (first, first + 1))
            halves.append((self._each("Add", plus, minus), self._each("Sub", plus, minus)))
        found = []
        for output in range(algorithm.outputs):
            edge = {0: 0, algorithm.outputs - 1: last}.get(output)
            factors = algorithm.output_rows[output, 1:-1:2]
            terms = [(factor, half[output % 2]) for factor, half in zip(factors, halves, strict=True)]
            total = self._sum(terms, addends[output] if addends is not None else None, is_final and edge is None)
            found.append(total if edge is None else self._component((*outer, edge), total, is_final))
        return found

    def _component(self, index: tuple[int, ...], addends: Arrays | None, is_final: bool) -> Arrays:
        """The product of a component of rows and columns; of one of rows, an array for every output of a tile of columns."""
        if len(index) == len(self._tiles):
            return [self._product(index, addends[0] if addends is not None else None, is_final)]
        separate = [[each] for each in addends] if addends is not None else None
        return [each for (each,) in self._outputs(index, separate, is_final)]

    def _sum(self, terms: Sequence[tuple[float, Arrays]], addends: Arrays | None, is_final: bool) -> Arrays:
        """The sum of the terms times their factors, the first of which is 1, and of the addends, activated if `is_final`."""
        total = terms[0][1] if addends is None else self._each("Add", terms[0][1], addends)
        for index, (factor, term) in enumerate(terms[1:], 2):
            is_last = is_final and index == len(terms)
            if factor == 1 and not is_last:
                total = self._each("Add", total, term)
            else:
                total = [self._add_multiple(a, b, factor, is_last) for a, b in zip(total, term, strict=True)]
        return total

    def _product(self, component: tuple[int, ...], added: Value | None, is_final: bool) -> Value:
        """The convolution of one component: of its transformed input with its transformed filter."""
        site = self._site
        ones = tuple(int(each.is_tiled) for each in self._tiles)
        bias = self._bias if component == ones else None  # every output has the point 1 with factor 1
        (rows, top, bottom), (columns, left, right) = map(Tiles.taps, self._tiles, component)
        coefficients, steps = np.outer(rows, columns), tuple(each.outputs for each in self._tiles)
        image = self._x, self._depthwise(site.channels, coefficients)
        extents = tuple(each.count for each in self._tiles)
        transformed = self._conv(image, (site.batch, site.channels, *extents), False, (top, left, bottom, right), steps)
        operands = transformed, self._transformed_filter(component), bias, added
        border = 0 if self._tiles[1].is_tiled else 1
        pads = 0, border, 0, border
        return self._conv(operands, (site.batch, site.filters, *extents), is_final, pads)

    def _add_multiple(self, total: Value, term: Value, factor: float, is_final: bool) -> Value:
        """total + factor * term."""
        filter = self._depthwise(self._site.filters, np.full((1, 1), factor))
        return self._conv((term, filter, None, total), total.dims, is_final)

    def _conv(
        self,
        inputs: Sequence[Value | None],
        shape: Shape,
        is_final: bool,
        pads: tuple[int, ...] = (0, 0, 0, 0),
        strides: tuple[int, ...] = (1, 1),
    ) -> Value:
        """The output of a convolution, depthwise if its filter has one input channel; activated if `is_final`."""
        filter, operands = inputs[1], list(inputs)
        assert filter is not None and filter.static_shape is not None
        filters, channels, *kernel = filter.static_shape
        while operands[-1] is None:
            operands.pop()
        return kernel_call(
            self._build,
            "Conv",
            operands,
            shape,
            group=filters if channels == 1 else 1,
            kernel_shape=tuple(kernel),
            pads=pads,
            strides=strides,
            dilations=(1, 1),
            **(self._site.activation if is_final else {}),
        )

    def _each(self, kind: str, first: Arrays, second: Arrays) -> Arrays:
        pairs = zip(first, second, strict=True)
        return [result for pair in pairs for result in self._build.op(kind, pair, [float32_type(pair[0].dims)])]

    def _depthwise(self, channels: int, coefficients: Array) -> Value:
        """A depthwise filter (C, 1, H, W) with the same H x W coefficients for all channels, packed OIHW{b}o."""
        key = channels, coefficients.shape, coefficients.tobytes()
        if key not in self._depthwise_filters:
            extents = (channels // self._block, *coefficients.shape, self._block)
            array = np.broadcast_to(coefficients[:, :, None], extents).astype(np.float32)
            shape = channels, 1, *coefficients.shape
            self._depthwise_filters[key] = self._build.constant(array.reshape(shape), "transform")
        return self._depthwise_filters[key]

    def _transformed_filter(self, component: tuple[int, ...]) -> Value:
        """The transformed filter of a component, given by its indices along rows and columns."""
        rows, *columns = (
            tiles.algorithm.filter_rows[index]
            for tiles, index in zip(self._tiles, component, strict=True)
            if tiles.is_tiled
        )
        coefficients = np.multiply.outer(rows, columns[0]) if columns else rows
        assert self._filter.data is not None
        site = self._site
        data = TransformedFilter(self._filter.data, site.filters, site.channels, self._block, coefficients)
        value = Value(f"{self._filter.name}/winograd", float32_type(data.shape), data=data)
        self._build.constants.append(value)
        return value

    def _interleaved(self, pieces: Arrays, outer: Dim, tiles: Tiles, inner: int) -> Value:
        """(outer, tiles, inner), one for every output of a tile  -->  (outer, outputs of all tiles, inner)."""
        if not tiles.is_tiled:
            return pieces[0]
        all_tiles, all_outputs = outer * tiles.count, tiles.count * tiles.outputs
        views = [self._build.reshape(piece, (all_tiles, 1, inner)) for piece in pieces]
        (whole,) = self._build.op("Concat", views, [float32_type((all_tiles, len(pieces), inner))], {"axis": 1})
        if tiles.extent == all_outputs:
            return whole
        return self._build.resize_axis(self._build.reshape(whole, (outer, all_outputs, inner)), 1, tiles.extent)
