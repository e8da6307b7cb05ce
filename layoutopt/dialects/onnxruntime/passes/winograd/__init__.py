"""Winograd's minimal filtering: convolutions with fewer multiplications, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. Tiles of four
rows take 4.5, tiles of 4 x 4 outputs 2.25, by the same kernel at the same rate.

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
"""

from dataclasses import dataclass, replace

from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import minimal_filtering
from layoutopt.dialects.onnxruntime.passes.winograd.constants import Constants
from layoutopt.dialects.onnxruntime.passes.winograd.estimate import (
    FAST_SESSIONS_OP_SECONDS,
    MACHINE_RATES,
    MachineRates,
    direct_convolution_seconds,
    filter_growth,
    winograd_seconds,
)
from layoutopt.dialects.onnxruntime.passes.winograd.measured import MeasuredTimes, convolution_graph
from layoutopt.dialects.onnxruntime.passes.winograd.rewrite import WinogradRewriter
from layoutopt.dialects.onnxruntime.passes.winograd.selection import TilingOption, record_growth, select
from layoutopt.dialects.onnxruntime.passes.winograd.site import ConvolutionAxis, Site, Tiles, can_be_tiled, site_of
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import Pass, PassContext

__all__ = [
    "MachineRates",
    "Prices",
    "Winograd",
    "choose",
    "estimated_speed_up",
    "promising_alternatives",
    "tilings",
]

_OUTPUTS = (2, 4)
_MEASURED_TILINGS = 3
_MEASURED_RATIO = 2.0  # of an estimate to the least one


@dataclass(frozen=True, slots=True)
class Winograd(Pass):
    """Compute 3x3 convolutions with fewer products if that is faster, within the permitted growth of the file.

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
