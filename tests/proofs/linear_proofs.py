"""Proofs of the lemmas on linear operators: every element of a convolution or a product of matrices is a finite sum.

    y = x[0] * w[0] + .. + x[n - 1] * w[n - 1] + b

x[i] is an element of the image or a zero of the padding, so the claims hold for every kernel, stride, dilation, group and pad
unless a condition is stated. The number n of terms is arbitrary.
"""

from collections.abc import Iterator

import z3
from prover import Index, Obligation, Real, family, induction, integers, proof, reals

w, v, x, f, g = (family(name) for name in "wvxfg")


def _factor(k: int = 1) -> Iterator[Obligation]:
    """A factor moves into a sum."""
    (c,) = reals("c")
    yield from induction(
        "a factor moves into a sum",
        lambda total: c * total("f", f) == total("c f", lambda i: k * c * f(i)),
    )


def _sum_of_sums(k: int = 1) -> Iterator[Obligation]:
    """Two sums are one sum."""
    yield from induction(
        "two sums are one",
        lambda total: total("f", f) + total("g", g) == total("f + g", lambda i: k * f(i) + g(i)),
    )


@proof("scale-into-filters")
def scale_into_filters(k: int) -> Iterator[Obligation]:
    """s * (sum x w + b) + t = sum x (w s) + (b s + t)."""
    s, b, t, one, other = reals("s b t one other")
    yield from induction(
        "scaled filter",
        lambda total: s * total("x w", lambda i: x(i) * w(i)) == total("x (w s)", lambda i: x(i) * (k * w(i) * s)),
    )
    yield Obligation("scale and shift", s * (one + b) + t == other + (k * b * s + t), [s * one == other])


@proof("shift-of-input")
def shift_of_input(k: int) -> Iterator[Obligation]:
    """sum (x + t) w + b = sum x w + (b + sum t w), where no x is a zero of the padding."""
    t = family("t")
    yield from induction(
        "shifted input",
        lambda total: (
            total("(x + t) w", lambda i: (x(i) + t(i)) * w(i))
            == total("x w", lambda i: x(i) * w(i)) + k * total("t w", lambda i: t(i) * w(i))
        ),
    )


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


@proof("zero-terms")
def zero_terms(k: int) -> Iterator[Obligation]:
    """Terms with a factor of zero, behind a sum, do not change it: channels of padding, and channels that a filter ignores."""
    (first,) = reals("first")
    yield from induction("more zeros", lambda total: first + total("x 0", lambda i: x(i) * (k - 1)) == first)


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


@proof("scale-of-operand")
def scale_of_operand(k: int) -> Iterator[Obligation]:
    """sum (c x) w = c * sum x w, and the same for the other operand: scales of queries, keys and scores are one scale."""
    c, p, r = reals("c p r")
    yield from induction(
        "scaled operand",
        lambda total: total("(c x) w", lambda i: (c * x(i)) * w(i)) == k * c * total("x w", lambda i: x(i) * w(i)),
    )
    yield from induction(
        "one scale",
        lambda total: (
            c * total("(p x) (r w)", lambda i: (p * x(i)) * (r * w(i)))
            == (k * c * p * r) * total("x w", lambda i: x(i) * w(i))
        ),
    )


@proof("product-with-constant")
def product_with_constant(k: int) -> Iterator[Obligation]:
    """A matrix of zeros gives zeros, the identity gives the operand."""
    yield from induction("zero matrix", lambda total: total("x 0", lambda i: x(i) * (k - 1)) == 0)
    yield from _identity_matrix(k)


def _identity_matrix(k: int) -> Iterator[Obligation]:
    """The sum of x[i] * (i = j) over i < n is x[j] if j < n, and else 0."""
    vector = z3.Function("vector", z3.IntSort(), z3.RealSort())
    total = z3.Function("total", z3.IntSort(), z3.RealSort())
    n, j = integers("n j")

    def claim(count: Real) -> Real:
        return total(count) == z3.If(z3.And(j >= 0, j < count), k * vector(j), 0)

    def next_term(count: Real) -> Real:
        return total(count + 1) == total(count) + vector(count) * z3.If(count == j, z3.RealVal(1), z3.RealVal(0))

    start = total(0) == 0
    yield Obligation("identity: no terms", claim(z3.IntVal(0)), [start], is_step=True)
    yield Obligation("identity: one more term", claim(n + 1), [n >= 0, claim(n), next_term(n)], is_step=True)
    yield Obligation(
        "identity: 2 terms", claim(z3.IntVal(2)), [start, next_term(z3.IntVal(0)), next_term(z3.IntVal(1))]
    )


