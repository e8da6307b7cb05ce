"""Lemmas of values that are numbers: neither infinite nor NaN."""

import numpy as np

from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.normal import split_view, view
from layoutopt.certificate.checker.terms import CONSTANT, LEAF, VIEW, Term

_TOTAL = frozenset(
    {LEAF, VIEW, "Add", "Mul", "Conv", "MatMul", "Softmax", "Relu", "Clip", "Sigmoid", "Tanh", "Erf", "Concat", "Slice"}
)


def _guarded(term: Term) -> Term | None:
    """Where(IsNaN(x), y, x) = x, if x is computed from numbers by operators that yield numbers."""
    condition, _, x = term.args
    if condition is None or x is None:
        return None
    test, axes = split_view(condition)
    operand = test.args[0] if test.op == "IsNaN" else None
    if operand is None or x.shape != term.shape or not _is_number(x, 0):
        return None
    viewed = view(operand, axes)
    return x if viewed.key == x.key and _same(viewed, x) else None


def _same(first: Term, second: Term) -> bool:
    from layoutopt.certificate.checker.equality import difference

    return not difference(first, second)


def _is_number(term: Term, depth: int) -> bool:
    if term.op == CONSTANT:
        return bool(np.all(np.isfinite(term.elements)))
    return term.op in _TOTAL and depth < 30 and all(_is_number(arg, depth + 1) for arg in term.operands)


LEMMAS = (
    Lemma(
        "no-nan",
        frozenset({"Where"}),
        "Where(IsNaN(x), y, x) = x, for finite inputs and numbers that stay finite",
        "all shapes",
        _guarded,
    ),
)
