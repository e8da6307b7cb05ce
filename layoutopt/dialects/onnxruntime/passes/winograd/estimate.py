"""Estimates of the seconds of a convolution, direct and by Winograd.

    a convolution    its arithmetic at the speed of the kernel, and its filter brought in
    the transforms   what they read and write at the speed of memory, and something for every op

Against 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), each in five tilings: the ratio of the two
times is 5 % too hopeful on average and right within a tenth, and the tiling chosen takes 1 % longer than the best one.
"""

from dataclasses import dataclass
from math import prod

from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles

_ELEMENT = 4  # bytes


@dataclass(frozen=True, slots=True)
class Speeds:
    """The measured rates of a machine, and the thresholds of the rewrite.

    The defaults are fitted to one thread of an AMD EPYC (family 26) with AVX-512, blocks of 16, onnxruntime 1.31.1. With
    more threads all of them grow, and the ratios, which alone decide, stay about the same.

    Attributes:
        flops: what blocked convolutions reach, in operations per second.
        filter_bytes: bytes of filters that come in per second.
        near_bytes: bytes per second that transforms read and write, as long as the arrays stay in the cache.
        far_bytes: the same for larger arrays.
        cache: how many bytes of input and output are not large in this sense.
        op: seconds that an op takes however little it does: 0.6 us measured, the rest for the 25 us that it adds to loading
            the model, spread over a few runs.
        gain: how many times as fast Winograd has to be by these estimates, which are 5 % too hopeful.
        tie: the ratio up to which two estimates count as equal.
        growth: how many times as large a filter may become.
    """

    flops: float = 226e9
    filter_bytes: float = 25e9
    near_bytes: float = 60e9
    far_bytes: float = 35e9
    cache: float = 12e6
    op: float = 1.5e-6
    gain: float = 1.1
    tie: float = 1.05
    growth: float = 4.0


SPEEDS = {16: Speeds(), 8: Speeds(gain=1.2)}
"""By block. Nothing was measured on machines without AVX-512: they compute half as fast or less, next to the same memory,
so these numbers are too careful, and the threshold is higher."""

FAST_SESSIONS_OP = 3.1e-6
"""Seconds that an op takes if sessions are to be fast: 0.6 us in a run, and a tenth of the 25 us that it takes in a session."""


def direct_seconds(site: Site, speeds: Speeds) -> float:
    """The convolution as it is."""
    rows, columns = site.axes
    return _product_seconds(site, rows.output * columns.output, rows.kernel * columns.kernel, speeds)


def winograd_seconds(site: Site, tiles: tuple[Tiles, Tiles], speeds: Speeds) -> float:
    """The convolution in tiles."""
    rows, columns = tiles
    parts = rows.parts * columns.parts
    taps = prod(each.axis.kernel for each in tiles if each.algorithm is None)
    product = _product_seconds(site, rows.count * columns.count, taps, speeds)
    moved = _batch(site) * (_input_bytes(site, tiles) + _output_bytes(site, tiles))
    image = site.channels * rows.axis.input * columns.axis.input + site.filters * rows.axis.output * columns.axis.output
    near = _ELEMENT * _batch(site) * image <= speeds.cache
    ops = 2 * parts + sum(_combinations(tiles)) + rows.outputs * (columns.outputs + 1) + 2
    return parts * product + moved / (speeds.near_bytes if near else speeds.far_bytes) + ops * speeds.op


def filter_growth(tiles: tuple[Tiles, Tiles]) -> float:
    """How many times as large the filters become."""
    return prod(each.parts / each.axis.kernel for each in tiles if each.algorithm is not None)


def _product_seconds(site: Site, pixels: int, taps: int, speeds: Speeds) -> float:
    weights = site.channels * site.filters * taps
    return 2 * weights * pixels * _batch(site) / speeds.flops + _ELEMENT * weights / speeds.filter_bytes


def _input_bytes(site: Site, tiles: tuple[Tiles, Tiles]) -> float:
    """The bytes that the input transforms read and write, for one image. A window of taps reads no element twice."""
    read = prod(
        sum(min(each.axis.input, len(each.taps(part)[0]) * each.rest.input) for part in range(each.parts))
        for each in tiles
    )
    written = prod(each.parts * each.rest.input for each in tiles)
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
    """How many sums of two arrays the output transform takes: over rows, over columns."""
    rows, columns = tiles
    both = rows.algorithm is not None and columns.algorithm is not None
    return _sums(rows) * columns.outputs, _sums(columns) * rows.parts + both * 2 * columns.outputs


def _sums(tiles: Tiles) -> int:
    """Sums over one axis besides those that products do: two for each pair of points, and those over pairs."""
    if tiles.algorithm is None:
        return 0
    pairs = len(tiles.algorithm.pairs)
    return 2 * pairs + (pairs - 1) * tiles.outputs


def _batch(site: Site) -> int:
    """The batch; one where it is not known."""
    return site.batch if isinstance(site.batch, int) else 1
