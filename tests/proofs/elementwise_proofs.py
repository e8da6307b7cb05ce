"""Proofs of the lemmas on elements: affine maps, gated activations, normalisations. Roots, Erf and Tanh are any functions."""

from collections.abc import Iterator

import z3
from prover import Obligation, family, induction, proof, reals

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
