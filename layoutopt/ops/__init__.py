"""Layout rules and op interfaces, one file per op family. An op type without a rule runs in canonical format."""

from layoutopt.ops import (
    along_axis,
    axiswise,
    convolution,
    feature_maps,
    matrix_product,
    normalization,
    region_ops,
    sequences,
)
from layoutopt.ops.base import (
    LayoutRule,
    discontinuous_inputs,
    facts,
    flags,
    has_padding,
    is_copy,
    is_type_conversion,
    register,
    rule_of,
    rules,
    with_padding_states,
    zero_padding_signature,
)
from layoutopt.ops.interfaces import Affine, LinearMap, Side, add_sum, rounded
from layoutopt.ops.ops_without_rule import OPS_WITHOUT_RULE
from layoutopt.ops.qdq import (
    QdqGroups,
    find_qdq_groups,
    is_dequantizer,
    is_quantizer,
    kept_qdq_ops,
)
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    X,
    Y,
    canonical_signature,
    canonical_storage,
    estimated_extent,
    estimated_volume,
    has_untransposable_type,
    is_canonical,
    physical_type,
    signature_of,
    storage_bytes,
    untransposable_reason,
)
from layoutopt.ops.view import View
