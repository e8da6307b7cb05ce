"""Roles of the symbolic dimensions of the inputs, inferred from the ops that read them, with default sizes.

    batch      samples; also boxes or rows                                                        1
    image      height or width of the input of a 2-D convolution                                  224
    signal     length of the input of a 1-D convolution                                           128
    audio      the same, if a window or the whole model reduces it by a factor of 64 or more      16000
    tokens     indices of rows of a constant table                                                128
    past       length of a key-value cache before new tokens are appended                         128
    sequence   all other dimensions                                                               128

Names (batch, height, seq) and positions are used only if no op determines the role.

Constraint solver for the sizes of symbolic dimensions: some dimensions are computed from others, the others are searched.

An equality with an isolated dimension defines it: total = past + new. All other relations (a Reshape that divides, a window
that fits) are repaired: a dimension of a violated relation takes the nearest size that violates the fewest relations.

Inference of the sizes of symbolic dimensions from a graph, with trial runs in onnxruntime.

Each dimension without a given size takes the default size of its role, the relations of the model adjust the sizes to each
other, and the model is run once. If it does not run, other sizes are tried in a fixed order.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from graphlib import TopologicalSorter
from math import log, prod
from typing import TypeAlias

from layoutopt.formats import Dim, Extent, Shape
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
    size_by_name,
    symbols,
)
from layoutopt.ir.types import Op
from layoutopt.ops import X, flags
from layoutopt.sample_inputs.relations import Relation, is_input, relations_of


class Role(Enum):
    """The role of a dimension: a description, its default size, and a small and a large size at which plans are checked."""

    PAST = ("length of a cache", 128, 16, 512)
    TOKENS = ("number of tokens", 128, 1, 512)
    AUDIO = ("number of samples", 16000, 4000, 64000)
    IMAGE = ("height or width of an image", 224, 64, 448)
    SIGNAL = ("length of a signal", 128, 16, 512)
    SEQUENCE = ("length of a sequence", 128, 1, 512)
    BATCH = ("batch", 1, 1, 8)

    def __init__(self, meaning: str, default_size: int, small: int, large: int) -> None:
        self.meaning = meaning
        self.default_size = default_size
        self.small = small
        self.large = large


@dataclass(frozen=True, slots=True)
class InferredRole:
    """The inferred role of a dimension.

    Attributes:
        role: the role.
        default_size: the default size.
        reason: the reason for the role, as text.
        is_weak: whether the role follows only from the position of the axis.
    """

    role: Role
    default_size: int
    reason: str
    is_weak: bool = False


_ROLES = {"N": Role.BATCH, "S": Role.SEQUENCE, "T": Role.SEQUENCE}
"""The roles of axes by their letters; spatial axes are those of images or signals."""
_SPECTRA = frozenset({"STFT", "DFT"})
_PAST_KEYS = {"Attention": 4, "com.microsoft::MultiHeadAttention": 6, "com.microsoft::GroupQueryAttention": 3}
_AUDIO_STEP = 64  # least reduction factor of a dimension that counts audio samples
_LARGE_SIZE = 1 << 20  # a size at which the ratio of a dimension and a computed extent is measured
_PRIORITY = tuple(Role)


def inferred_roles(graph: Graph, symbols: list[Symbol]) -> dict[str, InferredRole]:
    """The inferred role of every symbolic dimension, by its text in shapes."""
    found: dict[str, InferredRole] = {}
    names = {each.dim for each in symbols}
    for each in graph.regions():
        for op in each.ops:
            for name, role in _implied_roles(each, op):
                old = found.get(name)
                if name in names and (old is None or _PRIORITY.index(role) < _PRIORITY.index(old.role)):
                    reason = f"{op.name or op.kind} reads it as the {role.meaning}"
                    found[name] = InferredRole(role, role.default_size, reason)
    for symbol in symbols:
        known = found.get(symbol.dim)
        if known is None or known.role is Role.BATCH:
            found[symbol.dim] = known = _by_name_or_position(symbol, known)
        if known.role in (Role.SIGNAL, Role.SEQUENCE) and (step := _largest_step(graph, symbol.dim)) >= _AUDIO_STEP:
            reason = f"{known.reason}, and the model divides it by {step}"
            found[symbol.dim] = InferredRole(Role.AUDIO, Role.AUDIO.default_size, reason)
    return found


def _implied_roles(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The dimensions of an op's first operand, with the roles that the op implies."""
    x = op.inputs[0] if op.inputs else None
    shape = x.shape if x is not None else None
    if not shape:
        return
    letters = flags(op).axis_letters(op).get(X, "")
    is_image = sum(dim != 1 for dim in shape[2:]) > 1
    roles = _ROLES | dict.fromkeys("DHW" if letters[:2] == "NC" else "", Role.IMAGE if is_image else Role.SIGNAL)
    for letter, dim in zip(letters, shape, strict=False):
        yield from ((name, roles[letter]) for name in _single_name(dim) if letter in roles)
    if op.op_type in _SPECTRA and len(shape) > 1:
        yield from ((name, Role.AUDIO) for name in _single_name(shape[1]))
    elif op.op_type == "Gather":
        yield from _roles_of_lookup(graph, op)
    elif op.op_type == "Concat":
        yield from _roles_of_cache(graph, op)
    elif op.kind in _PAST_KEYS and len(op.inputs) > _PAST_KEYS[op.kind]:
        past = op.inputs[_PAST_KEYS[op.kind]]
        if past is not None and len(past.shape or ()) == 4 and is_input(graph, past):
            yield from ((name, Role.PAST) for name in _single_name((past.shape or ())[2]))


