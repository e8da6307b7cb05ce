"""All proofs, by the name of their lemma, and the identities that are proven without being lemmas of the checker."""

import elementwise_proofs
import linear_proofs
import position_proofs
import quantized_proofs
import winograd_proofs
from prover import PROOFS

MODULES = (elementwise_proofs, linear_proofs, position_proofs, quantized_proofs, winograd_proofs)
"""The modules that register the proofs."""

IDENTITIES = {
    "batch-normalization": "(x - m) / r s + b = x (s / r) + (b - m s / r)",
    "layer-normalization": "a quotient is a product with the reciprocal; var = mean(x²) - mean(x)²",
    "rms-normalization": "x / r s = s (x (1 / r))",
    "group-normalization": "(z s + t) u + v = z (s u) + (t u + v), s and t per group, u and v per channel",
    "gated-activations": "Gelu, Gelu by Tanh, SiLU and HardSwish with their factors in any order",
    "product-with-constant": "x 0 = 0, x I = x",
    "mean-of-means": "the mean of the means of parts of equal size is the mean",
    "zero-terms": "terms with the factor 0 add nothing: channels that only pad a block",
    "heads-as-rows": "the rows of all heads of a group, times the keys of the group",
    "conv-of-conv": "Conv(Conv(x, V), W) = Conv(x, V W), V is one filter for all channels, or both are pointwise",
    "sum-of-convs": "Conv(x, V) + Conv(x, W) = Conv(x, V + W)",
    "rows-as-phases": "rows j, j + m, .. of a convolution are one with stride m and a shifted filter",
    "fewer-rows": "the first rows of a convolution are one with fewer pads",
    "resize-of-same-extent": "Resize(x) = x, with the extents of x",
    "shift-of-mean": "mean(x + t) = mean(x) + t, t over channels; also of interpolations",
    "shift-of-input": "W (x + t) = W x + W t, t along the summed axis; convolutions without pads",
    "scale-of-operand": "(c x) y = c (x y), c one number",
    "product-of-products": "(x A) B = x (A B)",
    "map-of-concat": "Conv(Concat(x, y), (V W)) = Conv(x, V) + Conv(y, W)",
    "map-of-mean": "Conv(mean(x), W) = mean(Conv(x, W)), W of one tap; also of interpolations",
    "winograd": "Aᵀ((G g)(Bᵀ d)) is the correlation; F(2, 3), F(4, 3), F(2, 5), all numbers",
    "quantize-of-dequantize": "quantise(dequantise(q)) = q; all integers and scales, exact arithmetic",
    "zero-point-is-zero": "dequantise(zero) = 0, quantise(0) = zero; all integers and scales",
    "integer-sums": "a product and a pointwise convolution add the same integers; a weight of 0 adds 0",
    "integer-affine": "(q a s + t) / c = (q w + b) m, if w m = a s / c and b m = t / c; exact arithmetic",
    "wider-rows": "numbers per channel, repeated for every column of merged columns and channels",
}
"""Identities that passes rely on, and the checker has in its definitions of operators or does not apply."""

__all__ = ["IDENTITIES", "MODULES", "PROOFS"]
