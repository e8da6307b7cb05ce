"""The lemmas of every rewrite: which identities a pass relies on, and whether certificates prove them.

No part of the checker. The identities of this module are proven like the lemmas of the checker, in tests/proofs. The checker
has them in the definitions of operators or in its normal form, or does not apply them.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["same", "moved", "proven", "tested"]
"""How a certificate covers a rewrite.

same: it changes names, the order of ops, or what is stored once; every op still computes the same values.
moved: elements have other positions; the checker follows them by index maps.
proven: by the lemmas and identities, from the numbers that the two files contain.
tested: values of the two models are compared on inputs, by the verification and by the check of a certificate.
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that is proven, and that is no lemma of the checker.

    Attributes:
        name: its name in tests/proofs.
        statement: the identity, in one line.
        claims: the shapes and numbers that the proof covers.
    """

    name: str
    statement: str
    claims: str = "all shapes"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The lemmas of a rewrite.

    Attributes:
        name: the name of the pass or of the fusion pattern.
        kind: how a certificate covers it.
        effect: the equations, in words.
        lemmas: lemmas of the checker, and identities of this module.
    """

    name: str
    kind: Kind
    effect: str
    lemmas: tuple[str, ...] = ()


IDENTITIES = (
    Identity("batch-normalization", "(x - m) / r s + b = x (s / r) + (b - m s / r)"),
    Identity("layer-normalization", "a quotient is a product with the reciprocal; var = mean(x²) - mean(x)²"),
    Identity("rms-normalization", "x / r s = s (x (1 / r))"),
    Identity("group-normalization", "(z s + t) u + v = z (s u) + (t u + v), s and t per group, u and v per channel"),
    Identity("gated-activations", "Gelu, Gelu by Tanh, SiLU and HardSwish with their factors in any order"),
    Identity("product-with-constant", "x 0 = 0, x I = x"),
    Identity("mean-of-means", "the mean of the means of parts of equal size is the mean"),
    Identity("zero-terms", "terms with the factor 0 add nothing: channels that only pad a block"),
    Identity("heads-as-rows", "the rows of all heads of a group, times the keys of the group"),
    Identity(
        "conv-of-conv", "Conv(Conv(x, V), W) = Conv(x, V W), V is one filter for all channels, or both are pointwise"
    ),
    Identity("sum-of-convs", "Conv(x, V) + Conv(x, W) = Conv(x, V + W)"),
    Identity("rows-as-phases", "rows j, j + m, .. of a convolution are one with stride m and a shifted filter"),
    Identity("fewer-rows", "the first rows of a convolution are one with fewer pads"),
    Identity("resize-of-same-extent", "Resize(x) = x, with the extents of x"),
    Identity("shift-of-mean", "mean(x + t) = mean(x) + t, t over channels; also of interpolations"),
    Identity("shift-of-input", "W (x + t) = W x + W t, t along the summed axis; convolutions without pads"),
    Identity("scale-of-operand", "(c x) y = c (x y), c one number"),
    Identity("product-of-products", "(x A) B = x (A B)"),
    Identity("map-of-concat", "Conv(Concat(x, y), (V W)) = Conv(x, V) + Conv(y, W)"),
    Identity("map-of-mean", "Conv(mean(x), W) = mean(Conv(x, W)), W of one tap; also of interpolations"),
    Identity("winograd", "Aᵀ((G g)(Bᵀ d)) is the correlation", "F(2, 3), F(4, 3), F(2, 5), all numbers"),
    Identity("quantize-of-dequantize", "quantise(dequantise(q)) = q", "all integers and scales, exact arithmetic"),
    Identity("zero-point-is-zero", "dequantise(zero) = 0, quantise(0) = zero", "all integers and scales"),
    Identity("integer-sums", "a product and a pointwise convolution add the same integers; a weight of 0 adds 0"),
    Identity("integer-affine", "(q a s + t) / c = (q w + b) m, if w m = a s / c and b m = t / c", "exact arithmetic"),
    Identity("wider-rows", "numbers per channel, repeated for every column of merged columns and channels"),
)

