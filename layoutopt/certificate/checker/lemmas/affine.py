"""Lemmas of products and sums with constants.

A product is reordered only if all factors are in a range that neither overflows nor vanishes. Two constants are added only if
neither is much larger than their sum and the values that they are added to, so that rounding does not change.
"""

import numpy as np

from layoutopt.certificate.checker.lemma import ALGEBRAIC, Lemma, is_factor, operands, product
from layoutopt.certificate.checker.normal import make
from layoutopt.certificate.checker.terms import CONSTANT, Array, Term, constant

LARGEST_CANCELLATION = 16.0


def _product_with_one(term: Term) -> Term | None:
    x, factor = operands(term)
    is_one = factor.op == CONSTANT and x.shape == term.shape and bool(np.all(factor.elements == 1))
    return x if is_one else None


def _product_of_factors(term: Term) -> Term | None:
    """Mul(Mul(x, d), c) = Mul(x, d c)."""
    x, factor = operands(term)
    if x.op != "Mul" or not is_factor(factor) or not is_factor(x.args[1]):
        return None
    x, other = operands(x)
    if x.op == "Mul" and x.args[1] is not None and x.args[1].op == CONSTANT:
        return None  # a product that is too large or too small to be one factor
    elements = product(other, factor)
    combined = None if elements is None else constant(elements, term.dtype)
    return make("Mul", x, combined) if is_factor(combined) else None


def _factor_of_shift(term: Term) -> Term | None:
    """Mul(Add(x, d), c) = Add(Mul(x, c), d c)."""
    total, factor = operands(term)
    shift = total.args[1] if total.op == "Add" else None
    if shift is None or shift.op != CONSTANT or not is_factor(factor) or (elements := product(shift, factor)) is None:
        return None
    bound = None if shift.bound is None else shift.bound * np.abs(factor.elements)
    return make("Add", make("Mul", total.args[0], factor), constant(elements, term.dtype, bound))


def _sum_of_shifts(term: Term) -> Term | None:
    """Add(Add(x, d), c) = Add(x, d + c), if the sum of |d| and |c| is at most 16 times |d + c| or the weights of x."""
    total, shift = operands(term)
    other = total.args[1] if total.op == "Add" else None
    x = total.args[0] if total.args else None
    if x is None or other is None or other.op != CONSTANT or shift.op != CONSTANT or term.dtype not in ALGEBRAIC:
        return None
    with np.errstate(all="ignore"):
        elements, bound = other.elements + shift.elements, other.magnitudes + shift.magnitudes
        allowed = LARGEST_CANCELLATION * np.maximum(np.abs(elements), _size(x))
    if not np.all(np.isfinite(bound) & (bound <= allowed) & (bound < 2.0**64)):
        return None
    return make("Add", x, constant(elements, term.dtype, bound))


def _size(x: Term) -> Array:
    """The sums of the absolute values of the weights of x, 0 if it has none."""
    weights = x.args[1] if x.op in ("Conv", "MatMul") else None
    if weights is None or weights.op != CONSTANT:
        return np.zeros(())
    sizes = np.abs(weights.elements)
    if x.op == "MatMul":
        return np.asarray(sizes.sum(axis=-2))
    return np.asarray(sizes.sum(axis=tuple(range(1, sizes.ndim)))).reshape(-1, *(1,) * (sizes.ndim - 2))


def _zero_shift(term: Term) -> Term | None:
    """Add(W x, 0) = W x, which is no -0."""
    x, shift = operands(term)
    is_zero = shift.op == CONSTANT and (x.op in ("Conv", "MatMul") or x["is_sum"]) and not np.any(shift.magnitudes)
    return x if is_zero and x.shape == term.shape else None


def _quotient_by_constant(term: Term) -> Term | None:
    """Div(x, c) = Mul(x, 1 / c)."""
    x, divisor = operands(term)
    if not is_factor(divisor) or not np.all(divisor.elements):
        return None
    factor = constant(1 / divisor.elements, term.dtype)
    return make("Mul", x, factor) if is_factor(factor) else None


_MUL, _ADD = frozenset({"Mul"}), frozenset({"Add"})
LEMMAS = (
    Lemma("product-with-one", _MUL, "x 1 = x", _product_with_one),
    Lemma("product-of-factors", _MUL, "(x d) c = x (d c), d and c constant", _product_of_factors),
    Lemma("factor-of-shift", _MUL, "(x + d) c = x c + d c, d and c constant", _factor_of_shift),
    Lemma("sum-of-shifts", _ADD, "(x + d) + c = x + (d + c), d and c constant, without cancellation", _sum_of_shifts),
    Lemma("zero-shift", _ADD, "W x + 0 = W x", _zero_shift),
    Lemma("quotient-by-constant", frozenset({"Div"}), "x / c = x (1 / c), c constant", _quotient_by_constant),
)
