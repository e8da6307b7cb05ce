"""Proofs of the lemmas of certificates with z3."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import z3

from layoutopt.certificate.checker.lemmas import LEMMAS

Real: TypeAlias = Any  # an expression of z3, or a number
Claim: TypeAlias = Any
Index: TypeAlias = int | str
Term: TypeAlias = Callable[[Index], Real]

STEP = "n"  # the index of the last term of a sum of n + 1 terms
_EXAMPLE = 2  # terms of the sums in which counterexamples are sought


@dataclass(frozen=True, slots=True)
class Obligation:
    """A claim that follows from assumptions."""

    name: str
    claim: Claim
    assumptions: Sequence[Claim] = ()
    is_step: bool = False  # of an induction, where a counterexample need not be one to the lemma


Proof: TypeAlias = Callable[[int], Iterator[Obligation]]
"""The obligations of a lemma, given the coefficient `k`."""

PROOFS: dict[str, Proof] = {}


def proof(name: str) -> Callable[[Proof], Proof]:
    """Decorator: register the proof of a lemma."""

    def register(found: Proof) -> Proof:
        assert name not in PROOFS, f"two proofs of {name}"
        PROOFS[name] = found
        return found

    return register


def counterexample(obligation: Obligation) -> z3.ModelRef | None:
    """Numbers for which the assumptions hold and the claim does not; None if z3 proves that there are none."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*obligation.assumptions, z3.Not(obligation.claim))
    answer = solver.check()
    assert answer != z3.unknown, f"z3 does not decide {obligation.name}: {solver.reason_unknown()}"
    return solver.model() if answer == z3.sat else None


