"""Estimated times of a convolution in seconds, direct and in tiles.

    convolutions   operations at the rate of the kernel, and bytes of the filter at its bandwidth
    transforms     bytes read and written at the bandwidth of the cache or of memory, and a constant per op

Against 42 measurements of 30 shapes, from (32, 112, 112) to (256, 256, 256), each in five tilings: the estimated ratio of the
two times is 5 % too large on average and within 10 % of the measured one, and the chosen tiling takes 1 % longer than the best.
"""

from dataclasses import dataclass
from math import prod

from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles

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
"""The constant time of an op for `--sessions fast`: 0.6 us in a run, and a tenth of the 25 us that it adds to a session."""


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
