"""Selects the convolutions to rewrite within a limit on the growth of the file.

This multiple-choice knapsack problem is solved greedily: tilings are taken in the order of seconds per byte, and a tiling
replaces another one of the same convolution if it gains more and fits. With tens of small items the result is close to the
optimum.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.onnxruntime.passes.winograd.estimate import filter_growth
from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles
from layoutopt.ir.constants import stored
from layoutopt.ir.graph import Graph

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
