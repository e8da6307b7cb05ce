"""Test inputs of models: inferred sizes of symbolic dimensions, random values that the graph allows, and given arrays."""

from layoutopt.sample_inputs.dimensions import Dimensions, plausible_sizes
from layoutopt.sample_inputs.generator import (
    Feed,
    Given,
    InputSet,
    SampleInputs,
    Style,
    TestInputs,
    bound_sizes,
    given_ranges,
    input_sets,
    lift_source,
    prepare_inputs,
    read_inputs,
    sample_inputs_for,
    sizes_text,
    sizes_to_compare,
    symbols_of,
)
from layoutopt.sample_inputs.input_ranges import RangeKind, ValueRange, value_ranges

__all__ = [
    "Dimensions",
    "Feed",
    "Given",
    "InputSet",
    "RangeKind",
    "SampleInputs",
    "Style",
    "TestInputs",
    "ValueRange",
    "bound_sizes",
    "given_ranges",
    "input_sets",
    "lift_source",
    "plausible_sizes",
    "prepare_inputs",
    "read_inputs",
    "sample_inputs_for",
    "sizes_text",
    "sizes_to_compare",
    "symbols_of",
    "value_ranges",
]
