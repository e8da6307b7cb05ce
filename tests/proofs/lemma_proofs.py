"""Proofs of the lemmas of the checker, and of the identities in its definitions of operators.

Every element of a convolution or a product of matrices is a finite sum, y = x[0] * w[0] + .. + x[n - 1] * w[n - 1] + b, where
x[i] is an element of the image or a zero of the padding, so the claims hold for every kernel, stride, dilation, group and pad
unless a condition is stated. The number n of terms is arbitrary. Roots, Erf and Tanh are any functions.
"""

from collections.abc import Iterator

import z3
from prover import Index, Obligation, Real, family, induction, integers, proof, reals

IDENTITIES = {
    "batch-normalization": "(x - m) / r s + b = x (s / r) + (b - m s / r)",
    "layer-normalization": "a quotient is a product with the reciprocal; var = mean(x²) - mean(x)²",
    "rms-normalization": "x / r s = s (x (1 / r))",
    "group-normalization": "(z s + t) u + v = z (s u) + (t u + v), s and t per group, u and v per channel",
    "gated-activations": "Gelu, Gelu by Tanh, SiLU and HardSwish with their factors in any order",
}
"""Identities that the checker has in its definitions of operators."""

_erf, _tanh, _sigmoid, _root = (
    z3.Function(name, z3.RealSort(), z3.RealSort()) for name in ("erf", "tanh", "sigmoid", "root")
)


@proof("product-with-one")
def product_with_one(k: int) -> Iterator[Obligation]:
    """A factor of 1 changes nothing."""
    (x,) = reals("x")
    yield Obligation("x 1", x * 1 == k * x)


@proof("product-of-factors")
def product_of_factors(k: int) -> Iterator[Obligation]:
    """Two constant factors are one."""
    x, c, d = reals("x c d")
    yield Obligation("(x d) c", (x * d) * c == k * x * (d * c))


@proof("factor-of-shift")
def factor_of_shift(k: int) -> Iterator[Obligation]:
    """A constant factor of a sum with a constant."""
    x, c, d = reals("x c d")
    yield Obligation("(x + d) c", (x + d) * c == x * c + k * (d * c))


@proof("sum-of-shifts")
def sum_of_shifts(k: int) -> Iterator[Obligation]:
    """Two constants that are added are one."""
    x, c, d = reals("x c d")
    yield Obligation("(x + d) + c", (x + d) + c == x + (d + k * c))


@proof("zero-shift")
def zero_shift(k: int) -> Iterator[Obligation]:
    """A constant of 0 that is added changes nothing."""
    (x,) = reals("x")
    yield Obligation("x + 0", x + 0 == k * x)


@proof("quotient-by-constant")
def quotient_by_constant(k: int) -> Iterator[Obligation]:
    """A quotient is a product with the reciprocal."""
    x, c = reals("x c")
    yield Obligation("x / c", x / c == k * (x * (1 / c)), [c != 0])


@proof("batch-normalization")
def batch_normalization(k: int) -> Iterator[Obligation]:
    """(x - mean) / root * scale + bias = x * (scale / root) + (bias - mean * scale / root)."""
    x, mean, root, scale, bias = reals("x mean root scale bias")
    affine = x * (scale / root) + (bias - k * mean * (scale / root))
    yield Obligation("affine map", (x - mean) / root * scale + bias == affine, [root > 0])


@proof("gated-activations")
def gated_activations(k: int) -> Iterator[Obligation]:
    """Gelu, its approximation by Tanh, SiLU and HardSwish, in the orders in which exporters write their factors."""
    x, r, c, alpha = reals("x r c alpha")
    half = z3.RealVal(1) / 2
    gelu = half * x * (1 + _erf(x * r))
    yield Obligation("x (0.5 (1 + f))", x * (half * (1 + _erf(k * x * r))) == gelu)
    yield Obligation("0.5 (x (1 + f))", half * (x * (1 + _erf(x * r))) == k * gelu)
    yield Obligation("(0.5 x) (1 + f)", (half * x) * (1 + _erf(x * r)) == k * gelu)
    yield Obligation("x / (1 / r)", _erf(x / (1 / r)) == _erf(k * x * r), [r != 0])
    cubic = r * (x + c * (x * x * x))
    yield Obligation(
        "Tanh", half * x * (1 + _tanh(cubic)) == k * (x * (half + half * _tanh(r * x + (r * c) * x * x * x)))
    )
    yield Obligation("gated Sigmoid", _sigmoid(alpha * x) * x == k * x * _sigmoid(x * alpha))
    low, high = z3.RealVal(0), z3.RealVal(1)
    hard = z3.If(x / 6 + half < low, low, z3.If(x / 6 + half > high, high, x / 6 + half))
    relu6 = z3.If(x + 3 < 0, z3.RealVal(0), z3.If(x + 3 > 6, z3.RealVal(6), x + 3))
    yield Obligation("HardSwish", x * hard == k * (x * relu6 / 6))


