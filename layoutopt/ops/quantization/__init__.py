"""Quantisation: Q/DQ ops, ops on integers with scales, and the QDQ groups that runtimes compute as one op on integers."""

from layoutopt.ops.quantization import (  # noqa: F401  -- importing a family registers its rules
    integer_conv,
    integer_matmul,
    qdq_ops,
    qlinear_ops,
)
from layoutopt.ops.quantization.commute import is_lossless_round_trip
from layoutopt.ops.quantization.qdq_group import (
    QdqGroups,
    find_qdq_groups,
    is_dequantizer,
    is_in_qdq_group,
    is_quantizer,
    with_unified_formats,
)

__all__ = [
    "QdqGroups",
    "find_qdq_groups",
    "is_dequantizer",
    "is_in_qdq_group",
    "is_lossless_round_trip",
    "is_quantizer",
    "with_unified_formats",
]
