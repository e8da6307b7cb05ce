"""Convolutions with fewer multiplications: Winograd's minimal filtering, written with onnxruntime's kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. In tiles of
four rows it takes 4.5, in tiles of 4 x 4 outputs 2.25, of the same kernel, which reaches the same speed on the rest.

before: Conv(3x3)
after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

Which tiles, and whether any, is decided for each convolution by the time that `estimate` expects.

    algorithm   the matrices, exactly
    site        which convolutions, and how their images are cut into tiles
    estimate    what is faster
    selection   which convolutions, if the file may not grow by the filters of all
    constants   the transformed filters
    rewrite     the ops

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

from dataclasses import dataclass, replace

from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import minimal_filtering
from layoutopt.dialects.onnxruntime.passes.winograd.constants import Constants
from layoutopt.dialects.onnxruntime.passes.winograd.estimate import (
    FAST_SESSIONS_OP,
    SPEEDS,
    Speeds,
    direct_seconds,
    filter_growth,
    winograd_seconds,
)
from layoutopt.dialects.onnxruntime.passes.winograd.rewrite import Writer
from layoutopt.dialects.onnxruntime.passes.winograd.selection import Option, record, select
from layoutopt.dialects.onnxruntime.passes.winograd.site import Axis, Site, Tiles, can_be_tiled, site_of
from layoutopt.ir.deferred import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ops.region_ops import expected_runs, region_tree
from layoutopt.passes.base import Pass, PassContext

__all__ = ["Speeds", "Winograd", "choose", "tilings"]

_OUTPUTS = (2, 4)


@dataclass(frozen=True, slots=True)
class Winograd(Pass):
    """Compute 3x3 convolutions with fewer products where that is estimated to be faster, as many as the file may grow by.

    Attributes:
        speeds: of the machine; by default those measured for the block.
    """

    speeds: Speeds | None = None

    name = "winograd"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite convolutions of the main graph and its bodies, whose residuals and activations have been fused."""
        speeds, block = self.speeds or SPEEDS.get(context.block), context.block
        if speeds is None:
            return
        if context.sessions == "fast":
            speeds = replace(speeds, op=FAST_SESSIONS_OP)
        runs = expected_runs(graph)
        options = [
            option
            for each in region_tree(graph)
            for op in each.ops
            if (site := site_of(op, block)) is not None
            for option in _options(each, site, speeds, runs[each])
        ]
        chosen = select(options, context.growth.limit - stored_bytes(graph.regions()))
        record(context.growth, options, chosen)
        constants = {each: Constants(each, block) for each in dict.fromkeys(option.graph for option in chosen)}
        for option in chosen:
            site = site_of(option.site.op, block)  # its operands may be the results of a convolution that was rewritten
            assert site is not None
            Writer(option.graph, constants[option.graph], site, option.tiles).run()


def _options(graph: Graph, site: Site, speeds: Speeds, runs: float) -> list[Option]:
    """The best tiling of a convolution, and those that are faster than no tiling and have smaller filters than the best."""
    best = choose(site, speeds)
    if best is None:
        return []
    direct = direct_seconds(site, speeds)
    found = []
    for tiles in tilings(site):
        seconds = winograd_seconds(site, tiles, speeds)
        is_smaller = filter_growth(tiles) < filter_growth(best) and seconds <= direct / speeds.gain
        if tiles == best or is_smaller:
            found.append(Option(graph, site, tiles, runs * (direct - seconds)))
    return found


def choose(site: Site, speeds: Speeds) -> tuple[Tiles, Tiles] | None:
    """The tiles of rows and columns that a convolution is computed in; None if it should stay as it is.

    Of tilings that are about as fast, the one with the smallest filters, which is the most accurate one too.
    """
    candidates = [each for each in tilings(site) if filter_growth(each) <= speeds.growth]
    seconds = {each: winograd_seconds(site, each, speeds) for each in candidates}
    limit = min(min(seconds.values(), default=0.0) * speeds.tie, direct_seconds(site, speeds) / speeds.gain)
    return min((each for each in candidates if seconds[each] <= limit), key=filter_growth, default=None)


def tilings(site: Site) -> list[tuple[Tiles, Tiles]]:
    """The ways to cut the image of a convolution into tiles.

    Never wider than high if rows can be tiled: columns are put side by side block by block, which takes longer.
    """
    rows, columns = (_along(axis) for axis in site.axes)
    pairs = [(first, second) for first in rows for second in columns if first.algorithm or second.algorithm]
    return [pair for pair in pairs if len(rows) == 1 or pair[0].outputs >= pair[1].outputs]


def _along(axis: Axis) -> list[Tiles]:
    algorithms = [minimal_filtering(outputs, axis.kernel) for outputs in _OUTPUTS]
    usable = [each for each in algorithms if each is not None and can_be_tiled(axis, each)]
    return [Tiles(axis, None), *(Tiles(axis, each) for each in usable)]