@proof("sum-of-convs")
def sum_of_convs(k: int) -> Iterator[Obligation]:
    """sum x w + b + sum x v + a = sum x (w + v) + (b + a), for filters that taps of zero have made equally large."""
    row, stride, tap, front, added = integers("row stride tap front added")
    position = stride * row + tap - front
    yield Obligation("taps in front", position == stride * row + (tap + added) - (front + k * added), [added > 0])
    yield from induction("taps of zero", lambda total: total("x 0", lambda i: x(i) * (k - 1)) == 0)
    a, b, one, two, both = reals("a b one two both")
    yield from induction(
        "sum of filters",
        lambda total: (
            total("x w", lambda i: x(i) * w(i)) + total("x v", lambda i: x(i) * v(i))
            == total("x (w + v)", lambda i: x(i) * (k * w(i) + v(i)))
        ),
    )
    yield Obligation("sum of biases", (one + b) + (two + a) == both + (k * b + a), [one + two == both])


@proof("map-of-concat")
def map_of_concat(k: int) -> Iterator[Obligation]:
    """A sum over n + m terms is the sum of n and the sum of m: a map of a Concat is the sum of maps of its parts."""
    term = z3.Function("term", z3.IntSort(), z3.RealSort())
    whole, second = (z3.Function(name, z3.IntSort(), z3.RealSort()) for name in ("whole", "second"))
    n, m = integers("n m")

    def claim(count: Real) -> Real:
        return whole(n + count) == whole(n) + k * second(count)

    def more(count: Real) -> list[Real]:
        added = term(n + count)
        return [whole(n + count + 1) == whole(n + count) + added, second(count + 1) == second(count) + added]

    start, two = second(0) == 0, [each for count in range(2) for each in more(z3.IntVal(count))]
    yield Obligation("no second part", claim(z3.IntVal(0)), [n >= 0, start], is_step=True)
    yield Obligation("one more term", claim(m + 1), [n >= 0, m >= 0, claim(m), *more(m)], is_step=True)
    yield Obligation("2 terms in the second part", claim(z3.IntVal(2)), [n >= 0, start, *two])


@proof("pointwise-as-product")
def pointwise_as_product(k: int) -> Iterator[Obligation]:
    """A pointwise convolution and a product of matrices are sums of the same products."""
    yield from induction(
        "equal products",
        lambda total: total("x w", lambda i: x(i) * w(i)) == total("w x", lambda i: k * w(i) * x(i)),
    )


@proof("product-of-products")
def product_of_products(k: int) -> Iterator[Obligation]:
    """sum_j v[j] * (sum_i w[j, i] * x[i] + a[j]) = sum_i (sum_j v[j] * w[j, i]) * x[i] + sum_j v[j] * a[j]."""
    (c,) = reals("c")
    yield from _factor()
    # Inner sums of n terms: adding c times a row to a row of coefficients adds c times the sum of the row.
    yield from induction(
        "one more row",
        lambda total: (
            total("(u + c w) x", lambda i: (v(i) + k * c * w(i)) * x(i))
            == total("u x", lambda i: v(i) * x(i)) + c * total("w x", lambda i: w(i) * x(i))
        ),
    )
    # Outer induction: `whole` is the sum with the coefficients of the first j rows, which the claim above extends by a row.
    rows, whole, row, coefficient, shift, shifts = reals("rows whole row coefficient shift shifts")
    yield Obligation(
        "one more element between",
        (rows + shifts) + coefficient * (row + shift)
        == (whole + coefficient * row) + (shifts + k * coefficient * shift),
        [rows == whole],
    )


@proof("map-of-mean")
def map_of_mean(k: int) -> Iterator[Obligation]:
    """A map along channels of a weighted mean along other axes, whose weights sum to 1, is the mean of the map."""
    m, z = family("m"), family("z")
    (b,) = reals("b")
    yield from _factor()
    yield from _sum_of_sums()
    # m[p] * (z[p] + b) summed over p, where z[p] is the map of position p without its shift.
    yield from induction(
        "mean of a shifted map",
        lambda total: (
            total("m (z + b)", lambda p: m(p) * (z(p) + b))
            == total("m z", lambda p: m(p) * z(p)) + b * k * total("m", m)
        ),
    )
    means, weights = reals("means weights")
    yield Obligation("weights sum to 1", means + b * weights == means + k * b, [weights == 1])


@proof("shift-of-mean")
def shift_of_mean(k: int) -> Iterator[Obligation]:
    """sum m (x + t) = sum m x + t, if the weights m add up to 1."""
    m = family("m")
    t, mean, weights = reals("t mean weights")
    yield from induction(
        "weighted sum",
        lambda total: (
            total("m (x + t)", lambda i: m(i) * (x(i) + t))
            == total("m x", lambda i: m(i) * x(i)) + k * t * total("m", m)
        ),
    )
    yield Obligation("weights sum to 1", mean + t * weights == mean + k * t, [weights == 1])


@proof("mean-of-means")
def mean_of_means(k: int) -> Iterator[Obligation]:
    """The mean of the means of parts of equal size is the mean of all elements."""
    size, parts = reals("size parts")
    yield from induction(
        "sum of means",
        lambda total: total("f / size", lambda i: f(i) / size) * size == k * total("f", f),
        lambda index: [size != 0],
    )
    whole, means = reals("whole means")
    known = [size > 0, parts > 0, means * size == whole]
    yield Obligation("mean", means / parts == k * whole / (size * parts), known)
