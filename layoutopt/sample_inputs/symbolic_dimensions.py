"""Inference of the sizes of symbolic dimensions from a graph, with trial runs in onnxruntime.

Each dimension without a given size takes the default size of its role, the relations of the model adjust the sizes to each
other, and the model is run once. If it does not run, other sizes are tried in a fixed order.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from layoutopt.formats import Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import (
    NO_SIZES,
    Dims,
    Range,
    Sizes,
    Symbol,
    checked_ranges,
    is_symbolic,
    point_of_range,
    symbols,
)
from layoutopt.sample_inputs.constraints import Constraints
from layoutopt.sample_inputs.dimension_roles import InferredRole, Role, inferred_roles
from layoutopt.sample_inputs.relations import relations_of

RunError: TypeAlias = str
"""The error of a run of the model; empty if it succeeds."""

TrialRunner: TypeAlias = Callable[[Mapping[str, int]], RunError]
"""Runs a model at given sizes, which are mapped by the names of dimensions in the interface."""

_MAX_ELEMENTS = 1 << 25  # elements of one tensor; an inferred size that makes one larger is halved
_HALVINGS = 12
_EQUAL_SIZES = (128, 32, 1, 2, 64, 256, 16, 512, 1024)  # last resort: one size for all dimensions but the batch


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The symbolic dimensions of a graph's inputs.

    Attributes:
        symbols: the dimensions.
        given: the sizes that the caller has given, by name.
        roles: the role and default size of each, by its text in shapes.
        constraints: the relations between them.
        relaxed: two subsets of the relations: without those through anonymous inner dimensions, and also without those of
            subgraphs, which may not run.
        shapes: the symbolic shapes of all tensors.
        solutions: the results of `solved` so far.
    """

    symbols: tuple[Symbol, ...]
    given: Mapping[str, Range]
    roles: Mapping[str, InferredRole]
    constraints: Constraints
    relaxed: tuple[Constraints, ...] = ()
    shapes: tuple[Shape, ...] = ()
    solutions: dict[tuple[object, ...], dict[str, int]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, graph: Graph, dims: Dims) -> "Dimensions":
        """The symbolic dimensions of a graph.

        Raises:
            DimensionError: there is no dimension of a given name, or a size is invalid.
        """
        found = symbols(graph.inputs)
        given = checked_ranges([each.name for each in found], dims)
        if not found:
            return cls((), given, {}, Constraints())
        relations = relations_of(graph)
        texts = [each.dim for each in found]
        fixed = {each.dim for each in found if each.name in given}
        main = [each for each in relations if not each.is_conditional]
        shapes = {value.shape for each in graph.regions() for value in each.values if is_symbolic(value.shape or ())}
        return cls(
            tuple(found),
            given,
            inferred_roles(graph, found),
            Constraints.of(texts, relations, fixed),
            (
                Constraints.of(texts, relations, fixed, follow_unknown=False),
                Constraints.of(texts, main, fixed, follow_unknown=False),
            ),
            tuple(shape for shape in shapes if shape is not None),
        )

    @property
    def fixed(self) -> frozenset[str]:
        """The texts of the dimensions whose sizes are given."""
        return frozenset(each.dim for each in self.symbols if each.name in self.given)

    def default_sizes(self, at: int = 0) -> dict[str, int]:
        """The given sizes, at the low end, the middle or the high end of their ranges, and default sizes of all others."""
        return {
            each.dim: point_of_range(self.given[each.name], at)
            if each.name in self.given
            else self.roles[each.dim].default_size
            for each in self.symbols
        }

    def solved(self, proposed: Mapping[str, int], relaxation: int = 0) -> dict[str, int]:
        """Sizes near the proposed ones that meet the relations, with no tensor of more than 2^25 elements.

        Args:
            proposed: sizes of at least the dimensions that follow from no others.
            relaxation: 0 for all relations, 1 or 2 for one of the relaxed sets.
        """
        key = (tuple(sorted(proposed.items())), relaxation)
        if key not in self.solutions:
            self.solutions[key] = self._solved(dict(proposed), (self.constraints, *self.relaxed)[relaxation])
        return dict(self.solutions[key])

    def _solved(self, proposed: dict[str, int], constraints: Constraints) -> dict[str, int]:
        point = constraints.solved(proposed, self.fixed)
        for _ in range(_HALVINGS):
            if self._largest(point) <= _MAX_ELEMENTS:
                break
            reducible = [name for name in constraints.free if name not in self.fixed and proposed[name] > 1]
            if not reducible:
                break
            name = max(reducible, key=lambda each: proposed[each])
            proposed[name] = proposed[name] // 2
            point = constraints.solved(proposed, self.fixed)
        return point

    def _largest(self, point: Mapping[str, int]) -> int:
        """Elements of the largest tensor whose shape is known."""
        return max((prod(_at(shape, point)) for shape in self.shapes), default=0)

    def named(self, point: Mapping[str, int]) -> dict[str, int]:
        """A point by the names of the dimensions in the interface."""
        return {each.name: point[each.dim] for each in self.symbols}

    def candidates(self) -> Iterator[dict[str, int]]:
        """Points at which the model may run, the most plausible first, each once."""
        seen: list[dict[str, int]] = []
        for point in self._all_candidates():
            if point not in seen:
                seen.append(point)
                yield point

    def _all_candidates(self) -> Iterator[dict[str, int]]:
        defaults = self.default_sizes()
        for relaxation in range(1 + len(self.relaxed)):
            yield self.solved(defaults, relaxation)
        others = [name for name in defaults if name not in self.fixed and self.roles[name].role is not Role.BATCH]
        unread = [name for name in others if self.roles[name].is_weak]
        yield self.solved(defaults | dict.fromkeys(unread, Role.BATCH.default_size))
        for size in _EQUAL_SIZES:
            yield self.solved(defaults | dict.fromkeys(others, size))
        free = [name for name in defaults if name not in self.fixed]
        for size in _EQUAL_SIZES:
            yield defaults | dict.fromkeys(others, size)
            yield defaults | dict.fromkeys(free, size)


