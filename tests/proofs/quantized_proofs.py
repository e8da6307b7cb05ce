"""Proofs of the lemmas on quantised tensors: x = (q - zero) * scale, q = saturate(round(x / scale) + zero)."""

from collections.abc import Iterator

import z3
from prover import Obligation, Real, induction, integers, proof, reals


def _rounded(value: Real) -> Real:
    """The nearest integer, of two the even one."""
    floor = z3.ToInt(value)
    rest = value - z3.ToReal(floor)
    half = z3.RealVal(1) / 2
    tie = z3.If(floor % 2 == 0, floor, floor + 1)
    return z3.If(rest < half, floor, z3.If(rest > half, floor + 1, tie))


def _saturated(value: Real, low: Real, high: Real) -> Real:
    return z3.If(value < low, low, z3.If(value > high, high, value))


@proof("quantize-of-dequantize")
def quantize_of_dequantize(k: int) -> Iterator[Obligation]:
    """Integers of a type are unchanged by a multiplication by a scale and a division by it."""
    q, zero, low, high = integers("q zero low high")
    (scale,) = reals("scale")
    known = [scale > 0, low <= q, q <= high, low <= zero, zero <= high]
    number = z3.Real("number")
    steps = [number == z3.ToReal(k * (q - zero))]  # the quotient of (q - zero) * scale and the scale
    yield Obligation("quotient", z3.ToReal(k * (q - zero)) * scale / scale == z3.ToReal(q - zero), known)
    yield Obligation("rounded", _saturated(_rounded(number) + zero, low, high) == q, [*known, *steps])


@proof("zero-point-is-zero")
def zero_point_is_zero(k: int) -> Iterator[Obligation]:
    """The zero point is dequantised to 0, and 0 is quantised to it: a Pad with zeros is a Pad with zero points."""
    zero, low, high = integers("zero low high")
    (scale,) = reals("scale")
    known = [scale > 0, low <= zero, zero <= high]
    yield Obligation("dequantised", z3.ToReal(k * zero - zero) * scale == 0, known)
    yield Obligation("quantised", _saturated(_rounded(z3.RealVal(0) / scale) + zero, low, high) == zero, known)


@proof("integer-sums")
def integer_sums(k: int) -> Iterator[Obligation]:
    """A product of integer matrices and a pointwise integer convolution add the same integers; a weight of 0 adds 0."""

    def x(i: object) -> Real:
        return z3.ToReal(z3.Int(f"x[{i}]"))

    def w(i: object) -> Real:
        return z3.ToReal(z3.Int(f"w[{i}]"))

    yield from induction(
        "equal sums", lambda total: total("x w", lambda i: x(i) * w(i)) == total("w x", lambda i: k * w(i) * x(i))
    )
    yield from induction("weights of zero", lambda total: total("x 0", lambda i: x(i) * (k - 1)) == 0)


@proof("integer-affine")
def integer_affine(k: int) -> Iterator[Obligation]:
    """(q * scale * s + t) / out = (q * w + b) * m where w * m = scale * s / out and b * m = t / out; q is relative to its zero.

    The pass tests the integers of all 256 operands, since w has 8 bits and both sides are rounded; this is the exact part.
    """
    q, s, t, scale, out, weight, bias, m = reals("q s t scale out weight bias m")
    known = [out > 0, weight * m == scale * s / out, bias * m == t / out]
    yield Obligation("one depthwise tap", (q * scale * s + t) / out == (q * weight + k * bias) * m, known)