def is_vacuous(obligation: Obligation) -> bool:
    """Whether the assumptions contradict each other, so that every claim follows from them."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*obligation.assumptions)
    return bool(solver.check() != z3.sat)


def family(name: str) -> Callable[..., Real]:
    """Real numbers with indices: `family("w")(i)` is w[i]."""
    return lambda *indices: z3.Real(f"{name}{list(indices)}")


class Sums:
    """Finite sums over one index, all of the same number of terms.

    `total(label, term)` is the sum of `term(i)`: of no terms, of n terms (an unknown number), of n + 1 terms (that number
    and the term n), or of a given number of terms.
    """

    def __init__(self, count: Index, more: bool = False) -> None:
        """Sums of `count` terms; with `more`, of one more."""
        self._count = count
        self._more = more

    def __call__(self, label: str, term: Term) -> Real:
        """The sum of the terms; equal labels are equal sums."""
        if isinstance(self._count, int):
            return sum((term(index) for index in range(self._count)), z3.RealVal(0))
        known = z3.Real(f"sum {label}")
        return known + term(STEP) if self._more else known


def induction(
    name: str, claim: Callable[[Sums], Claim], given: Callable[[Index], Sequence[Claim]] = lambda index: ()
) -> Iterator[Obligation]:
    """A claim about sums of any number of terms: its base, its step, and an example of two terms, written out."""
    yield Obligation(f"{name}: no terms", claim(Sums(0)), is_step=True)
    hypothesis = claim(Sums(STEP))
    yield Obligation(f"{name}: one more term", claim(Sums(STEP, more=True)), [hypothesis, *given(STEP)], is_step=True)
    known = [each for index in range(_EXAMPLE) for each in given(index)]
    yield Obligation(f"{name}: {_EXAMPLE} terms", claim(Sums(_EXAMPLE)), known)


def reals(names: str) -> list[Real]:
    """Real numbers by their names."""
    return list(z3.Reals(names))


def integers(names: str) -> list[Any]:
    """Integers by their names."""
    return list(z3.Ints(names))


# Proofs of the lemmas of the checker, and of the identities in its definitions of operators.
#
# Every element of a convolution or a product of matrices is a finite sum, y = x[0] * w[0] + .. + x[n - 1] * w[n - 1] + b, where
# x[i] is an element of the image or a zero of the padding, so the claims hold for every kernel, stride, dilation, group and pad
# unless a condition is stated. The number n of terms is arbitrary. Roots, Erf and Tanh are any functions.


IDENTITIES = {
    "batch-normalization": "(x - m) / r s + b = x (s / r) + (b - m s / r)",
    "layer-normalization": "a quotient is a product with the reciprocal; var = mean(x²) - mean(x)²",
    "gated-activations": "Gelu, Gelu by Tanh, SiLU and HardSwish with their factors in any order",
}
"""Identities that the checker has in its definitions of operators."""

_erf, _tanh, _sigmoid, _root = (
    z3.Function(name, z3.RealSort(), z3.RealSort()) for name in ("erf", "tanh", "sigmoid", "root")
)

_x, _c, _d, _mean, _scale, _bias = reals("x c d mean scale bias")
_EQUALITIES: dict[str, tuple[Callable[[int], Claim], Sequence[Claim]]] = {
    "product-with-one": (lambda k: _x * 1 == k * _x, ()),
    "factor-of-shift": (lambda k: (_x + _d) * _c == _x * _c + k * (_d * _c), ()),
    "sum-of-shifts": (lambda k: (_x + _d) + _c == _x + (_d + k * _c), ()),
    "zero-shift": (lambda k: _x + 0 == k * _x, ()),
    "quotient-by-constant": (lambda k: _x / _c == k * (_x * (1 / _c)), [_c != 0]),
    "batch-normalization": (
        lambda k: (_x - _mean) / _d * _scale + _bias == _x * (_scale / _d) + (_bias - k * _mean * (_scale / _d)),
        [_d > 0],
    ),
    "depthwise-as-product": (lambda k: z3.Sum([_x * _c]) == k * _x * _c, ()),  # the sum of one term
}
"""Lemmas about one element: the claim, and what is known."""
for _name, (_claim, _known) in _EQUALITIES.items():
    PROOFS[_name] = lambda k, name=_name, claim=_claim, known=_known: iter([Obligation(name, claim(k), known)])


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


@proof("zero-filter")
def zero_filter(k: int) -> Iterator[Obligation]:
    """sum x 0 = 0, for real numbers x: neither infinite nor NaN."""
    yield from induction("zero weights", lambda total: total("x 0", lambda i: x(i) * (k - 1)) == 0)


_SUMS: dict[str, Callable[[int, Sums], Claim]] = {
    # s[j] * (sum x w) = sum x (w s[j]) for column j.
    "scale-into-matrix": lambda k, total: (
        _scale * total("x w", lambda i: x(i) * w(i)) == total("x (w s)", lambda i: x(i) * (k * w(i) * _scale))
    ),
    # sum (x g) w = sum x (g w), g along the summed axis.
    "scale-into-rows": lambda k, total: (
        total("(x g) w", lambda i: (x(i) * g(i)) * w(i)) == total("x (g w)", lambda i: x(i) * (k * g(i) * w(i)))
    ),
    # A pointwise convolution and a product of matrices are sums of the same products.
    "pointwise-as-product": lambda k, total: (
        total("x w", lambda i: x(i) * w(i)) == total("w x", lambda i: k * w(i) * x(i))
    ),
}
for _name, _sums in _SUMS.items():
    PROOFS[_name] = lambda k, name=_name, claim=_sums: induction(name, lambda total: claim(k, total))

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


# Every lemma is proven by z3, a variant of it with one changed coefficient is refuted, and the page has the lemmas.


PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"
STATEMENTS = {lemma.name: lemma.statement for lemma in LEMMAS}


@pytest.mark.parametrize("name", PROOFS)
def test_the_lemma_is_proven(name: str) -> None:
    for obligation in PROOFS[name](1):
        assert not is_vacuous(obligation), obligation.name
        found = counterexample(obligation)
        assert found is None, f"{obligation.name}: {found}"


@pytest.mark.parametrize("name", PROOFS)
def test_a_wrong_coefficient_is_refuted(name: str) -> None:
    claims = [each for each in PROOFS[name](2) if not each.is_step]
    assert any(counterexample(each) is not None for each in claims)


def table(rows: Mapping[str, str]) -> str:
    return "| name | statement |\n| --- | --- |\n" + "".join(f"| `{name}` | {rows[name]} |\n" for name in rows)


def test_every_lemma_is_proven() -> None:
    assert not STATEMENTS.keys() & IDENTITIES.keys()
    assert set(PROOFS) == STATEMENTS.keys() | IDENTITIES.keys()


def test_the_page_is_current(update_golden: bool) -> None:
    text = new = PAGE.read_text()
    for name, rows in (("lemmas", STATEMENTS), ("identities", IDENTITIES)):
        head, start, rest = new.partition(f"<!-- generated: {name} -->\n")
        new = head + start + table(rows) + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    if update_golden:
        PAGE.write_text(new)
    assert text == new or update_golden, "run pytest tests/proofs --update-golden"