@proof("layer-normalization")
def layer_normalization(k: int) -> Iterator[Obligation]:
    """(x - mean) / root(var) * scale + bias: by a quotient or a reciprocal, and with either formula of the variance."""
    x, mean, var, scale, bias, n = reals("x mean var scale bias n")
    root = _root(var)
    quotient = (x - mean) / root * scale + bias
    yield Obligation("reciprocal", quotient == (x - mean) * (1 / root) * (k * scale) + bias, [root > 0])
    f = family("f")
    # n * var = sum (f - mean)^2 = sum f^2 - n * mean^2, where n * mean = sum f
    yield from induction(
        "squares of differences",
        lambda total: (
            total("(f - m)^2", lambda i: (f(i) - mean) * (f(i) - mean))
            == total("f^2", lambda i: f(i) * f(i)) - 2 * mean * total("f", f) + k * total("m^2", lambda i: mean * mean)
        ),
    )
    squares, elements = reals("squares elements")
    known = [n > 0, elements == n * mean]
    claim = (squares - 2 * mean * elements + n * mean * mean) / n == squares / n - k * mean * mean
    yield Obligation("variance", claim, known)


@proof("rms-normalization")
def rms_normalization(k: int) -> Iterator[Obligation]:
    """x / root * scale = x * (1 / root) * scale, in any order of the factors."""
    x, mean, scale, epsilon = reals("x mean scale epsilon")
    root = _root(mean + epsilon)
    yield Obligation("reciprocal", (x / root) * scale == scale * (x * (1 / _root(epsilon + k * mean))), [root > 0])


@proof("group-normalization")
def group_normalization(k: int) -> Iterator[Obligation]:
    """(z * s + t) * u + v for parameters s, t of a group and u, v of a channel: one scale and one shift per channel."""
    z, s, t, u, v, x, mean, root = reals("z s t u v x mean root")
    yield Obligation("parameters per channel", (z * s + t) * u + v == z * (s * u) + (k * t * u + v))
    centred = x + (-mean)
    yield Obligation("scaled by a filter", (x - mean) / root * u + v == centred * (u / root) + k * v, [root > 0])


w, x, g = (family(name) for name in "wxg")


@proof("scale-into-filters")
def scale_into_filters(k: int) -> Iterator[Obligation]:
    """s * (sum x w + b) + t = sum x (w s) + (b s + t)."""
    s, b, t, one, other = reals("s b t one other")
    yield from induction(
        "scaled filter",
        lambda total: s * total("x w", lambda i: x(i) * w(i)) == total("x (w s)", lambda i: x(i) * (k * w(i) * s)),
    )
    yield Obligation("scale and shift", s * (one + b) + t == other + (k * b * s + t), [s * one == other])


@proof("gate-into-filter")
def gate_into_filter(k: int) -> Iterator[Obligation]:
    """sum (x g) w = sum x (w g); a zero of the padding stays one."""

    def inside(i: Index) -> Real:
        return z3.Bool(f"inside[{i}]")

    yield from induction(
        "scaled input",
        lambda total: (
            total("pad(x g) w", lambda i: z3.If(inside(i), x(i) * g(i), 0) * w(i))
            == total("pad(x) (w g)", lambda i: z3.If(inside(i), x(i), 0) * (k * w(i) * g(i)))
        ),
    )


@proof("depthwise-as-product")
def depthwise_as_product(k: int) -> Iterator[Obligation]:
    """A depthwise convolution of one tap is a product: the sum of one term."""
    a, b = reals("a b")
    yield Obligation("one term", z3.Sum([a * b]) == k * a * b)


@proof("zero-filter")
def zero_filter(k: int) -> Iterator[Obligation]:
    """sum x 0 + b = b, for real numbers x: neither infinite nor NaN."""
    yield from induction("zero weights", lambda total: total("x 0", lambda i: x(i) * (k - 1)) == 0)


@proof("scale-into-matrix")
def scale_into_matrix(k: int) -> Iterator[Obligation]:
    """s[j] * (sum x w) = sum x (w s[j]) for column j."""
    (s,) = reals("s")
    yield from induction(
        "scaled column",
        lambda total: s * total("x w", lambda i: x(i) * w(i)) == total("x (w s)", lambda i: x(i) * (k * w(i) * s)),
    )


@proof("scale-into-rows")
def scale_into_rows(k: int) -> Iterator[Obligation]:
    """sum (x g) w = sum x (g w), g along the summed axis."""
    yield from induction(
        "scaled rows",
        lambda total: (
            total("(x g) w", lambda i: (x(i) * g(i)) * w(i)) == total("x (g w)", lambda i: x(i) * (k * g(i) * w(i)))
        ),
    )


@proof("pointwise-as-product")
def pointwise_as_product(k: int) -> Iterator[Obligation]:
    """A pointwise convolution and a product of matrices are sums of the same products."""
    yield from induction(
        "equal products", lambda total: total("x w", lambda i: x(i) * w(i)) == total("w x", lambda i: k * w(i) * x(i))
    )


_INT, _REAL = z3.IntSort(), z3.RealSort()


def _padded(x: z3.FuncDeclRef, extent: Real, front: Real, position: Real) -> Real:
    """The element at a position of x with zeros in front of it and behind it."""
    return z3.If(z3.And(front <= position, position < front + extent), x(position - front), z3.RealVal(0))


@proof("pad-into-convolution")
def pad_into_convolution(k: int) -> Iterator[Obligation]:
    """Zeros around zeros around x are zeros around x: front pads are added, and so are those behind."""
    x, middle = z3.Function("x", _INT, _REAL), z3.Function("middle", _INT, _REAL)
    extent, front, behind, own, position = integers("extent front behind own position")
    outer = _padded(middle, front + extent + behind, own, position)
    inner = middle(position - own) == _padded(x, extent, front, position - own)
    known = [extent > 0, front >= 0, behind >= 0, own >= 0, inner]
    yield Obligation("pads are added", outer == _padded(x, extent, k * front + own, position), known)
