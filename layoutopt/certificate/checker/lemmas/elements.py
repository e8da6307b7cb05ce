"""Lemmas of element-wise operators."""

import numpy as np

from layoutopt.certificate.checker.equality import difference
from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.terms import CONSTANT, Term


def _softmax_without_nan(term: Term) -> Term | None:
    """Where(IsNaN(Softmax(x)), c, Softmax(x)) = Softmax(x), unless a constant is added to x that is not finite."""
    condition, _, softmax = term.args
    if condition is None or softmax is None or condition.op != "IsNaN" or softmax.op != "Softmax":
        return None
    tested = condition.args[0]
    if tested is None or difference(tested, softmax) or softmax.shape != term.shape or not _is_finite(softmax):
        return None
    return softmax


def _is_finite(term: Term) -> bool:
    """Whether all constants that a term depends on are finite."""
    if term.op == CONSTANT:
        return term.elements.dtype.kind != "f" or bool(np.isfinite(term.elements).all())
    return all(map(_is_finite, term.operands))


LEMMAS = (
    Lemma(
        "softmax-without-nan",
        frozenset({"Where"}),
        "a Softmax has no NaN to replace",
        "all shapes, finite scores",
        _softmax_without_nan,
    ),
)
