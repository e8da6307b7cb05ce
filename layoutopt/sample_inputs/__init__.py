"""Inputs for models: plausible sizes of symbolic dimensions, values that a model can run on, arrays that callers give."""

from layoutopt.sample_inputs.draw import Style
from layoutopt.sample_inputs.given import Given, InputSet, bound_sizes, given_ranges, input_sets, read_inputs
from layoutopt.sample_inputs.inputs import Feed, InputTrial, SampleInputs, sizes_text
from layoutopt.sample_inputs.plausible import Dimensions, plausible_sizes
from layoutopt.sample_inputs.runs import inputs_for, prepared
from layoutopt.sample_inputs.trials import symbols_of, trials
from layoutopt.sample_inputs.values import Kind, ValueRange, value_ranges

__all__ = [
    "Dimensions",
    "Feed",
    "Given",
    "InputSet",
    "InputTrial",
    "Kind",
    "SampleInputs",
    "Style",
    "ValueRange",
    "bound_sizes",
    "given_ranges",
    "input_sets",
    "inputs_for",
    "plausible_sizes",
    "prepared",
    "read_inputs",
    "sizes_text",
    "symbols_of",
    "trials",
    "value_ranges",
]
