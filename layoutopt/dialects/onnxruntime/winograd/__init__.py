"""Convolutions with fewer multiplications: Winograd's minimal filtering, spelled with onnxruntime's own kernels.

The blocked convolution kernel is direct: 9 multiplications for every output of a 3x3 kernel and every channel. In tiles of
four rows it takes 4.5, in tiles of 4 x 4 outputs 2.25, of the same kernel, which reaches the same speed on the rest.

before: Conv(3x3)
after:  36 x depthwise Conv (B^T d) -> 36 x Conv(1x1) -> Add, Sub, depthwise Conv(1x1) (A^T) -> 5 x Concat

Which tiles, and whether any, is decided for each convolution by the time that `estimate` expects.

    algorithm   the matrices, exactly
    site        which convolutions, and how their images are cut into tiles
    estimate    what is faster
    constants   the transformed filters
    rewrite     the ops

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv 1509.09308).
"""

from layoutopt.dialects.onnxruntime.winograd.algorithm import minimal_filtering
from layoutopt.dialects.onnxruntime.winograd.constants import Constants
from layoutopt.dialects.onnxruntime.winograd.estimate import (
    SPEEDS,
    Speeds,
    direct_seconds,
    filter_growth,
    winograd_seconds,
)
from layoutopt.dialects.onnxruntime.winograd.rewrite import Writer
from layoutopt.dialects.onnxruntime.winograd.site import Axis, Site, Tiles, can_be_tiled, site_of
from layoutopt.ir.graph import Graph

__all__ = ["Speeds", "choose", "tilings", "winograd"]

_OUTPUTS = (2, 4)


def winograd(graph: Graph, block: int, speeds: Speeds | None = None) -> None:
    """Rewrite the convolutions that become faster.

    Args:
        graph: a lowered graph, residuals and activations fused.
        block: how many channels the block of its arrays and filters has; 0 if there are none.
        speeds: of the machine; by default those measured for the block.
    """
    speeds = speeds or SPEEDS.get(block)
    if speeds is None:
        return
    constants = Constants(graph, block)
    for op in graph.ops:
        site = site_of(op, block)
        if site is None:
            continue
        tiles = choose(site, speeds)
        if tiles is not None:
            Writer(graph, constants, site, tiles).run()


def choose(site: Site, speeds: Speeds) -> tuple[Tiles, Tiles] | None:
    """The tiles of rows and columns that a convolution is computed in; None if it should stay as it is.

    Of tilings that are about as fast, the one with the smallest filters, which is the most accurate one too.
    """
    candidates = [each for each in tilings(site) if filter_growth(each) <= speeds.growth]
    seconds = {each: winograd_seconds(site, each, speeds) for each in candidates}
    limit = min(min(seconds.values(), default=0.0) * speeds.doubt, direct_seconds(site, speeds) / speeds.gain)
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
