"""Inputs on which two models are compared: sizes that the original can run, and values that its graph allows."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.errors import InputError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Range, Sizes, as_range, checked
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import dimension_name, inputs_of
from layoutopt.sample_inputs.draw import Style, perturbed, random_values
from layoutopt.sample_inputs.given import Declared, Given, InputSet, bound_sizes, given_ranges, input_sets
from layoutopt.sample_inputs.plausible import Dimensions
from layoutopt.sample_inputs.trials import symbols_of, trials
from layoutopt.sample_inputs.values import ValueRange, value_ranges

_SMALL = 2  # of a dimension that has no size

MOST_ELEMENTS = 1 << 27
"""Elements of all inputs together above which no inputs are drawn at sizes that nobody has given."""

Feed: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class InputTrial:
    """Sizes to run a model at, with inputs of these sizes.

    Attributes:
        sizes: of the symbolic dimensions, by name.
        feeds: two sets of inputs, each made when it is asked for.
        group: the number of the given set of arrays; 0 where none is given.
    """

    sizes: Mapping[str, int]
    feeds: Iterator[Feed]
    group: int = 0


@dataclass(frozen=True, slots=True)
class SampleInputs:
    """How inputs for a model are made.

    Attributes:
        ranges: the values that inputs may have, by name, where the graph restricts them.
        dims: the sizes that callers have given, by name.
        planned: the sizes that are planned for, by name.
        dimensions: what the graph says of symbolic dimensions; None without a graph.
        given: sets of arrays that callers have given; inputs that are not in a set are random.
    """

    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    dims: Mapping[str, Range] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    dimensions: Dimensions | None = None
    given: tuple[InputSet, ...] = ()

    @classmethod
    def of(cls, graph: Graph | None = None, dims: Dims | None = None, given: Given | None = None) -> "SampleInputs":
        """Collect what the graph of a model says, before anything in it is rewritten.

        Args:
            graph: the graph; None if there is none.
            dims: sizes that callers have given, or ranges of them.
            given: arrays that callers have given.

        Raises:
            DimensionError: a name is that of no dimension of the graph, or a size is none.
            InputError: an array fits no input of the graph.
        """
        sets = input_sets(given)
        asked = {name: as_range(size) for name, size in (dims or {}).items()}
        if graph is None:
            return cls({}, asked, {}, None, sets)
        found = Dimensions.of(graph, asked)
        if sets:
            asked = given_ranges(inputs_of(graph), sets, asked)
            found = Dimensions.of(graph, asked)
        planned = found.named(found.solved(found.usual())) if found.symbols else {}
        return cls(value_ranges(graph), asked, planned, found, sets)

    def with_sizes(self, sizes: Sizes) -> "SampleInputs":
        """The same with the sizes that are planned for; verification tries these first."""
        return replace(self, planned={name: low for name, (low, _) in sizes.ranges.items()})

    def trials(self, session: Any) -> list[Mapping[str, int]]:
        """Sizes to try, for a session of onnxruntime or what describes inputs likewise.

        Raises:
            DimensionError: a name is that of no dimension, or a size is none.
        """
        symbols = symbols_of(session)
        known = checked([each.name for each in symbols], self.dims)
        names = {each.name for each in self.dimensions.symbols} if self.dimensions else set()
        dimensions = self.dimensions if names == {each.name for each in symbols} else None
        return trials(symbols, known, self.planned, dimensions)

    def sets(self, session: Any, seed: int, style: Style = Style.RANDOM) -> Iterator[InputTrial]:
        """Inputs to compare models on, for every size that may be tried.

        Given arrays replace random values; the second set of inputs has them with a small perturbation.

        Raises:
            LayoutoptError: there are no random values for a type.
        """
        for group, given in enumerate(self.given or ({},)):
            bound = bound_sizes(session.get_inputs(), given)
            fixed = replace(self, dims={**self.dims, **{name: (size, size) for name, size in bound.items()}})
            fitting = [sizes for sizes in fixed.trials(session) if sizes.items() >= bound.items()]
            for number, sizes in enumerate(fitting):
                feeds = self._feeds(session, seed + 2 * group, sizes, style, given, is_first=number == 0)
                yield InputTrial(sizes, feeds, group)

    def _feeds(
        self, session: Any, seed: int, sizes: Mapping[str, int], style: Style, given: InputSet, *, is_first: bool
    ) -> Iterator[Feed]:
        """Two sets of inputs at some sizes; in the second, given arrays are perturbed."""
        yield {**self.draw(session, seed, sizes, style, is_first=is_first), **given}
        generator = np.random.default_rng(seed + 1)
        changed = {name: perturbed(each, generator) for name, each in given.items()}
        yield {**self.draw(session, seed + 1, sizes, style), **changed}

    def feed(self, session: Any, sizes: Mapping[str, int], style: Style = Style.RANDOM) -> Feed:
        """One set of inputs at some sizes: the first given arrays, and random values of other inputs."""
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
            session: a session of onnxruntime, or what describes inputs likewise.
            seed: of the values.
            sizes: of symbolic dimensions, by name, or by `input[axis]` where they have none; 2 where there is none.
            style: how values are drawn.
            is_first: whether masks are all ones and lengths as long as possible.

        Raises:
            InputError: the inputs would have too many elements, at sizes that callers have not given.
            LayoutoptError: there are no random values for a type.
        """
        generator = np.random.default_rng(seed)
        known = sizes or {}
        at = self._by_text(known)
        feed: Feed = {}
        shapes = {each.name: _extents(each, known) for each in session.get_inputs()}
        if not known.keys() <= self.dims.keys() and sum(map(prod, shapes.values())) > MOST_ELEMENTS:
            raise InputError(
                "inputs would be too large", where=sizes_text(known), hint="give sizes with --dim NAME=VALUE"
            )
        for each in session.get_inputs():
            range = self.ranges.get(each.name)
            feed[each.name] = random_values(
                each.name, each.type, shapes[each.name], generator, range, at, style=style, is_first=is_first
            )
        return feed

    def _by_text(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the texts that dimensions have in shapes."""
        symbols = self.dimensions.symbols if self.dimensions is not None else ()
        return {each.dim: sizes[each.name] for each in symbols if each.name in sizes} or dict(sizes)


def _extents(one: Declared, sizes: Mapping[str, int]) -> list[int]:
    return [
        dim if isinstance(dim, int) else sizes.get(dimension_name(one.name, axis, dim), _SMALL)
        for axis, dim in enumerate(one.shape or ())
    ]


def sizes_text(sizes: Mapping[str, int], names: Collection[str] = ()) -> str:
    """Sizes in words; of some dimensions only, if names are given."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items() if not names or name in names)


__all__ = ["Feed", "InputTrial", "SampleInputs", "sizes_text"]