def _roles_of_lookup(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The roles of indices into a constant table: [batch, tokens]; [tokens] if an input has that shape, else [batch]."""
    table, indices = op.inputs[0], op.inputs[1]
    if table is None or indices is None or not table.is_constant or not indices.shape or len(table.shape or ()) != 2:
        return
    if table.dtype is not None and table.dtype.is_float:
        *outer, last = indices.shape
        is_sequence = bool(outer) or any(value.shape == (last,) for value in graph.root.inputs)
        yield from ((name, Role.TOKENS if is_sequence else Role.BATCH) for name in _single_name(last))
        yield from ((name, Role.BATCH) for dim in outer for name in _single_name(dim))


def _roles_of_cache(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The roles of a floating-point input of three or more axes that a Concat extends by a computed value along one axis."""
    values = [value for value in op.inputs if value is not None]
    rank = values[0].rank or 0
    given = [value for value in values if is_input(graph, value)]
    if rank < 3 or len(given) != 1 or len(values) != 2 or given[0].dtype is None or not given[0].dtype.is_float:
        return
    axis = op.integer("axis") % rank
    yield from ((name, Role.PAST) for name in _single_name((given[0].shape or ())[axis]))
    if axis > 0:
        yield from ((name, Role.BATCH) for name in _single_name((given[0].shape or ())[0]))


def _single_name(dim: Dim) -> frozenset[str]:
    """The name in an extent with exactly one name; otherwise empty."""
    return dim.names if isinstance(dim, Extent) and len(dim.names) == 1 else frozenset()


def _largest_step(graph: Graph, dim: str) -> int:
    """The largest factor by which an extent of a tensor is smaller than the dimension it is computed from."""
    step = 1
    for value in graph.values:
        for each in (*(value.shape or ()), *(value.elements or ())):
            if isinstance(each, Extent) and not each.is_name and each.names == {dim}:
                extent = each.at({dim: _LARGE_SIZE}) or 0
                step = max(step, round(_LARGE_SIZE / extent) if extent > _AUDIO_STEP else 1)
    return step


def _by_name_or_position(symbol: Symbol, known: InferredRole | None) -> InferredRole:
    """The role by name, otherwise by position: the first axis is the batch, two of four axes are those of an image."""
    hint = size_by_name(symbol.name)
    if known is not None and hint is None:
        return known
    if hint is not None:
        role = next(role for role in (Role.BATCH, Role.IMAGE, Role.AUDIO, Role.SEQUENCE) if role.default_size == hint)
        return InferredRole(role, hint, "its name")
    role = next(role for role in (Role.BATCH, Role.IMAGE, Role.SEQUENCE) if role.default_size == symbol.default)
    return InferredRole(role, symbol.default, "its position", is_weak=True)


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
