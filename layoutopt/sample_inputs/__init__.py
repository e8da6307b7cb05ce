"""Test inputs of models: inferred sizes of symbolic dimensions, random values that the graph allows, and given arrays."""

from layoutopt.sample_inputs.generator import (
    Feed,
    Given,
    InputSet,
    SampleInputs,
    Style,
    bound_sizes,
    given_ranges,
    input_sets,
    lift_source,
    prepare_inputs,
    read_inputs,
    same_inputs,
    sample_inputs_for,
    sizes_text,
    sizes_to_compare,
    symbols_of,
)
from layoutopt.sample_inputs.input_ranges import RangeKind, value_ranges
