"""Layout rules, one file per op family. An op type that is not here runs in the canonical format."""

from layoutopt.ops import (  # noqa: F401  -- importing a family registers its rules
    attention,
    axis,
    conv,
    elementwise,
    group_normalization,
    matmul,
    normalization,
    pool,
    rearrangement,
    rename,
    resize,
    shape_of,
)
from layoutopt.ops.affine import Affine, rounded
from layoutopt.ops.base import Builder, LayoutRule, Padding, Side, register, rule_of, rules
from layoutopt.ops.channel_map import ChannelMap, sum_of
from layoutopt.ops.lanes import has_lanes, with_lanes
from layoutopt.ops.quantization import QUANTIZERS, is_in_unit
from layoutopt.ops.rename import Rename
from layoutopt.ops.signatures import (
    Inapplicable,
    Known,
    X,
    Y,
    canonical_signature,
    canonical_storage,
    elements,
    extent,
    is_canonical,
    padded_type,
    physical_type,
    signature_of,
)

__all__ = [
    "QUANTIZERS",
    "Affine",
    "Builder",
    "ChannelMap",
    "Inapplicable",
    "Known",
    "LayoutRule",
    "Padding",
    "Rename",
    "Side",
    "X",
    "Y",
    "canonical_signature",
    "canonical_storage",
    "elements",
    "extent",
    "has_lanes",
    "is_canonical",
    "is_in_unit",
    "padded_type",
    "physical_type",
    "register",
    "rounded",
    "rule_of",
    "rules",
    "signature_of",
    "sum_of",
    "with_lanes",
]
