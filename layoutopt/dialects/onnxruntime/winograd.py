"""Winograd's minimal filtering: convolutions with fewer multiplications, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of four
rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

before: Conv(3x3)
after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

The tiles of each convolution, or none, are selected by their times where they can be measured, else by estimates.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.dialects.onnxruntime.winograd_kernels import (
    FAST_SESSIONS_OP_SECONDS,
    MACHINE_RATES,
    Constants,
    ConvolutionAxis,
    MachineRates,
    Site,
    Tiles,
    WinogradRewriter,
    can_be_tiled,
    direct_convolution_seconds,
    filter_growth,
    minimal_filtering,
    site_of,
    winograd_seconds,
)
from layoutopt.ir.constants import stored, stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Value
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import Pass, PassContext, TimeGraphs

# Selects the convolutions to rewrite within a limit on the growth of the file.
#
# This multiple-choice knapsack problem is solved greedily: tilings are taken in the order of seconds per byte, and a
# tiling replaces another one of the same convolution if it gains more and fits. With tens of small items the result is
# close to the optimum.

_NODE_BYTES = 200  # of a node in the file


@dataclass(frozen=True, slots=True)
class TilingOption:
    """One way to tile one convolution.

    Attributes:
        graph: the graph of the convolution.
        site: the convolution.
        tiles: the tiles of rows and columns.
        seconds: the estimated gain of one run of the model.
    """

    graph: Graph
    site: Site
    tiles: tuple[Tiles, Tiles]
    seconds: float

    @property
    def filter_bytes(self) -> int:
        """The size of the transformed filter."""
        assert self.site.filter.data is not None
        return int(self.site.filter.data.nbytes * filter_growth(self.tiles))

    @property
    def nbytes(self) -> int:
        """The growth of the file in bytes if no other convolution reads the filter."""
        return self.filter_bytes + self.node_bytes - sum(stored(self.site.filter).values())

    @property
    def node_bytes(self) -> int:
        """The size of the nodes: two for every component, and sums."""
        rows, columns = self.tiles
        return _NODE_BYTES * 4 * rows.num_components * columns.num_components

    @property
    def filter_key(self) -> Hashable:
        """A key that is equal for options with the same transformed filter."""
        return self.graph, self.site.filter, tuple(each.algorithm for each in self.tiles)


def select(options: Sequence[TilingOption], budget: float) -> list[TilingOption]:
    """One option for each convolution, or none, so that the file grows by no more than `budget` bytes."""
    best: dict[Hashable, TilingOption] = {
        option.site.op: option for option in sorted(options, key=lambda each: each.seconds)
    }
    if total_bytes(best.values()) > budget:
        best = _densest(options, budget)
    positions = {option.site.op: position for position, option in enumerate(options)}
    return sorted(best.values(), key=lambda option: positions[option.site.op])


def _densest(options: Sequence[TilingOption], budget: float) -> dict[Hashable, TilingOption]:
    best: dict[Hashable, TilingOption] = {}
    for option in sorted(options, key=lambda each: each.seconds / max(1, each.nbytes), reverse=True):
        before = best.get(option.site.op)
        if before is not None and before.seconds >= option.seconds:
            continue
        changed = {**best, option.site.op: option}
        if total_bytes(changed.values()) <= budget:
            best = changed
    return best


def total_bytes(chosen: Iterable[TilingOption]) -> int:
    """The growth of the file in bytes: shared filters count once, and originals without other readers are removed."""
    chosen = list(chosen)
    filters = {option.filter_key: option.filter_bytes for option in chosen}
    readers: dict[tuple[Graph, object], list[TilingOption]] = {}
    for option in chosen:
        readers.setdefault((option.graph, option.site.filter), []).append(option)
    released = 0
    for (graph, _), reading in readers.items():
        filter = reading[0].site.filter
        if graph.use_count(filter) == len(reading) and not graph.is_output(filter):
            released += sum(stored(filter).values())
    return sum(filters.values()) + sum(option.node_bytes for option in chosen) - released


def record_growth(growth: Growth, options: Sequence[TilingOption], chosen: Sequence[TilingOption]) -> None:
    """Record the chosen options, and for every other convolution the option with the largest gain as declined."""
    accepted = {option.site.op for option in chosen}
    declined: dict[Hashable, TilingOption] = {}
    for option in options:
        op = option.site.op
        if op not in accepted and (op not in declined or option.seconds > declined[op].seconds):
            declined[op] = option
    for each, is_accepted in [*((each, True) for each in chosen), *((each, False) for each in declined.values())]:
        growth.record("winograd", each.site.op.name, each.nbytes, each.seconds, is_accepted=is_accepted)


# Measured times of convolutions, direct and in tiles: each as a graph of its own, which the caller times.
#
# site  -->  x -> Conv -> y        x -> 36 depthwise Conv -> 36 Conv(1x1) -> ... -> y

Tiling: TypeAlias = tuple[Tiles, Tiles]


class MeasuredTimes:
    """The seconds of convolutions by shape and tiling.

    Args:
        time: times graphs; the seconds of each, None for one that was not timed.
        block: channels of a block.
    """

    def __init__(self, time: TimeGraphs, block: int) -> None:
        self._time = time
        self._block = block
        self._seconds: dict[tuple[Hashable, Tiling | None], float] = {}

    def measure(self, tilings_by_site: Iterable[tuple[Site, Sequence[Tiling]]]) -> None:
        """Time convolutions directly and in tiles, in the given order; symbolic batches have no times."""
        graphs: dict[tuple[Hashable, Tiling | None], Graph] = {}
        for site, tilings in tilings_by_site:
            if not isinstance(site.batch, int):
                continue
            for tiling in (None, *tilings):
                key = (_timing_key(site), tiling)
                if key not in graphs and key not in self._seconds:
                    graphs[key] = convolution_graph(site, tiling, self._block)
        found = zip(graphs, self._time([*graphs.values()]), strict=True)
        self._seconds |= {key: seconds for key, seconds in found if seconds is not None}

    def seconds(self, site: Site, tiling: Tiling | None) -> float | None:
        """The time of a convolution in tiles, or of the direct one; None if it was not timed."""
        return self._seconds.get((_timing_key(site), tiling))


def convolution_graph(site: Site, tiling: Tiling | None, block: int) -> Graph:
    """A lowered graph of one convolution, in tiles unless `tiling` is None."""
    graph = Graph("convolution", {"": 18, DOMAIN: 1})
    graph.stage = "lowered"
    copies: dict[Value, Value] = {}
    for index, value in enumerate(site.op.inputs):
        if value is not None and value not in copies:
            copies[value] = graph.add_value(Value(f"x{index}", value.type, data=value.data))
            if value.data is None:
                graph.inputs.append(copies[value])
    y = graph.add_value(Value("y", site.y.type))
    op = site.op.copy(tuple(value and copies[value] for value in site.op.inputs), (y,), name="convolution", order=())
    graph.add_op(op)
    graph.outputs.append(y)
    if tiling is not None:
        copy = site_of(op, block)
        assert copy is not None
        WinogradRewriter(graph, Constants(graph, block), copy, tiling).run()
    return graph


def _timing_key(site: Site) -> Hashable:
    """Everything that the time of a convolution depends on, besides its elements."""
    operands = site.bias is not None, site.residual is not None
    return site.batch, site.channels, site.filters, site.axes, operands, tuple(sorted(site.activation.items()))


_OUTPUTS = (2, 4)
_MEASURED_TILINGS = 3
_MEASURED_RATIO = 2.0  # of an estimate to the least one


@dataclass(frozen=True, slots=True)
class Winograd(Pass):
    """Compute 3x3 convolutions with fewer products if that is faster, within the permitted growth of the file.

    The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of
    four rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

    before: Conv(3x3)
    after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

    The tiles of each convolution, or none, are selected by their times where they can be measured, else by estimates.

        algorithm   the transform matrices in rational arithmetic
        site        the properties of a convolution, and the tiles of its image
        estimate    the estimated times of a convolution, direct and in tiles
        measured    the measured times
        selection   the convolutions to rewrite within the limit on the growth of the file
        constants   the transformed filters
        rewrite     the ops of a convolution in tiles

    Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).

    Attributes:
        rates: the rates of the machine; by default those measured for the block size.
    """

    rates: MachineRates | None = None

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
            rates = replace(rates, op_seconds=FAST_SESSIONS_OP_SECONDS)
        runs = expected_runs(graph)
        sites = [
            (each, site)
            for each in regions_with_rule(graph)
            for op in each.ops
            if (site := site_of(op, block)) is not None and context.may_change_rounding(self, site.y) and tilings(site)
        ]
        times = MeasuredTimes(context.time_graphs, block) if context.time_graphs is not None else None
        if times is not None:
            ranked = sorted(sites, key=lambda each: -runs[each[0]] * direct_convolution_seconds(each[1], rates))
            times.measure((site, promising(site, rates)) for _, site in ranked)
        options = [option for each, site in sites for option in _options(each, site, Prices(rates, times), runs[each])]
        chosen = select(options, context.growth.limit - stored_bytes(graph.regions()))
        record_growth(context.growth, options, chosen)
        constants = {each: Constants(each, block) for each in dict.fromkeys(option.graph for option in chosen)}
        for option in chosen:
            site = site_of(option.site.op, block)  # its operands may be the results of a convolution that was rewritten
            assert site is not None
            context.changed_rounding(self, site.y)
            WinogradRewriter(option.graph, constants[option.graph], site, option.tiles).run()


@dataclass(frozen=True, slots=True)
class Prices:
    """The seconds of convolutions: measured if the direct one and at least one tiling are, else estimated.

    Attributes:
        rates: the rates of the machine.
        measured: the measured times, if there are any.
    """

    rates: MachineRates
    measured: MeasuredTimes | None = None

    def of(self, site: Site) -> tuple[float, dict[tuple[Tiles, Tiles], float], float]:
        """The seconds of the direct convolution and of the usable tilings, and the smallest speed-up worth a rewrite."""
        usable = [each for each in tilings(site) if filter_growth(each) <= self.rates.max_filter_growth]
        if self.measured is not None and (direct := self.measured.seconds(site, None)) is not None:
            found = {each: self.measured.seconds(site, each) for each in usable}
            timed = {each: seconds for each, seconds in found.items() if seconds is not None}
            if timed:
                return direct, timed, self.rates.min_measured_speedup
        estimates = {each: winograd_seconds(site, each, self.rates) for each in usable}
        return direct_convolution_seconds(site, self.rates), estimates, self.rates.min_speedup


def _options(graph: Graph, site: Site, prices: Prices, runs: float) -> list[TilingOption]:
    """The best tiling of a convolution, and those that are faster than no tiling and have smaller filters than the best."""
    best = choose(site, prices)
    if best is None:
        return []
    direct, tiled, min_speedup = prices.of(site)
    found = []
    for tiles, seconds in tiled.items():
        is_smaller = filter_growth(tiles) < filter_growth(best) and seconds <= direct / min_speedup
        if tiles == best or is_smaller:
            found.append(TilingOption(graph, site, tiles, runs * (direct - seconds)))
    return found


def choose(site: Site, prices: Prices) -> tuple[Tiles, Tiles] | None:
    """The tiles of rows and columns for a convolution; None if no tiling is faster.

    Of tilings with about equal times, the one with the smallest filters, which is also the most accurate.
    """
    direct, seconds, min_speedup = prices.of(site)
    limit = min(min(seconds.values(), default=0.0) * prices.rates.tie_ratio, direct / min_speedup)
    return min((each for each in seconds if seconds[each] <= limit), key=filter_growth, default=None)


def promising(site: Site, rates: MachineRates) -> list[tuple[Tiles, Tiles]]:
    """The tilings to time: at most three, whose estimates are at most twice that of the fastest one.

    There are none if the estimate of the fastest tiling is more than twice that of the direct convolution. The margin is wide,
    because all machines with the same block size have the same estimates.
    """
    usable = [each for each in tilings(site) if filter_growth(each) <= rates.max_filter_growth]
    seconds = {each: winograd_seconds(site, each, rates) for each in usable}
    limit = min(seconds.values(), default=0.0) * _MEASURED_RATIO
    fastest = sorted((each for each in usable if seconds[each] <= limit), key=seconds.__getitem__)[:_MEASURED_TILINGS]
    return fastest if limit and seconds[fastest[0]] <= _MEASURED_RATIO * direct_convolution_seconds(site, rates) else []


def promising_alternatives(graph: Graph, block: int) -> list[Graph]:
    """The promising tilings of a lowered graph that consists of one convolution; none for any other graph."""
    site, rates = _only_site(graph, block), MACHINE_RATES.get(block)
    if site is None or rates is None:
        return []
    return [convolution_graph(site, tiling, block) for tiling in promising(site, rates)]


def estimated_speed_up(graph: Graph, block: int) -> float:
    """The estimated speed-up of a lowered graph that consists of one convolution; 1 if no tiling would be chosen.

    The pass chooses by the same estimates where no tiling of a convolution was timed.
    """
    site, rates = _only_site(graph, block), MACHINE_RATES.get(block)
    if site is None or rates is None:
        return 1.0
    prices = Prices(rates)
    tiling = choose(site, prices)
    if tiling is None:
        return 1.0
    direct, seconds, _ = prices.of(site)
    return direct / seconds[tiling]


def _only_site(graph: Graph, block: int) -> Site | None:
    """The site of a graph that consists of one convolution with a known batch; None for any other graph, or without blocks."""
    site = site_of(graph.ops[0], block) if block and len(graph.ops) == 1 else None
    return site if site is not None and isinstance(site.batch, int) else None


def tilings(site: Site) -> list[tuple[Tiles, Tiles]]:
    """The ways to cut the image of a convolution into tiles.

    No tile is wider than high if rows can be tiled, because interleaving columns moves blocks one by one, which takes longer.
    """
    rows, columns = (_tilings_along(axis) for axis in site.axes)
    pairs = [(first, second) for first in rows for second in columns if first.algorithm or second.algorithm]
    return [pair for pair in pairs if len(rows) == 1 or pair[0].outputs >= pair[1].outputs]


def _tilings_along(axis: ConvolutionAxis) -> list[Tiles]:
    algorithms = [minimal_filtering(outputs, axis.kernel) for outputs in _OUTPUTS]
    usable = [each for each in algorithms if each is not None and can_be_tiled(axis, each)]
    return [Tiles(axis, None), *(Tiles(axis, each) for each in usable)]


__all__ = [
    "MachineRates",
    "MeasuredTimes",
    "Prices",
    "Winograd",
    "choose",
    "convolution_graph",
    "estimated_speed_up",
    "promising_alternatives",
    "tilings",
]
