"""Quantisation: steps between fractions and integers, ops on integers with scales, and the units that runtimes make of both."""

from layoutopt.ops.quantization import (  # noqa: F401  -- importing a family registers its rules
    conv,
    elementwise,
    linear,
    matmul,
)
from layoutopt.ops.quantization.commute import undoes
from layoutopt.ops.quantization.hoist import hoist_data_movement
from layoutopt.ops.quantization.qdq_group import (
    QdqGroups,
    find_qdq_groups,
    is_dequantizer,
    is_in_qdq_group,
    is_quantizer,
    respelled,
)

__all__ = [
    "QdqGroups",
    "find_qdq_groups",
    "hoist_data_movement",
    "is_dequantizer",
    "is_in_qdq_group",
    "is_quantizer",
    "respelled",
    "undoes",
]
