"""Test inputs of models: inferred sizes of symbolic dimensions, random values that the graph allows, and given arrays."""

from layoutopt.sample_inputs.comparison_sizes import sizes_to_compare, symbols_of
from layoutopt.sample_inputs.generator import Feed, SampleInputs, TestInputs, sizes_text
from layoutopt.sample_inputs.given_inputs import Given, InputSet, bound_sizes, given_ranges, input_sets, read_inputs
from layoutopt.sample_inputs.input_ranges import RangeKind, ValueRange, value_ranges
from layoutopt.sample_inputs.random_inputs import Style
from layoutopt.sample_inputs.size_inference import lift_source, prepare_inputs, sample_inputs_for
from layoutopt.sample_inputs.symbolic_dimensions import Dimensions, plausible_sizes

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
