"""Winograd's minimal filtering: convolutions with fewer multiplications, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of four
rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from layoutopt.dialects.onnxruntime.writers import DOMAIN, kernel_call
from layoutopt.formats import Dim, Shape
from layoutopt.ir.constants import RandomAccess, elements_at, stored
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Array, Attribute, Data, DType, Op, Value, float32_type
from layoutopt.ops import estimated_extent
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import Pass, PassContext, TimeGraphs
from layoutopt.record import Record

# Minimal filtering F(m, 3) along one axis.
#
# m outputs of a correlation with 3 taps take m + 2 products where the definition takes 3 m:
#
#     y = A^T ((G g) * (B^T d))        y: m outputs, g: 3 taps, d: m + 2 inputs, *: element-wise product
#
# The construction from evaluation points is the Toom-Cook algorithm. The points are integers, so every coefficient is rounded
# once at most. A component is one element of the element-wise product, for one evaluation point: the first for the point 0,
# two for each pair a, -a, and the last for infinity.

PLAIN = 1
"""The block of arrays without blocks."""

_TAPS = 3
_POINTS = np.array([0.0, 1.0, -1.0, 2.0, -2.0])
"""The evaluation points. The products of a pair a, -a have common sums for even and differences for odd outputs. Each further
pair costs a digit in float32, so F(6, 3) is not supported."""


class Transforms(NamedTuple):
    """B^T, G and A^T, with a row for every component, component and output; 1 is a tap of an axis that is not tiled."""

    inputs: Array
    filters: Array
    outputs: Array

    @property
    def num_taps(self) -> int:
        """The number of taps: 3; 1 for an axis that is not tiled."""
        return int(self.filters.shape[1])

    @property
    def error_growth(self) -> float:
        """The rounding error of the least exact output of a tile, as root mean square, relative to that of the definition."""
        inputs, filters, outputs = map(np.square, self)
        return math.sqrt((outputs @ (inputs.sum(axis=1) * filters.sum(axis=1))).max() / self.num_taps)


@cache
def minimal_filtering(outputs: int) -> Transforms:
    """F(2, 3) or F(4, 3) at points 0, 1, -1, 2, -2 and infinity; F(1, 1) for one output."""
    if outputs == 1:
        return Transforms(*[np.ones((1, 1))] * 3)
    points = _POINTS[: outputs + 1]
    others = [points[points != point] for point in points]
    inputs = [*(np.append(np.poly(each)[::-1], 0.0) for each in others), np.poly(points)[::-1]]
    scales = [prod(point - each) for point, each in zip(points, others, strict=True)]
    filters = _powers(points, _TAPS) / np.array([*scales, 1.0])[:, None]
    # Adding 0 makes 0 of -0.
    return Transforms(np.array(inputs) + 0.0, filters + 0.0, _powers(points, outputs).T)


def _powers(points: Array, count: int) -> Array:
    """The first powers of each point in a row, and those of infinity, of which the last counts."""
    return np.vstack([points[:, None] ** np.arange(count), np.eye(count)[-1]])


_DECLARATION = re.compile(r"(.*)/winograd/([124])of\dx([124])of\d/")


def error_growths(names: Iterable[str]) -> dict[str, float]:
    """The growth of the rounding error by the name of a convolution's result, read from the names of its ops."""
    found: dict[str, float] = {}
    for match in filter(None, map(_DECLARATION.match, names)):
        stem, *sizes = match.groups()
        found[stem] = prod(minimal_filtering(int(each)).error_growth for each in sizes)
    return found


# Convolutions that can be tiled, and their tiles.