_AFFINES = ("scale-into-filters", "gate-into-filter", "shift-of-input", "scale-into-matrix", "scale-into-rows")

_CONSTANTS = ("product-with-one", "product-of-factors", "factor-of-shift", "sum-of-shifts", "zero-shift")

PASSES = (
    Coverage("share-constants", "same", "equal constants are stored once"),
    Coverage("remove-identities", "same", "readers of an Identity read its operand"),
    Coverage(
        "hoist-from-qdq-groups",
        "tested",
        "data movement of integers in place of numbers; a Pad fills with the zero point",
        ("zero-point-is-zero",),
    ),
    Coverage("isolate-qdq-groups", "same", "a DequantizeLinear is copied for each of its readers"),
    Coverage(
        "fold-constants", "proven", "ops on constants are computed ahead of time; the checker computes them again"
    ),
    Coverage("evaluate-extents", "same", "sizes for the planner"),
    Coverage("fuse-patterns", "proven", "several ops are one op: see the patterns"),
    Coverage("raise-patterns", "proven", "several ops are one op: see the patterns"),
    Coverage("fold-broadcasts", "tested", "readers of an Expand broadcast its operand"),
    Coverage(
        "fold-repeats",
        "tested",
        "products of the rows of several heads with the keys that they share",
        ("heads-as-rows",),
    ),
    Coverage(
        "fold-affines",
        "proven",
        "scale and shift per channel, and BatchNormalization, go into weights and biases",
        (*_AFFINES, *_CONSTANTS, "scale-of-operand", "batch-normalization", "group-normalization"),
    ),
    Coverage("fold-pads", "proven", "a Pad with zeros goes into the pads of a convolution", ("pad-into-convolution",)),
    Coverage(
        "move-maps",
        "tested",
        "a map along channels moves in front of an interpolation, a mean or a Concat",
        ("map-of-mean", "shift-of-mean", "resize-of-same-extent", "map-of-concat", "sum-of-convs"),
    ),
    Coverage(
        "merge-maps",
        "tested",
        "two maps along channels are one, with the product of their matrices",
        ("product-of-products", "pointwise-as-product", "conv-of-conv", "shift-of-input", *_AFFINES[:1]),
    ),
    Coverage("remove-dead", "same", "ops without readers are removed"),
    Coverage("assign-formats", "same", "formats are chosen"),
    Coverage("convert-integers", "moved", "conversions between formats move past Q/DQ ops"),
    Coverage("insert-casts", "moved", "conversions between formats"),
    Coverage("share-casts", "same", "equal conversions are one"),
    Coverage("cancel-casts", "moved", "chains of conversions become one"),
    Coverage("absorb-casts", "moved", "a view and its conversion become the op of the model"),
    Coverage("pretransform-weights", "moved", "constants are stored in the format of their readers"),
    Coverage("check-gain", "same", "the model is kept if nothing was gained"),
    Coverage(
        "lower",
        "proven",
        "blocked arrays; numbers per channel as depthwise convolutions; channels that pad a block are tested",
        ("depthwise-as-product", "zero-terms"),
    ),
    Coverage("equalize-matmul-ranks", "moved", "axes of extent 1 in front of the smaller operand of a product"),
    Coverage(
        "rematerialize-constants", "proven", "a constant is computed from a smaller one; the checker computes it again"
    ),
    Coverage("simplify-reshapes", "moved", "Reshapes that cancel are removed"),
    Coverage("share-transposes", "same", "equal Transposes are one"),
    Coverage("fold-transposes", "moved", "a Transpose of a constant is stored"),
    Coverage(
        "fuse-into-convolutions",
        "proven",
        "activation(Conv(x) + residual) is one op, by its definition; two affine maps are one",
        ("scale-into-filters", "depthwise-as-product"),
    ),
    Coverage(
        "scale-filters", "proven", "a gate per channel scales the filter in place of the image", ("gate-into-filter",)
    ),
    Coverage("avoid-skip-layer-normalization", "same", "Add(x, y) = Sum(x, y)"),
    Coverage("avoid-prepacking", "moved", "an axis of extent 1 in a constant; Gemm = MatMul + bias, by its definition"),
    Coverage("pool-integers", "tested", "ReduceMean over the image = GlobalAveragePool, between Q/DQ ops"),
    Coverage("keep-softmax-in-floating-point", "tested", "a Softmax on a matrix of the same rows, between Q/DQ ops"),
    Coverage(
        "winograd",
        "tested",
        "convolutions in tiles",
        ("conv-of-conv", "sum-of-convs", "rows-as-phases", "fewer-rows", "scale-into-filters", "winograd"),
    ),
    Coverage("declare-padded-channels", "moved", "a Reshape to the shape that an image has"),
    Coverage("check-block-size", "proven", "a filter of zeros, whose result is the bias", ("zero-filter",)),
    Coverage(
        "absorb-integer-pads",
        "tested",
        "zeros between Q/DQ ops are pads of the integer convolution",
        ("zero-point-is-zero", "quantize-of-dequantize"),
    ),
    Coverage(
        "affine-convolutions",
        "tested",
        "an affine map of integers is an integer convolution; the pass compares all 256 integers of every channel",
        ("integer-affine",),
    ),
    Coverage("tabulate-integers", "tested", "a table of the results for all 256 integers, which onnxruntime computes"),
    Coverage("matmul-convolutions", "tested", "a product of integers is a pointwise convolution", ("integer-sums",)),
    Coverage("widen-rows", "tested", "columns and channels are one axis", ("wider-rows",)),
    Coverage("split-transposes", "moved", "one Transpose is two"),
    Coverage("pad-colours", "tested", "a fourth channel of integers, with weights of zero", ("integer-sums",)),
)
"""Every pass of every pipeline and dialect."""