def _at(shape: Shape, point: Mapping[str, int]) -> list[int]:
    return [dim if isinstance(dim, int) else max(dim.at(point) or 1, 1) for dim in shape]


def plausible_sizes(dimensions: Dimensions | None, run: TrialRunner | None = None) -> Sizes:
    """The sizes that the planner uses: given or inferred.

    Args:
        dimensions: the symbolic dimensions of the graph.
        run: runs the original; None for no trial runs.
    """
    if dimensions is None or not dimensions.symbols:
        return NO_SIZES
    chosen, error, is_first = _chosen(dimensions, run)
    inferred = [each for each in dimensions.symbols if each.name not in dimensions.given]
    base = dimensions.default_sizes() | {each.dim: chosen[each.dim] for each in inferred}
    range_points = [_range_point(dimensions, base, at) for at in range(3)]
    if error or not dimensions.given:
        range_points[0] = chosen
    points = range_points if any(low != high for low, high in dimensions.given.values()) else range_points[:1]
    sizes = [dimensions.named(point) for point in points]
    ranges = {
        each.name: dimensions.given.get(each.name, (min(found := [at[each.name] for at in sizes]), max(found)))
        for each in dimensions.symbols
    }
    reasons = {each.name: _reason(dimensions, each, chosen, error) for each in inferred}
    guards = [
        point
        for point in _guards(dimensions, points)
        if is_first or run is None or not (error or run(dimensions.named(point)))
    ]
    return Sizes(ranges, tuple(reasons), tuple(points), tuple(guards), reasons)


def _chosen(dimensions: Dimensions, run: TrialRunner | None) -> tuple[dict[str, int], RunError, bool]:
    """The first candidate at which the model runs, or the first of all and its error; and whether both are the same."""
    first: tuple[dict[str, int], RunError] | None = None
    for point in dimensions.candidates():
        error = "" if run is None else run(dimensions.named(point))
        if not error:
            return point, "", first is None
        first = first or (point, error)
    assert first is not None
    return (*first, False)


def _range_point(dimensions: Dimensions, base: Mapping[str, int], at: int) -> dict[str, int]:
    """The low end (0), middle (1) or high end (2) of all given ranges, with inferred sizes that meet the relations."""
    given = {
        each.dim: point_of_range(dimensions.given[each.name], at)
        for each in dimensions.symbols
        if each.name in dimensions.given
    }
    proposed = {**base, **given}
    if not dimensions.constraints.violated(proposed) and dimensions.constraints.complete(proposed) == proposed:
        return proposed
    return dimensions.solved(proposed)


def _guards(dimensions: Dimensions, points: list[dict[str, int]]) -> tuple[dict[str, int], ...]:
    """Other sizes of inferred dimensions, at which plans are checked: all small, all large, a larger batch."""
    base = points[len(points) // 2]
    free = [name for name in dimensions.constraints.free if name not in dimensions.fixed]
    roles = {name: dimensions.roles[name].role for name in free}
    lengths = [name for name in free if roles[name] is not Role.BATCH]
    proposals = (
        {name: roles[name].small for name in lengths},
        {name: roles[name].large for name in lengths},
        {name: roles[name].large for name in free if roles[name] is Role.BATCH},
    )
    found: list[dict[str, int]] = []
    for proposed in proposals:
        point = dimensions.solved({**base, **proposed}) if proposed else base
        if point not in found and point not in points:
            found.append(point)
    return tuple(found)


def _reason(dimensions: Dimensions, symbol: Symbol, chosen: Mapping[str, int], error: RunError) -> str:
    """The reason for the inferred size of a dimension."""
    size = chosen[symbol.dim]
    definition = next((each for each in dimensions.constraints.definitions if each.name == symbol.dim), None)
    inferred = dimensions.roles[symbol.dim]
    if error:
        return f"no sizes were found at which onnxruntime runs the model: {error}"
    if definition is not None and dimensions.constraints.complete(chosen)[symbol.dim] == size:
        others = dimensions.constraints.sources(symbol.dim)
        tied = [each.name for each in dimensions.symbols if each.dim in others]
        return (
            f"{definition.relation.op} ties it to {' and '.join(tied)}"
            if tied
            else f"{definition.relation.op} requires it"
        )
    if size == inferred.default_size:
        return inferred.reason
    bounds = [each for each in dimensions.constraints.relations if symbol.dim in each.names]
    why = [f"{each.op} requires {each}" for each in bounds if not each.holds(dimensions.default_sizes())]
    return "; ".join([inferred.reason, *(why[:2] or [f"{inferred.default_size} does not run"])])


__all__ = ["Dimensions", "TrialRunner", "plausible_sizes"]
