"""Constraint solver for the sizes of symbolic dimensions: some dimensions are computed from others, the others are searched.

An equality with an isolated dimension defines it: total = past + new. All other relations (a Reshape that divides, a window
that fits) are repaired: a dimension of a violated relation takes the nearest size that violates the fewest relations.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from math import log

from layoutopt.formats import Extent
from layoutopt.sample_inputs.relations import Relation

_PASSES = 4  # over the equalities; a definition may enable that of another dimension
_ROUNDS = 8  # of repairs
_MAX_REPAIRED = 4  # violated relations that one round repairs
_MAX_FITTING = 12  # sizes that satisfy the violated relation, which are then checked against all relations
_SIZES = (*range(1, 257), *range(260, 513, 4), *range(528, 1025, 16), *range(1056, 4097, 32), *range(4160, 64001, 160))


@dataclass(frozen=True, slots=True)
class Definition:
    """A dimension that is computed from others.

    Attributes:
        name: the dimension.
        extent: its expression in other dimensions.
        relation: the equality that defines it.
    """

    name: str
    extent: Extent
    relation: Relation


@dataclass(frozen=True, slots=True)
class Constraints:
    """The relations of a model, solved for as many dimensions as possible.

    Attributes:
        names: the symbolic dimensions of the inputs, as in shapes.
        definitions: the computed dimensions, in topological order.
        relations: the other requirements.
    """

    names: tuple[str, ...] = ()
    definitions: tuple[Definition, ...] = ()
    relations: tuple[Relation, ...] = ()

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        relations: Sequence[Relation],
        fixed: Collection[str] = (),
        *,
        follow_unknown: bool = True,
    ) -> "Constraints":
        """Solve the equalities.

        Args:
            names: the symbolic dimensions of the inputs.
            relations: the requirements of the model, the most reliable first.
            fixed: dimensions whose sizes are given; they are not computed from others.
            follow_unknown: whether anonymous inner dimensions may relate others. A broadcast extent of 1 relates dimensions
                that need not be equal.
        """
        found: dict[str, Definition] = {}
        known = set(names)
        rest = [each for each in relations if follow_unknown or each.names <= known]
        for _ in range(_PASSES):
            remaining = []
            for relation in rest:
                definition = _defined(relation, names, fixed, found)
                if definition is None:
                    remaining.append(relation)
                else:
                    found[definition.name] = definition
            if len(remaining) == len(rest):
                break
            rest = remaining
        return cls(tuple(names), _in_order(found), tuple(rest))

    @property
    def free(self) -> list[str]:
        """The dimensions that are not computed from others."""
        defined = {each.name for each in self.definitions}
        return [name for name in self.names if name not in defined]

    def sources(self, name: str) -> set[str]:
        """The free dimensions that a dimension is computed from."""
        return _sources([name], {each.name: each for each in self.definitions})

    def complete(self, point: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the free dimensions at a point and those of the computed ones, at least 0."""
        found = self._all(point)
        return {name: found[name] for name in self.names}

    def _all(self, point: Mapping[str, int]) -> dict[str, int]:
        """The sizes of `complete` with those of the computed inner dimensions."""
        return _computed({name: point[name] for name in self.free if name in point}, self.definitions)

    def violated(self, point: Mapping[str, int]) -> list[Relation]:
        """The relations that do not hold at a point, including those that computed dimensions are at least 1."""
        found = self._all(point)
        empty = [
            Relation(Extent.of_atom(each.name), ">=", Extent.of(1), each.relation.op)
            for each in self.definitions
            if found.get(each.name, 1) < 1
        ]
        return [*empty, *(relation for relation in self.relations if not relation.holds(found))]

    def solved(self, proposed: Mapping[str, int], fixed: Collection[str] = ()) -> dict[str, int]:
        """Sizes near the proposed ones at which as many relations as possible hold.

        Args:
            proposed: sizes of at least the free dimensions.
            fixed: dimensions that keep the proposed size.
        """
        point = self.complete(proposed)
        for _ in range(_ROUNDS):
            violated = self.violated(point)
            if not violated:
                break
            repairs = (self._repaired(point, relation, proposed, fixed) for relation in violated[:_MAX_REPAIRED])
            better = next((each for each in repairs if each and len(self.violated(each)) < len(violated)), None)
            if better is None:
                break
            point = better
        return point

    def _repaired(
        self, point: Mapping[str, int], relation: Relation, proposed: Mapping[str, int], fixed: Collection[str]
    ) -> dict[str, int] | None:
        """The point with one dimension of a relation changed, or all of them to the same size, so that the relation holds."""
        needed = [each for each in self.definitions if each.name in _closure(relation.names, self.definitions)]
        sources = relation.names.union(*(each.extent.names for each in needed))
        names = [name for name in self.free if name in sources and name not in fixed]
        best: tuple[tuple[int, float], dict[str, int]] | None = None
        for moved in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
            fitting = 0
            for size in _nearest(proposed[moved[0]]):
                found = {**{name: point[name] for name in self.free}, **dict.fromkeys(moved, size)}
                sizes = _computed(found, needed)
                if relation.holds(sizes) and all(sizes.get(name, 1) > 0 for name in relation.names):
                    fitting += 1
                    other = self.complete(found)
                    rank = (len(self.violated(other)), abs(log(size / proposed[moved[0]])))
                    best = min(best, (rank, other), key=lambda each: each[0]) if best else (rank, other)
                if fitting == _MAX_FITTING:
                    break
        return best[1] if best else None


