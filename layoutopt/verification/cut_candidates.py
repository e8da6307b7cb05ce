"""Cut candidates: the values of the original at which two models can be cut, taken before any rewrite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.verification.observed_values import (
    ObservedValue,
    discontinuity_inputs,
    evenly_spaced,
    floating_point_values,
    rounded_integers,
    rounding_sources,
    truncated_integers,
    values_before_saturation,
)
from layoutopt.verification.random_numbers import RANDOM_OPS
from layoutopt.verification.segments import Cuts, relative_margin

MAX_CUTS = 32
"""Largest number of cuts at floating-point values; cuts at operands of discontinuous ops and at rounded values do not count."""


@dataclass(frozen=True, slots=True)
class CutCandidates:
    """The values of the original graph at which both models can be cut, taken before any rewrite.

    Attributes:
        before_saturation: operands of saturating activations at the outputs.
        optional: the element types of the other floating-point values.
        required: the element types of rounded integers and operands of discontinuous ops; a model is cut at all of them.
        rounding_sources: for integers that one floating-point value is rounded to, the element type of that value.
        has_float16: whether the graph or a body has a value of type float16.
        has_random_ops: whether it or a body draws random numbers.
    """

    before_saturation: Sequence[str]
    optional: Mapping[str, DType]
    required: Mapping[str, DType]
    rounding_sources: Mapping[str, DType]
    has_float16: bool
    has_random_ops: bool = False

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The candidates of a graph that no pass has changed yet."""
        integers = rounded_integers(graph)
        return cls(
            before_saturation=values_before_saturation(graph),
            optional=floating_point_values(graph),
            required={**integers, **discontinuity_inputs(graph)},
            rounding_sources=rounding_sources(graph, {*integers, *truncated_integers(graph)}),
            has_float16=graph.has_dtype(DType.FLOAT16),
            has_random_ops=any(op.kind in RANDOM_OPS for each in graph.regions() for op in each.ops),
        )

    def cuts(self, present: Sequence[ObservedValue]) -> Cuts:
        """The cuts at values that both models have."""
        required = [each for each in present if each.original in self.required]
        others = [each for each in present if each.original not in self.required]
        saturated = [each for each in others if each.original in self.before_saturation]
        optional = [each for each in others if each.original not in self.before_saturation]
        dtypes = {**self.optional, **self.required}
        chosen = [*required, *saturated, *evenly_spaced(optional, MAX_CUTS)]
        values = [each for each in chosen if each.original in dtypes]
        margins = {name: relative_margin(dtype) for name, dtype in self.rounding_sources.items()}
        return Cuts(
            values, {each.original: dtypes[each.original] for each in values}, frozenset(self.required), margins
        )

    @property
    def names(self) -> list[str]:
        """The names of all candidates."""
        return list(dict.fromkeys([*self.required, *self.before_saturation, *self.optional]))


__all__ = ["CutCandidates"]
