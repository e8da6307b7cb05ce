"""Quantisation: steps between fractions and integers, ops on integers with scales, and the units that runtimes make of both."""

from layoutopt.ops.quantization import (  # noqa: F401  -- importing a family registers its rules
    conv,
    elementwise,
    linear,
    matmul,
)
from layoutopt.ops.quantization.crossing import undoes
from layoutopt.ops.quantization.unit import (
    IntegerUnits,
    find_units,
    is_dequantizer,
    is_in_unit,
    is_quantizer,
    respelled,
)

__all__ = [
    "IntegerUnits",
    "find_units",
    "is_dequantizer",
    "is_in_unit",
    "is_quantizer",
    "respelled",
    "undoes",
]