def _defined(
    relation: Relation, names: Sequence[str], fixed: Collection[str], found: Mapping[str, Definition]
) -> Definition | None:
    """The dimension that an equality defines: an inner one, or else the last isolated dimension of the inputs."""
    if relation.comparator != "=":
        return None
    positions = {name: index for index, name in enumerate(names)}
    candidates = []
    for name, extent, is_side in _isolated(relation):
        if name in fixed or name in found:
            continue
        sources = _sources(extent.names, found)
        if name not in sources and (name not in positions or sources <= positions.keys()):
            rank = (name not in positions, is_side, positions.get(name, 0))
            candidates.append((rank, Definition(name, extent, relation)))
    return max(candidates, key=lambda each: each[0])[1] if candidates else None


def _isolated(relation: Relation) -> Iterator[tuple[str, Extent, bool]]:
    """Dimensions with the coefficient 1 or -1 in an equality, their solutions, and whether they are one side of it."""
    for one, other in ((relation.left, relation.right), (relation.right, relation.left)):
        for factors, coefficient in one.terms:
            name = factors[0] if len(factors) == 1 else None
            if isinstance(name, str) and coefficient in (1, -1):
                rest = (other - one) * coefficient + Extent.of_atom(name)
                if name not in rest.names:
                    yield name, rest, len(one.terms) == 1 and coefficient == 1


def _sources(names: Collection[str], found: Mapping[str, Definition]) -> set[str]:
    """The dimensions without a definition that the given ones are computed from."""
    pending, sources, seen = list(names), set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name not in found:
            sources.add(name)
        elif name not in seen:
            seen.add(name)
            pending += found[name].extent.names
    return sources


def _in_order(found: Mapping[str, Definition]) -> tuple[Definition, ...]:
    """Definitions in topological order."""
    sorter = TopologicalSorter({name: each.extent.names & found.keys() for name, each in found.items()})
    return tuple(found[name] for name in sorter.static_order())


def _closure(names: Collection[str], definitions: Sequence[Definition]) -> set[str]:
    """The given dimensions and those that they are computed from."""
    reached = set(names)
    for each in reversed(definitions):
        if each.name in reached:
            reached |= each.extent.names
    return reached


def _computed(sizes: dict[str, int], definitions: Sequence[Definition]) -> dict[str, int]:
    """Sizes with those of defined dimensions, at least 0, if they can be computed."""
    found = dict(sizes)
    for each in definitions:
        size = each.extent.at(found)
        if size is not None:
            found[each.name] = max(size, 0)
    return found


@lru_cache(maxsize=64)
def _nearest(size: int) -> tuple[int, ...]:
    """Alternatives to a size, the nearest by ratio first."""
    return tuple(sorted(set(_SIZES), key=lambda each: (abs(log(each / max(size, 1))), -each)))


__all__ = ["Constraints", "Definition"]
