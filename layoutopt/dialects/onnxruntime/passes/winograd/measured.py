"""Measured times of convolutions, direct and in tiles: each as a graph of its own, which the caller times.

site  -->  x -> Conv -> y        x -> 36 depthwise Conv -> 36 Conv(1x1) -> ... -> y
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.dialects.onnxruntime.passes.winograd.constants import Constants
from layoutopt.dialects.onnxruntime.passes.winograd.rewrite import WinogradRewriter
from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles, site_of
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Value
from layoutopt.passes.base import TimeGraphs

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


__all__ = ["MeasuredTimes", "convolution_graph"]
