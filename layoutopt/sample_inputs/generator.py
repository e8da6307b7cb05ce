"""Generator of test inputs: sizes of symbolic dimensions, and values that the graph allows."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.errors import InputError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Range, Sizes, as_range, checked_ranges
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import dimension_name, inputs_of
from layoutopt.sample_inputs.comparison_sizes import sizes_to_compare, symbols_of
from layoutopt.sample_inputs.given_inputs import Declared, Given, InputSet, bound_sizes, given_ranges, input_sets
from layoutopt.sample_inputs.input_ranges import ValueRange, value_ranges
from layoutopt.sample_inputs.random_inputs import Style, perturbed, random_values
from layoutopt.sample_inputs.symbolic_dimensions import Dimensions

_SMALL = 2  # size of a dimension without a size

MAX_ELEMENTS = 1 << 27
"""Elements of all inputs together above which inputs are generated only at sizes that the caller has given."""

Feed: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class TestInputs:
    """Test inputs at one choice of sizes.

    Attributes:
        sizes: the sizes of the symbolic dimensions, by name.
        feeds: two sets of inputs, generated on demand.
        group: the index of the given set of arrays; 0 if none is given.
    """

    sizes: Mapping[str, int]
    feeds: Iterator[Feed]
    group: int = 0


@dataclass(frozen=True, slots=True)
class SampleInputs:
    """Generator of test inputs of one model.

    Attributes:
        ranges: the ranges of the inputs that the graph restricts, by name.
        dims: the sizes that the caller has given, by name.
        planned: the sizes that the planner uses, by name.
        dimensions: the symbolic dimensions of the graph; None without a graph.
        given: sets of arrays that the caller has given; inputs that are not in a set are random.
    """

    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    dims: Mapping[str, Range] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    dimensions: Dimensions | None = None
    given: tuple[InputSet, ...] = ()

    @classmethod
    def of(cls, graph: Graph | None = None, dims: Dims | None = None, given: Given | None = None) -> "SampleInputs":
        """The generator for a graph that no pass has changed yet.

        Args:
            graph: the graph; None if there is none.
            dims: sizes that the caller has given, or ranges of them.
            given: arrays that the caller has given.

        Raises:
            DimensionError: the graph has no dimension of a given name, or a size is invalid.
            InputError: an array fits no input of the graph.
        """
        sets = input_sets(given)
        requested = {name: as_range(size) for name, size in (dims or {}).items()}
        if graph is None:
            return cls({}, requested, {}, None, sets)
        found = Dimensions.of(graph, requested)
        if sets:
            requested = given_ranges(inputs_of(graph), sets, requested)
            found = Dimensions.of(graph, requested)
        planned = found.named(found.solved(found.default_sizes())) if found.symbols else {}
        return cls(value_ranges(graph), requested, planned, found, sets)

    def with_sizes(self, sizes: Sizes) -> "SampleInputs":
        """The same generator with the sizes that the planner uses, which verification tries first."""
        return replace(self, planned={name: low for name, (low, _) in sizes.ranges.items()})

    def sizes_to_compare(self, session: Any) -> list[Mapping[str, int]]:
        """Sizes at which models are compared, for a session or another object with `get_inputs`.

        Raises:
            DimensionError: there is no dimension of a given name, or a size is invalid.
        """
        symbols = symbols_of(session)
        known = checked_ranges([each.name for each in symbols], self.dims)
        names = {each.name for each in self.dimensions.symbols} if self.dimensions else set()
        dimensions = self.dimensions if names == {each.name for each in symbols} else None
        return sizes_to_compare(symbols, known, self.planned, dimensions)

    def sets(self, session: Any, seed: int, style: Style = Style.RANDOM) -> Iterator[TestInputs]:
        """Test inputs for every choice of sizes.

        Given arrays replace random values; in the second set of inputs they are perturbed.

        Raises:
            LayoutoptError: there are no random values for a type.
        """
        for group, given in enumerate(self.given or ({},)):
            bound = bound_sizes(session.get_inputs(), given)
            fixed = replace(self, dims={**self.dims, **{name: (size, size) for name, size in bound.items()}})
            fitting = [sizes for sizes in fixed.sizes_to_compare(session) if sizes.items() >= bound.items()]
            for number, sizes in enumerate(fitting):
                feeds = self._feeds(session, seed + 2 * group, sizes, style, given, is_first=number == 0)
                yield TestInputs(sizes, feeds, group)

    def _feeds(
        self, session: Any, seed: int, sizes: Mapping[str, int], style: Style, given: InputSet, *, is_first: bool
    ) -> Iterator[Feed]:
        """Two sets of inputs at the given sizes; in the second, given arrays are perturbed."""
        yield {**self.draw(session, seed, sizes, style, is_first=is_first), **given}
        generator = np.random.default_rng(seed + 1)
        changed = {name: perturbed(each, generator) for name, each in given.items()}
        yield {**self.draw(session, seed + 1, sizes, style), **changed}

    def feed(self, session: Any, sizes: Mapping[str, int], style: Style = Style.RANDOM) -> Feed:
        """One set of inputs at the given sizes: the first given arrays, and random values of all other inputs."""
        given = self.given[0] if self.given else {}
        return {**self.draw(session, 0, sizes, style, is_first=True), **given}

    def draw(
        self,
        session: Any,
        seed: int,
        sizes: Mapping[str, int] | None = None,
        style: Style = Style.RANDOM,
        *,
        is_first: bool = False,
    ) -> Feed:
        """Random values of all inputs, within the ranges of the graph.

        Args:
            session: a session, or another object with `get_inputs`.
            seed: of the values.
            sizes: of symbolic dimensions, by name, or by `input[axis]` for unnamed ones; by default 2.
            style: the distribution of values.
            is_first: whether masks are all ones and lengths as long as possible.

        Raises:
            InputError: the inputs would have too many elements at sizes that the caller has not given.
            LayoutoptError: there are no random values for a type.
        """
        generator = np.random.default_rng(seed)
        known = sizes or {}
        point = self._by_text(known)
        feed: Feed = {}
        shapes = {each.name: _extents(each, known) for each in session.get_inputs()}
        if not known.keys() <= self.dims.keys() and sum(map(prod, shapes.values())) > MAX_ELEMENTS:
            raise InputError(
                "inputs would be too large", where=sizes_text(known), hint="give sizes with --dim NAME=SIZE"
            )
        for each in session.get_inputs():
            range = self.ranges.get(each.name)
            feed[each.name] = random_values(
                each.name, each.type, shapes[each.name], generator, range, point, style=style, is_first=is_first
            )
        return feed

    def _by_text(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the texts of the dimensions in shapes."""
        symbols = self.dimensions.symbols if self.dimensions is not None else ()
        return {each.dim: sizes[each.name] for each in symbols if each.name in sizes} or dict(sizes)


def _extents(one: Declared, sizes: Mapping[str, int]) -> list[int]:
    return [
        dim if isinstance(dim, int) else sizes.get(dimension_name(one.name, axis, dim), _SMALL)
        for axis, dim in enumerate(one.shape or ())
    ]


def sizes_text(sizes: Mapping[str, int], names: Collection[str] = ()) -> str:
    """Sizes as text, `N = 1, H = 224`; only those in `names` if any are given."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items() if not names or name in names)


__all__ = ["Feed", "SampleInputs", "TestInputs", "sizes_text"]