PATTERNS = (
    Coverage(
        "attention",
        "tested",
        "Softmax(c q kᵀ) v",
        ("scale-of-operand",),
    ),
    Coverage("batched-transpose", "moved", "a Transpose between Reshapes"),
    Coverage("fast-gelu", "tested", "Gelu by Tanh", ("gated-activations",)),
    Coverage("gelu", "proven", "Gelu by Erf", ("gated-activations", "quotient-by-constant")),
    Coverage("group-norm", "tested", "group normalisation", ("group-normalization", "mean-of-means")),
    Coverage("permuted-axes", "tested", "an Einsum that permutes axes is a Transpose"),
    Coverage("quick-gelu", "tested", "x Sigmoid(a x)", ("gated-activations", "quotient-by-constant")),
    Coverage("resized-axes", "tested", "a Resize of some axes", ("resize-of-same-extent",)),
    Coverage("rms-norm", "tested", "root mean square normalisation", ("rms-normalization",)),
)
"""Every fusion pattern."""

OTHERS = (
    Coverage(
        "onnxruntime's optimiser",
        "proven",
        "FusedConv, Gelu, BiasGelu, LayerNormalization by their definitions; others are tested",
        ("layer-normalization", "gated-activations"),
    ),
    Coverage(
        "group normalisation in blocks", "tested", "statistics per channel, averaged over groups", ("mean-of-means",)
    ),
    Coverage("Resize in blocks", "tested", "onnxruntime's Upsample kernel for integer scales"),
    Coverage("Ops in a format as model-local functions", "tested", "the dialects functions and ascend"),
)
"""Rewrites that are no pass of their own."""


__all__ = ["IDENTITIES", "OTHERS", "PASSES", "PATTERNS", "Coverage", "Identity", "Kind"]
