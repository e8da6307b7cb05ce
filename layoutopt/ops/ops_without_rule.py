"""Operators without a layout rule, and the reason for each: they run in canonical format.

A test checks that every operator of onnx has a layout rule or an entry here. Other operators run in canonical format too.
"""

from collections.abc import Mapping
from types import MappingProxyType

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot
from layoutopt.ops.base import OLDEST_OPSET, rule_of
from layoutopt.ops.signatures import Inapplicable

_REASONS: dict[str, tuple[str, ...]] = {
    "random numbers are drawn in row-major order; another order yields other numbers": (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ),
    "its result contains positions of elements in row-major order": (
        "NonMaxSuppression",
        "NonZero",
        "Unique",
    ),
    "its indices count the elements in row-major order": ("MaxUnpool",),
    "it computes a small tensor from scalars, and is folded if these are constant": (
        "AffineGrid",
        "BlackmanWindow",
        "ConstantOfShape",
        "EyeLike",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
        "Range",
    ),
    "a constant is packed ahead of time for its readers": ("Constant",),
    "values at the boundary of bodies are in canonical format": ("If", "Loop", "Scan"),
    "sequences, optionals and maps have no format": (
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
        "ai.onnx.ml::CastMap",
        "ai.onnx.ml::DictVectorizer",
        "ai.onnx.ml::ZipMap",
    ),
    "kernels have no formats for strings and encoded bytes": (
        "ImageDecoder",
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    ),
    "its operands have heads side by side in the innermost axis, as kernels require": ("LinearAttention",),
    "its window moves along the innermost axis, and its state has that order too": ("CausalConvWithState",),
    "it sums overlapping windows, so axes are split and merged out of order": ("Col2Im", "STFT"),
    "it exchanges channels and pixels, so blocks and orders of one are none of the other": (
        "DepthToSpace",
        "SpaceToDepth",
    ),
    "its matrices are small, and its result has one number for each": ("Det",),
    "no library has a kernel of it for another order than that of ONNX": (
        "Compress",
        "CumProd",
        "CumSum",
        "DFT",
        "DeformConv",
        "Einsum",
        "GatherElements",
        "GatherND",
        "GridSample",
        "LpNormalization",
        "MaxRoiPool",
        "MeanVarianceNormalization",
        "OneHot",
        "ReverseSequence",
        "RoiAlign",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "TensorScatter",
        "TopK",
        "Trilu",
        "com.microsoft::ConvTransposeWithDynamicPads",
        "com.microsoft::CropAndResize",
        "com.microsoft::GridSample",
        "com.microsoft::NhwcMaxPool",
        "com.microsoft::Trilu",
    ),
    "no exporter writes it: they write Pad and Slice": ("CenterCropPad",),
    "a loss is read once, at the end of training": ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    "training graphs are not changed": (
        "ai.onnx.preview.training::Adagrad",
        "ai.onnx.preview.training::Adam",
        "ai.onnx.preview.training::Gradient",
        "ai.onnx.preview.training::Momentum",
    ),
    "functions in its attributes modify scores by their logical coordinates": ("ai.onnx.preview::FlexAttention",),
    "tables of features have one row per sample, and no kernel for another order": (
        "ai.onnx.ml::ArrayFeatureExtractor",
        "ai.onnx.ml::Binarizer",
        "ai.onnx.ml::CategoryMapper",
        "ai.onnx.ml::FeatureVectorizer",
        "ai.onnx.ml::Imputer",
        "ai.onnx.ml::LabelEncoder",
        "ai.onnx.ml::LinearClassifier",
        "ai.onnx.ml::LinearRegressor",
        "ai.onnx.ml::Normalizer",
        "ai.onnx.ml::OneHotEncoder",
        "ai.onnx.ml::SVMClassifier",
        "ai.onnx.ml::SVMRegressor",
        "ai.onnx.ml::Scaler",
        "ai.onnx.ml::TreeEnsemble",
        "ai.onnx.ml::TreeEnsembleClassifier",
        "ai.onnx.ml::TreeEnsembleRegressor",
    ),
    "only onnxruntime's CUDA provider has a kernel, so the result could not be verified": (
        "com.microsoft::BiasAdd",
        "com.microsoft::BiasSoftmax",
        "com.microsoft::BiasSplitGelu",
        "com.microsoft::GroupNorm",
        "com.microsoft::NhwcConv",
        "com.microsoft::PackedAttention",
        "com.microsoft::PackedMultiHeadAttention",
        "com.microsoft::SkipGroupNorm",
    ),
    "its rows run along the last axis, as kernels require": (
        "com.microsoft::BiasGelu",
        "com.microsoft::SkipLayerNormalization",
        "com.microsoft::SkipSimplifiedLayerNormalization",
    ),
    "its operands have heads side by side, or are caches that callers keep": (
        "RotaryEmbedding",
        "com.microsoft::Attention",
        "com.microsoft::DecoderMaskedMultiHeadAttention",
        "com.microsoft::GroupQueryAttention",
        "com.microsoft::RotaryEmbedding",
    ),
    "it looks up rows in tables of canonical format": ("com.microsoft::EmbedLayerNormalization",),
    "a matrix is inverted in place": ("com.microsoft::Inverse",),
    "it is packed already, in an array whose type does not show it": (
        "com.microsoft.nchwc::AveragePool",
        "com.microsoft.nchwc::Conv",
        "com.microsoft.nchwc::GlobalAveragePool",
        "com.microsoft.nchwc::GlobalMaxPool",
        "com.microsoft.nchwc::MaxPool",
        "com.microsoft.nchwc::ReorderInput",
        "com.microsoft.nchwc::ReorderOutput",
        "com.microsoft.nchwc::Upsample",
    ),
}

OPS_WITHOUT_RULE: Mapping[str, str] = MappingProxyType(
    dict(sorted((kind, reason) for reason, kinds in _REASONS.items() for kind in kinds))
)
"""The reason, by kind: the op type, with its domain in front unless it is ai.onnx."""

# --- without signature ---
#
# The reason why an op runs in canonical formats only: it has no layout rule, or its rule has no signature for it.


NO_RULE = "there is no layout rule for its op type"
_OLD_OPSET = f"opset {OLDEST_OPSET} is the oldest with layout rules"


def reason_without_signature(op: Op) -> str:
    """The reason why an op has no signature to choose; empty if it has one."""
    rule = rule_of(op)
    if rule is None:
        is_old = not op.domain and op.version < OLDEST_OPSET
        return _OLD_OPSET if is_old else OPS_WITHOUT_RULE.get(op.kind, NO_RULE)
    reason = ""
    for slot in op.slots():
        answer = rule.signature(op, _canonical(op, slot))
        if not isinstance(answer, Inapplicable):
            return ""
        reason = reason or answer.reason
    return reason


def _canonical(op: Op, slot: Slot) -> dict[Slot, Format]:
    value = op.operand(slot)
    return {} if value is None or value.rank is None else {slot: Format.canonical(value.rank)}