class Tiles(Record):
    """An axis of `extent` outputs in tiles of m = `outputs`; with m = 1, the axis is not tiled.

    before: 14 outputs        after: 4 tiles of 4 outputs, of which the last 2 are dropped
    """

    extent: int
    outputs: int

    @property
    def transforms(self) -> Transforms:
        """The transforms of a tile."""
        return minimal_filtering(self.outputs)

    @property
    def num_components(self) -> int:
        """The number of components of a tile: m + 2; 1 if the axis is not tiled."""
        return len(self.transforms.filters)

    @property
    def count(self) -> int:
        """The number of tiles; the last one may be cut."""
        return -(-self.extent // self.outputs)

    def input_taps(self, component: int) -> tuple[Array, int, int]:
        """The input transform of a component as a convolution with stride m: its coefficients, padding in front and behind."""
        row = self.transforms.inputs[component]
        used = row.nonzero()[0].tolist()
        taps = row[used[0] : used[-1] + 1]
        # The first input of a tile is the padding of the convolution in front of it.
        front = (self.outputs > 1) - used[0]
        return taps, front, max(0, (self.count - 1) * self.outputs - front + len(taps) - self.extent)


Tiling: TypeAlias = tuple[Tiles, Tiles]  # of rows and columns


def tilings(op: Op, block: int) -> list[Tiling]:
    """The ways to cut the result of a convolution into tiles, the direct convolution first; none if it cannot be tiled.

    Its filter is 3x3 and constant, without groups or strides; its image has known extents and is padded by 1. In blocks, the
    filter is packed, channels are whole blocks, and no tile is wider than high, because interleaving columns moves blocks one
    by one, which takes longer. On plain arrays the batch is known, tiles are square, and a filter of one input channel is
    depthwise already.
    """
    is_plain = block == PLAIN
    filter = op.inputs[1] if op.op_type == "Conv" and op.domain == ("" if is_plain else DOMAIN) else None
    if filter is None or filter.data is None or op.integer("group", 1) != 1 or op.integers("pads") != (1,) * 4:
        return []
    if filter.dtype is not DType.FLOAT32 or filter.rank != 4:
        return []
    if is_plain and not isinstance(op.y.dims[0], int):  # such convolutions cannot be timed
        return []
    _, channels, *kernel = map(estimated_extent, filter.dims)
    image = [extent for extent in op.y.dims[2:] if isinstance(extent, int)]
    steps = {*op.integers("strides"), *op.integers("dilations")}
    if kernel != [_TAPS] * 2 or channels % block or channels < 2 or len(image) < 2 or steps - {1}:
        return []
    rows, columns = ([Tiles(extent, size) for size in (1, 2, 4) if size <= extent] for extent in image)
    found = [
        (first, second)
        for first in rows
        for second in columns
        if first.outputs == second.outputs or (first.outputs > second.outputs and not is_plain)
    ]
    return found if len(found) > 1 else []


def filter_growth(tiling: Tiling) -> float:
    """The ratio of the sizes of the transformed filters and the filter; 1 for the direct convolution."""
    return prod(each.num_components / each.transforms.num_taps for each in tiling)


# The price of a convolution in tiles: the seconds of its graph, measured or estimated, with a margin.
#
#     convolutions   operations at the rate of the kernel, and bytes of the filter at its bandwidth
#     other ops      bytes read and written at the bandwidth of the cache or of memory; none for a Reshape
#     any op         a constant
#
# A formula with the same terms was compared with 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), in five
# tilings: its ratio of the two times is 5 % too large on average and within 10 % of the measured one, and the chosen tiling
# takes 1 % longer than the best.

_ELEMENT, _NODE_BYTES = 4, 200  # bytes of an element, and of a node in the file
_MEASURED_TILINGS = 3
_MEASURED_RATIO = 2.0  # of an estimate to that of the direct convolution
_CREATION_SECONDS_PER_OP, _CREATION_SECONDS_PER_BYTE = 25e-6, 0.7e-9  # of a session
_MARGIN, _MARGIN_OF_GROWTH = 1.03, 0.05  # for any tiling, and for every time that its filters are as large


class MachineRates(Record):
    """The measured rates of a machine.

    The defaults are fitted to one thread of an AMD EPYC (family 26) with AVX-512, blocks of 16, onnxruntime 1.31.1. With
    more threads all rates grow, and their ratios, on which the choice depends, stay about the same.
    """

    flops: float = 226e9  # operations of blocked convolutions per second
    filter_bandwidth: float = 25e9  # bytes of filters read per second
    cache_bandwidth: float = 60e9  # bytes per second that transforms read and write if the arrays fit the cache
    memory_bandwidth: float = 35e9  # the same for larger arrays
    cache_bytes: float = 12e6  # the largest size of input and output that fits the cache
    op_seconds: float = 0.6e-6  # of any op
    runs: float = 28.0  # of a session, which share the seconds of its creation; 10 for `sessions="fast"`
    tiling_time_factor: float = 1.0  # a factor of the estimates of tilings


MACHINE_RATES = {
    16: MachineRates(),
    8: MachineRates(tiling_time_factor=1.1),
    PLAIN: MachineRates(tiling_time_factor=1.3),
}
"""Rates by block size. Machines without AVX-512 were not measured: they compute at half the rate or less with the same memory,
so these rates are conservative, and so are the estimates. The factor of plain arrays makes them so in OpenVINO 2026.4.1 with
AVX2, where the ratios of 7 shapes were measured."""


class Candidate(Struct, eq=False):
    """A way to compute a convolution.

    Attributes:
        tiling: its tiles.
        graph: a lowered graph of the convolution alone.
        seconds: of a run.
        rates: of the machine.
    """

    tiling: Tiling
    graph: Graph
    seconds: float
    rates: MachineRates

    @property
    def price(self) -> float:
        """The seconds of a run, with a margin for a larger rounding error, and its share of those of session creation."""
        growth = filter_growth(self.tiling)
        nbytes = sum(value.data.nbytes for value in self.graph.values if value.data is not None)
        creation = _CREATION_SECONDS_PER_OP * len(self.graph.ops) + _CREATION_SECONDS_PER_BYTE * nbytes
        return self.seconds * (_MARGIN + _MARGIN_OF_GROWTH * growth if growth > 1 else 1) + creation / self.rates.runs


def candidates(
    op: Op, block: int, rates: MachineRates, rewriter: type["WinogradRewriter"], sizes: Sizes = NO_SIZES
) -> list[Candidate]:
    """The direct convolution, and at most three tilings whose estimates are not much longer."""
    graphs = {each: convolution_graph(op, each, block, rewriter) for each in tilings(op, block)}
    direct, *tiled = (Candidate(each, graph, _seconds(graph, rates, sizes), rates) for each, graph in graphs.items())
    for each in tiled:
        each.seconds *= rates.tiling_time_factor
    tiled.sort(key=lambda each: each.seconds)
    return [direct, *(each for each in tiled[:_MEASURED_TILINGS] if each.seconds <= _MEASURED_RATIO * direct.seconds)]


def faster(found: Sequence[Candidate]) -> list[Candidate]:
    """The tilings that cost less than the direct convolution, which is the first candidate, the cheapest first."""
    direct, *tiled = found
    return sorted((each for each in tiled if each.price < direct.price), key=lambda each: each.price)


def _seconds(graph: Graph, rates: MachineRates, sizes: Sizes) -> float:
    """The estimated seconds of a graph of one convolution."""

    def nbytes(values: Iterable[Value | None]) -> float:
        return _ELEMENT * sum(sizes.elements(each.dims) for each in values if each is not None and each.data is None)

    fits_cache = nbytes((*graph.inputs, *graph.outputs)) <= rates.cache_bytes
    bandwidth = rates.cache_bandwidth if fits_cache else rates.memory_bandwidth
    total = rates.op_seconds * len(graph.ops)
    for op in graph.ops:
        if op.op_type == "Conv" and op.integer("group", 1) == 1:
            assert op.inputs[1] is not None
            products, pixels = sizes.elements(op.inputs[1].dims), sizes.elements((op.y.dims[0], *op.y.dims[2:]))
            total += 2 * products * pixels / rates.flops + _ELEMENT * products / rates.filter_bandwidth
        elif op.op_type != "Reshape":
            total += nbytes((*op.inputs, *op.outputs)) / bandwidth
    return total


def convolution_graph(op: Op, tiling: Tiling, block: int, rewriter: type["WinogradRewriter"]) -> Graph:
    """A lowered graph of one convolution in tiles."""
    graph = Graph("convolution", {"": 18} if block == PLAIN else {"": 18, DOMAIN: 1})
    graph.stage = "lowered"
    operands = [each for each in dict.fromkeys(op.inputs) if each is not None]
    copies = {each: graph.new_value("x", each.type, data=each.data) for each in operands}
    graph.inputs += [each for each in copies.values() if each.data is None]
    graph.outputs.append(graph.new_value("y", op.y.type))
    copy = graph.add_op(op.copy_on({**copies, op.y: graph.outputs[0]}, name="convolution", order=()))
    if filter_growth(tiling) > 1:
        rewriter(graph, copy, tiling, block).run()
    return graph


def alternatives(graph: Graph, block: int) -> tuple[list[Graph], float]:
    """The tilings to time of a lowered graph of one convolution, and the estimated speed-up of the one that is chosen."""
    (op, *others), rates = graph.ops, MACHINE_RATES.get(block)
    if others or rates is None or not tilings(op, block) or not isinstance(op.y.dims[0], int):
        return [], 1.0
    direct, *tiled = found = candidates(op, block, rates, WinogradRewriter)
    return [each.graph for each in tiled], direct.seconds / (faster(found) or found)[0].seconds


class TilingOption(Record):
    """One way to tile one convolution of a graph.

    Attributes:
        seconds: the estimated gain of one run of the model.
        nbytes: the growth of the file in bytes.
    """

    tiling: Tiling
    seconds: float
    nbytes: int


def _options(graph: Graph, op: Op, found: Sequence[Candidate], runs: float) -> list[TilingOption]:
    """The tilings that cost less than the direct convolution, the cheapest first; a filter without other readers is removed."""
    filter = op.inputs[1]
    assert filter is not None and filter.data is not None
    removed = sum(stored(filter).values()) if graph.has_one_use(filter) else 0
    options = []
    for each in faster(found):
        nodes = 4 * _NODE_BYTES * prod(axis.num_components for axis in each.tiling)  # two nodes each, and sums
        nbytes = nodes + int(filter.data.nbytes * filter_growth(each.tiling)) - removed
        options.append(TilingOption(each.tiling, runs * (found[0].seconds - each.seconds), nbytes))
    return options


@dataclass(frozen=True, slots=True)
class Winograd(Pass):
    """Compute 3x3 convolutions with fewer products if that is faster, within the permitted growth of the file.

    before: Conv(3x3)
    after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

    The tiles of each convolution, or none, are selected by their times where they can be measured, else by estimates.
    """

    name = "winograd"
    justifies_rewrite = False
    handles_bodies = True

    def block(self, context: PassContext) -> int:
        """The block size of the arrays; 0 if no convolution is rewritten."""
        return context.block

    @property
    def rewriter(self) -> type["WinogradRewriter"]:
        """The class that writes a convolution in tiles."""
        return WinogradRewriter

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite convolutions of the main graph and its bodies, whose residuals and activations have been fused."""
        block = self.block(context)
        if (rates := MACHINE_RATES.get(block)) is None:
            return
        rates = replace(rates, runs=10.0) if context.sessions == "fast" else rates
        runs = expected_runs(graph)
        sites = {
            op: each
            for each in regions_with_rule(graph)
            for op in each.ops
            if tilings(op, block) and context.may_change_rounding(self, op.y)
        }
        shapes = {_shape_key(op): op for op in sites}
        shared = {key: candidates(op, block, rates, self.rewriter, context.sizes) for key, op in shapes.items()}
        found = {op: shared[_shape_key(op)] for op in sites}
        if context.time_graphs is not None:
            ranked = sorted(sites, key=lambda op: -runs[sites[op]] * found[op][0].seconds)
            _time([found[op] for op in ranked if isinstance(op.y.dims[0], int)], context.time_graphs)
        options = {op: _options(each, op, found[op], runs[each]) for op, each in sites.items()}
        gains = {op: several[0].seconds / max(1, several[0].nbytes) for op, several in options.items() if several}
        budget, chosen = context.budget(self, graph), dict[Op, Tiling]()
        for op in sorted(gains, key=gains.__getitem__, reverse=True):
            option = next((each for each in options[op] if each.nbytes <= budget.remaining), options[op][0])
            if budget.request(op.name, option.nbytes, option.seconds):
                chosen[op] = option.tiling
        for op, each in sites.items():
            if op in chosen:
                context.changed_rounding(self, op.y)
                self.rewriter(each, op, chosen[op], block).run()


def _shape_key(op: Op) -> Hashable:
    """Everything that the time of a convolution depends on, besides its elements."""
    return tuple(value and value.type for value in op.inputs), tuple(sorted(op.attributes.items()))


def _time(found: Sequence[list[Candidate]], time_graphs: TimeGraphs) -> None:
    """Measure the candidates of convolutions of which the direct one and at least one tiling can be timed."""
    pending = [*dict.fromkeys(each for several in found for each in several)]
    times = dict(zip(pending, time_graphs([each.graph for each in pending]), strict=True))
    for several in found:
        timed = {each: seconds for each in several if (seconds := times[each]) is not None}
        if several[0] in timed and len(timed) > 1:
            several[:] = timed
            for each, seconds in timed.items():
                each.seconds = seconds


# The constants of convolutions in tiles.


@lru_cache(maxsize=1)
def _elements(data: Data) -> Array:
    """The elements of a filter; the last one stays in memory, since a file has the components of one consecutively."""
    return data.numpy()


class TransformedFilter(RandomAccess):
    """One component of a packed 3x3 filter (O, I, H, W), OIHW{b}i{b}o: rows, or rows and columns, times `coefficients`."""

    def __init__(self, data: Data, filters: int, channels: int, block: int, coefficients: Array) -> None:
        self._data: Any = data  # hashable
        self._coefficients = coefficients
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

Arrays: TypeAlias = list[Value]
Component: TypeAlias = Callable[[int, Arrays | None, bool], Arrays]
"""A component, by its index, plus an addend; activated if it is the last term of a result."""


class WinogradRewriter:
    """Replaces one convolution by its Winograd form in tiles along rows and columns."""

    def __init__(self, graph: Graph, op: Op, tiling: Tiling, block: int) -> None:
        self._graph = graph
        self._op = op
        self._tiling = tiling
        self._block = block
        assert op.inputs[1] is not None
        self._filter = op.inputs[1]
        self._filters, self._channels, *_ = map(estimated_extent, self._filter.dims)
        self._bias, self._residual = op.input(2), op.input(3)
        self._activation = {name: each for name, each in op.attributes.items() if name.startswith("activation")}
        self._depthwise_filters: dict[Hashable, Value] = {}
        sizes = "x".join(f"{each.outputs}of{each.transforms.num_taps}" for each in tiling)
        self._build = rewriting(graph, op, f"winograd/{sizes}")

    def run(self) -> None:
        """Replace the convolution."""
        op, (rows, columns) = self._op, self._tiling
        phases = self._outputs(rows, self._row, [None] * rows.outputs, self._residual is None)
        images = op.y.dims[0] * (self._filters // self._block)
        lines = [self._interleaved(phase, images * rows.count, columns, self._block) for phase in phases]
        whole = self._interleaved(lines, images, rows, columns.extent * self._block)
        result = self._build.reshape(whole, op.y.dims)
        if self._residual is not None:
            (result,) = self._sum([self._residual], 1, [result], bool(self._activation))
        self._build.set_output(0, result)
        self._replace()

    def _replace(self) -> None:
        """Replace the convolution by the ops that compute output 0 of the builder."""
        replace_op(self._graph, self._op, self._build)
        if not self._graph.is_used(self._filter):
            self._graph.remove_value(self._filter)

    def _outputs(
        self, tiles: Tiles, component: Component, added: Sequence[Arrays | None], is_final: bool
    ) -> list[Arrays]:
        """The output transform A^T of rows or columns: every output of a tile, plus its addend."""
        last = tiles.num_components - 1
        pairs: dict[int, tuple[Arrays, Arrays]] = {}  # sums for even outputs, differences for odd ones
        for first in range(1, last, 2):
            plus, minus = component(first, None, False), component(first + 1, None, False)
            pairs[first] = self._each("Add", plus, minus), self._each("Sub", plus, minus)
        found = []
        for output, total in enumerate(added):
            edge = {0: 0, tiles.outputs - 1: last}.get(output)
            for first, pair in pairs.items():
                is_last = is_final and edge is None and first == last - 2
                total = self._sum(total, tiles.transforms.outputs[output, first], pair[output % 2], is_last)
            result = total if edge is None else component(edge, total, is_final)
            assert result is not None  # an axis that is not tiled has the edge 0, any other one a pair
            found.append(result)
        return found

    def _row(self, row: int, added: Arrays | None, is_final: bool) -> Arrays:
        """A component of rows: an array for every output of a tile of columns."""
        columns = self._tiling[1]
        separate = [None] * columns.outputs if added is None else [[each] for each in added]
        return [each for (each,) in self._outputs(columns, partial(self._product, row), separate, is_final)]

    def _sum(self, total: Arrays | None, factor: float, terms: Arrays, is_final: bool) -> Arrays:
        """total + factor * terms, activated if `is_final`; the terms, of factor 1, without a total."""
        if total is None:
            return terms
        if factor == 1 and not is_final:
            return self._each("Add", total, terms)
        filter = self._depthwise(self._filters, np.full((1, 1), factor))
        pairs = zip(total, terms, strict=True)
        return [self._conv([term, filter, None, each], each.dims[2:], is_final) for each, term in pairs]

    def _each(self, kind: str, first: Arrays, second: Arrays) -> Arrays:
        pairs = zip(first, second, strict=True)
        return [self._build.result(kind, pair, float32_type(pair[0].dims)) for pair in pairs]

    def _product(self, row: int, column: int, added: Arrays | None, is_final: bool) -> Arrays:
        """The convolution of one component: of its transformed input with its transformed filter."""
        component = row, column
        # Every output has the point 1 with factor 1.
        bias = self._bias if component == tuple(int(each.outputs > 1) for each in self._tiling) else None
        (rows, top, bottom), (columns, left, right) = map(Tiles.input_taps, self._tiling, component)
        extents, steps = tuple(each.count for each in self._tiling), tuple(each.outputs for each in self._tiling)
        image: list[Value | None] = [self._op.x, self._depthwise(self._channels, np.outer(rows, columns))]
        transformed = self._conv(image, extents, False, pads=(top, left, bottom, right), strides=steps)
        border = int(self._tiling[1].outputs == 1)
        operands = [transformed, self._transformed_filter(component), bias, *(added or ())]
        return [self._conv(operands, extents, is_final, pads=(0, border, 0, border))]

    def _conv(self, operands: list[Value | None], image: Shape, is_final: bool, **fields: Attribute) -> Value:
        """The output of a convolution, depthwise if its filter has one input channel; activated if `is_final`."""
        while operands[-1] is None:
            operands.pop()
        assert operands[1] is not None
        filters, channels, *kernel = map(estimated_extent, operands[1].dims)
        fields |= {"group": filters if channels == 1 else 1, "kernel_shape": tuple(kernel)}
        shape = (self._op.y.dims[0], filters, *image)
        return kernel_call(self._build, "Conv", operands, shape, **fields, **(self._activation if is_final else {}))

    def _depthwise(self, channels: int, coefficients: Array) -> Value:
        """A depthwise filter (C, 1, H, W) with the same H x W coefficients for all channels, packed OIHW{b}o."""
        key = channels, coefficients.shape, coefficients.tobytes()
        if key not in self._depthwise_filters:
            extents = (channels // self._block, *coefficients.shape, self._block)
            array = np.broadcast_to(coefficients[:, :, None], extents).astype(np.float32)
            shape = channels, 1, *coefficients.shape
            self._depthwise_filters[key] = self._build.constant(array.reshape(shape), "transform")
        return self._depthwise_filters[key]

    def _transformed_filter(self, component: tuple[int, int]) -> Value:
        """The transformed filter of a component, given by its indices along rows and columns."""
        rows, columns = (each.transforms.filters[index] for each, index in zip(self._tiling, component, strict=True))
        assert self._filter.data is not None
        data = TransformedFilter(self._filter.data, self._filters, self._channels, self._block, np.kron(rows, columns))
        value = Value(f"{self._filter.name}/winograd", float32_type(data.shape), data=data)
        self._build.constants.append(value)
        return value

    def _interleaved(self, pieces: Arrays, outer: Dim, tiles: Tiles, inner: int) -> Value:
        """(outer, tiles, inner), one for every output of a tile  -->  (outer, outputs of all tiles, inner)."""
        if len(pieces) == 1:
            return pieces[0]
        all_tiles, all_outputs = outer * tiles.count, tiles.count * tiles.outputs
        views = [self._build.reshape(piece, (all_tiles, 1, inner)) for piece in pieces]
        whole = self._build.result("Concat", views, float32_type((all_tiles, len(pieces), inner)), {"axis": 1})
        if tiles.extent == all_outputs:
            return whole
        return self._build.resize_axis(self._build.reshape(whole, (outer, all_outputs, inner)), 1, tiles.extent)
