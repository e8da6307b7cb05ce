"""Sizes of the symbolic dimensions of a model that the caller does not give.

Every dimension has a default size, by its name or else by the ops that read it:

    batch                                  1
    height or width of an image          224
    length of a sequence or signal       128
    samples of audio                   16000

The axes of ops give equations between dimensions: a Concat with a cache and the product behind it give total = past + new. An
equation that has an isolated dimension defines it. Where the default sizes violate another equation (a Reshape to fixed
extents, a table with a row per patch), sizes that satisfy all of them are searched. All other requirements (a window that
fits, a table that has enough rows) are left to onnxruntime: it runs the model at these sizes, and if that fails, at others in
a fixed order. The first sizes at which the model runs are those that a plan is for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice, product
from math import prod
from typing import NamedTuple, TypeAlias

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import (
    AUDIO,
    BATCH,
    IMAGE,
    NO_SIZES,
    SEQUENCE,
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
from layoutopt.ops import X, facts, flags
from layoutopt.ops.along_axis import Concat
from layoutopt.ops.axiswise import Elementwise
from layoutopt.ops.convolution import Convolution
from layoutopt.ops.matrix_product import MatrixProduct
from layoutopt.ops.signatures import shape_of
from layoutopt.ops.view import View
from layoutopt.record import Record

_SMALL_AND_LARGE = {BATCH: (1, 8), IMAGE: (64, 448), SEQUENCE: (1, 512), AUDIO: (4000, 64000)}
"""The sizes at which a plan is checked, by the size that it is for."""
_OTHER_SIZES = (AUDIO, 32, 1, 2, 64, 256, 16, 512, 1024)
"""Sizes of all dimensions but the batch that are tried where the model does not run at the default sizes."""
_OTHER_SIZES_OF_ONE = (64, 32)  # and of a single one, such as the height of a line of text
_MAX_EQUAL_SIZE, _MAX_SIZES_SEARCHED = 1024, 40_000  # all dimensions alike; each of its own, in all combinations
_MAX_ELEMENTS = 1 << 25  # of one tensor; inferred sizes do not make a larger one

_BY_POSITION = "its position"
_CACHED = "GroupQueryAttention"

RunError: TypeAlias = str
"""The error of a run of the model; empty if it succeeds."""

TrialRunner: TypeAlias = Callable[[Mapping[str, int]], RunError]
"""Runs a model at given sizes, which are mapped by the names of dimensions in the interface."""


class Definition(NamedTuple):
    """A dimension that is computed from others: its expression, and the name of the op that requires it."""

    extent: Extent
    op: str


def definitions_of(graph: Graph, names: Collection[str], fixed: Collection[str]) -> dict[str, Definition]:
    """The dimensions among `names`, but for the fixed ones, that equations between extents define by the others."""
    found: dict[str, Definition] = {}
    for zero, op in _equations(graph):
        _define(zero, op.name or op.kind, names, fixed, found)
    for length in _cache_lengths(graph):
        masks = _input_names(graph, is_float=False) - _input_names(graph, is_float=True) - length.names - found.keys()
        for mask in sorted(masks):
            _define(length - Extent.of_atom(mask), "the cache", names, fixed, found)
    return found


def _equations(graph: Graph) -> Iterator[tuple[Extent, Op]]:
    """The extents that have to be 0 since two extents have to be equal, and the ops that require it."""
    for each in graph.regions():
        for op in each.ops:
            for first, *others in filter(None, _equal_extents(op)):
                yield from ((Extent.of(first) - dim, op) for dim in others if dim != first)


def _equal_extents(op: Op) -> Iterator[list[Dim]]:
    """The extents of the operands of an op that have to be equal; those of 1 are left out, since they may be broadcast."""
    rule, shapes = facts(op), [None if value is None else value.shape for value in op.inputs]
    if any(value.rank is None for value in op.values):
        return
    if isinstance(rule, Elementwise | MatrixProduct | Concat):
        dims: dict[int, list[Dim]] = {}
        for slot, axes in rule.axes(op).items():
            for axis, dim in zip(axes, shape_of(op.operand(slot)), strict=False):
                if dim != 1 and axis != rule.concatenated_axis(op):
                    dims.setdefault(axis, []).append(dim)
        yield from (list(dict.fromkeys(each)) for each in dims.values())
    elif isinstance(rule, Convolution) and (x := shapes[0]) and (weight := shapes[rule.weight]):
        axis = rule.weight_axes[0]
        yield [weight[axis] * (op.integer("group", 1) if axis else 1), x[1]]
    elif op.op_type == _CACHED:
        yield from _extents_of_cache(op)
    elif isinstance(rule, View):
        yield [prod(map(Extent.of, value.dims), start=Extent.of(1)) for value in (op.x, op.y)]


def _extents_of_cache(op: Op) -> Iterator[list[Dim]]:
    """Query [batch, new, heads * size], also with keys and values; cache [batch, heads, past, size]; length past + new."""
    query, key, past = op.x.dims, op.input(1), op.input(3)
    total, heads = op.elements(6), op.integer("num_heads") + (2 * op.integer("kv_num_heads") if key is None else 0)
    if past is None or len(query) != 3 or len(past.dims) != 4:
        return
    batch, _, length, size = past.dims
    yield [batch, query[0]]
    yield [size, query[2] // heads]
    if total and total[0] is not None:
        yield [Extent.of(length) + query[1], total[0]]


def _cache_lengths(graph: Graph) -> list[Extent]:
    """The sums of two dimensions that are the lengths of caches with the new tokens."""
    lengths: dict[Dim, None] = {}
    for op in graph.ops:
        axis = facts(op).concatenated_axis(op)
        if axis is not None and op.y.shape and any(value in graph.inputs for value in op.inputs):
            lengths[op.y.dims[axis]] = None
        elif op.op_type == _CACHED and (past := op.input(3)) is not None and past.shape and op.x.shape:
            lengths[Extent.of(past.shape[2]) + op.x.shape[1]] = None
    return [dim for dim in lengths if isinstance(dim, Extent) and len(dim.names) == len(dim.terms) == 2]


def _input_names(graph: Graph, *, is_float: bool) -> set[str]:
    """The dimensions of the floating-point inputs, or of all others without their first axes."""
    values = (value for value in graph.inputs if (value.dtype is not None and value.dtype.is_float) == is_float)
    return {str(dim) for value in values for dim in (value.shape or ())[0 if is_float else 1 :]}


def _define(
    zero: Extent, op: str, names: Collection[str], fixed: Collection[str], found: dict[str, Definition]
) -> None:
    """Add the dimension that the equation `zero` = 0 defines, preferably the only one on its side, to `found`."""
    zero = _substituted(zero, found)
    best: tuple[bool, str, Extent] | None = None
    for factors, coefficient in zero.terms:
        name = str(factors[0]) if len(factors) == 1 else ""
        extent = Extent.of_atom(name) - zero * coefficient
        is_isolated = coefficient in (1, -1) and name in names and name not in {*extent.names, *fixed}
        if is_isolated and extent.names <= set(names):
            is_side = sum(other * coefficient > 0 for _, other in zero.terms) == 1
            best = max(best or (False, "", extent), (is_side, name, extent), key=lambda each: each[:2])
    if best is not None:
        new = {best[1]: Definition(best[2], op)}
        for name, old in found.items():
            found[name] = old._replace(extent=_substituted(old.extent, new))
        found |= new


def _substituted(extent: Extent, found: Mapping[str, Definition]) -> Extent:
    """An extent with the expressions of defined dimensions in the place of the terms that are such a dimension."""
    total = Extent.of(0)
    for factors, coefficient in extent.terms:
        definition = found.get(str(factors[0])) if len(factors) == 1 else None
        total += (Extent(((factors, 1),)) if definition is None else definition.extent) * coefficient
    return total


def _default_sizes(graph: Graph, found: Iterable[Symbol]) -> dict[str, tuple[int, str]]:
    """The default size of every dimension, by its text in shapes, and the reason."""
    read: dict[str, tuple[int, str]] = {}
    for each in graph.regions():
        for op in each.ops:
            letters = flags(op).axis_letters(op).get(X, "")
            spatial = IMAGE if letters.startswith("NC") and len(letters) > 3 else SEQUENCE
            for letter, dim in zip(letters, op.x.dims if letters else (), strict=False):
                names = dim.names if isinstance(dim, Extent) and letter != "C" else ()
                default = BATCH if letter == "N" else spatial, f"{op.name or op.kind} reads it as axis {letter}"
                read |= {name: default for name in names if len(names) == 1 and name not in read}
    caches = {name: (SEQUENCE, "the length of a cache") for each in _cache_lengths(graph) for name in each.names}
    return {
        each.dim: (each.default, "its name")
        if size_by_name(each.name) is not None
        else (caches | read).get(each.dim, (each.default, _BY_POSITION))
        for each in found
    }


class Dimensions(Record):
    """The symbolic dimensions of a graph's inputs.

    Attributes:
        symbols: the dimensions.
        given: the sizes that the caller has given, by name.
        defaults: the default size of each, by its text in shapes, and the reason.
        definitions: the dimensions that are computed from others, by their texts.
        past: the texts of the lengths of caches.
        shapes: the symbolic shapes of all tensors.
        equations: the extents that have to be 0.
    """

    symbols: tuple[Symbol, ...]
    given: Mapping[str, Range]
    defaults: Mapping[str, tuple[int, str]]
    definitions: Mapping[str, Definition]
    past: frozenset[str] = frozenset()
    shapes: tuple[Shape, ...] = ()
    equations: tuple[Extent, ...] = ()

    @classmethod
    def of(cls, graph: Graph, dims: Dims) -> "Dimensions":
        """The symbolic dimensions of a graph.

        Raises:
            DimensionError: there is no dimension of a given name, or a size is invalid.
        """
        found = symbols(graph.inputs)
        given = checked_ranges([each.name for each in found], dims)
        if not found:
            return cls((), given, {}, {})
        texts = [each.dim for each in found]
        shapes = {value.shape for each in graph.regions() for value in each.values if is_symbolic(value.shape or ())}
        caches = {name for each in _cache_lengths(graph) for name in each.names}
        return cls(
            tuple(found),
            given,
            _default_sizes(graph, found),
            definitions_of(graph, texts, [each.dim for each in found if each.name in given]),
            frozenset(caches.intersection(texts) - _input_names(graph, is_float=False)),
            tuple(shape for shape in shapes if shape is not None),
            tuple(dict.fromkeys(zero for zero, _ in _equations(graph))),
        )

    def default_sizes(self, at: int = 0) -> dict[str, int]:
        """The given sizes, at the low end, the middle or the high end of their ranges, and default sizes of all others."""
        return {
            each.dim: point_of_range(self.given[each.name], at)
            if each.name in self.given
            else self.defaults[each.dim][0]
            for each in self.symbols
        }

    def complete(self, point: Mapping[str, int]) -> dict[str, int]:
        """The sizes at a point, with those of the computed dimensions, at least 0."""
        sizes = {name: each.extent.at(point) for name, each in self.definitions.items()}
        return {**point, **{name: max(size, 0) for name, size in sizes.items() if size is not None}}

    def named(self, point: Mapping[str, int]) -> dict[str, int]:
        """A point by the names of the dimensions in the interface."""
        return {each.name: point[each.dim] for each in self.symbols}

    def inferred(self, *, with_batch: bool = False) -> list[str]:
        """The texts of the dimensions whose sizes are not given."""
        return [
            each.dim
            for each in self.symbols
            if each.name not in self.given and (with_batch or self.defaults[each.dim][0] != BATCH)
        ]

    def candidates(self) -> Iterator[dict[str, int]]:
        """Points at which the model may run, the most plausible first, each once."""
        defaults, lengths = self.default_sizes(), self.inferred()
        unread = dict.fromkeys((name for name in lengths if self.defaults[name][1] == _BY_POSITION), BATCH)
        single = [{name: size} for size in _OTHER_SIZES_OF_ONE for name in lengths]
        alike = [dict.fromkeys(lengths, size) for size in _OTHER_SIZES]
        equal = [dict.fromkeys(self.inferred(with_batch=True), size) for size in _OTHER_SIZES]
        changes = [{}, *self._solved(), unread, *single, *alike, *(each | unread for each in alike)]
        proposals = [self.complete(defaults | each) for each in changes]
        proposals += [defaults | each for each in ({}, *alike, *equal)]
        fitting = [each for each in proposals if self._largest(each) <= _MAX_ELEMENTS] or proposals
        yield from (each for number, each in enumerate(fitting) if each not in fitting[:number])

    def _solved(self) -> Iterator[dict[str, int]]:
        """Sizes of the inferred dimensions that satisfy the equations, if the default sizes do not and such sizes are found."""
        defaults, names = self.default_sizes(), self.inferred()

        def satisfies(sizes: Mapping[str, int]) -> bool:
            point = self.complete(defaults | dict(sizes))
            return all(zero.at(point) in (0, None) for zero in self.equations)

        if not names or satisfies({}):
            return
        limit = int(_MAX_SIZES_SEARCHED ** (1 / len(names)))
        alike = (dict.fromkeys(names, size) for size in range(1, _MAX_EQUAL_SIZE + 1))
        different = (dict(zip(names, sizes, strict=True)) for sizes in product(range(1, limit + 1), repeat=len(names)))
        yield from islice(filter(satisfies, chain(alike, different)), 1)

    def _largest(self, point: Mapping[str, int]) -> int:
        """Elements of the largest tensor whose shape is known."""
        return max((prod(Extent.of(dim).at(point) or 1 for dim in shape) for shape in self.shapes), default=0)

    def guards(self, base: Mapping[str, int]) -> list[dict[str, int]]:
        """Other sizes of inferred dimensions, at which plans are checked: all small, all large, a larger batch."""
        inferred = self.inferred(with_batch=True)
        usual = {name: base[name] if base[name] in _SMALL_AND_LARGE else self.defaults[name][0] for name in inferred}
        ends = {name: _SMALL_AND_LARGE[size] for name, size in usual.items()}
        lengths = set(self.inferred())
        proposals = (
            {name: small for name, (small, _) in ends.items() if name in lengths},
            {name: large for name, (_, large) in ends.items() if name in lengths},
            {name: large for name, (_, large) in ends.items() if name not in lengths},
        )
        points = [self.complete({**base, **each}) for each in proposals]
        return [each for each in points if self._largest(each) <= _MAX_ELEMENTS]


def plausible_sizes(dimensions: Dimensions | None, run: TrialRunner | None = None) -> Sizes:
    """The sizes that the planner uses: given or inferred.

    Args:
        dimensions: the symbolic dimensions of the graph.
        run: runs the original; None for no trial runs.
    """
    if dimensions is None or not dimensions.symbols:
        return NO_SIZES
    candidates = list(dimensions.candidates())
    errors: list[RunError] = []
    for chosen in candidates:
        errors.append("" if run is None else run(dimensions.named(chosen)))
        if not errors[-1]:
            break
    error = errors[0] if errors[-1] else ""
    chosen = candidates[0] if error else chosen
    ranged = [chosen]
    if any(low != high for low, high in dimensions.given.values()):
        inferred = {name: chosen[name] for name in dimensions.inferred(with_batch=True)}
        ranged = [dimensions.complete(dimensions.default_sizes(at) | inferred) for at in range(3)]
    sizes = [dimensions.named(point) for point in ranged]
    ranges = {
        each.name: dimensions.given.get(each.name, (min(found := [at[each.name] for at in sizes]), max(found)))
        for each in dimensions.symbols
    }
    reasons = {
        each.name: f"no sizes were found at which onnxruntime runs the model: {error}"
        if error
        else _reason(dimensions, each, chosen)
        for each in dimensions.symbols
        if each.name not in dimensions.given
    }
    others = [each for each in dimensions.guards(ranged[len(ranged) // 2]) if each not in ranged]
    check = run if len(errors) > 1 else None
    guards = [
        each
        for number, each in enumerate(others)
        if each not in others[:number] and not (check is not None and (error or check(dimensions.named(each))))
    ]
    return Sizes(ranges, tuple(reasons), tuple(ranged), tuple(guards), reasons)


def _reason(dimensions: Dimensions, symbol: Symbol, chosen: Mapping[str, int]) -> str:
    """The reason for the inferred size of a dimension."""
    size, reason = dimensions.defaults[symbol.dim]
    definition = dimensions.definitions.get(symbol.dim)
    if definition is not None and definition.extent.at(chosen) == chosen[symbol.dim]:
        tied = [each.name for each in dimensions.symbols if each.dim in definition.extent.names]
        return f"{definition.op} ties it to {' and '.join(tied)}" if tied else f"{definition.op} requires it"
    return reason if size == chosen[symbol.dim] else f"{reason}; {size} does not run"
