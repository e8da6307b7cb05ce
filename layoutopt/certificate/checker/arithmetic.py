"""Sums and products: flattened, with one constant, constants distributed over sums."""

from collections.abc import Sequence

import numpy as np

from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Shape, Term, apply, constant


def combined(op: str, terms: Sequence[Term], shape: Shape) -> Term:
    """The sum or product of flattened, sorted operands; constants come last."""
    from layoutopt.certificate.checker.normal import broadcast, make

    dtype = terms[0].dtype
    others = [term for term in terms if term.op != CONSTANT]
    merged = [_merged(op, [term for term in terms if term.op == CONSTANT], dtype)] if len(others) < len(terms) else []
    if not others:
        return merged[0]
    if merged and broadcast([term.shape for term in others]) == shape and np.all(merged[0].elements == (op == "Mul")):
        others[0], merged = _noting(others[0], merged[0]), []
    if merged and op == "Mul" and len(others) == 1 and others[0].op == "Add":
        return make("Add", *(make("Mul", part, merged[0]) for part in others[0].operands))
    if len(others) == 1 and not merged:
        return others[0]
    return apply(op, (*others, *merged), shape, dtype)


def _noting(term: Term, other: Term) -> Term:
    from layoutopt.certificate.checker.normal import with_lemmas

    return with_lemmas(term, other.lemmas)


def _merged(op: str, constants: Sequence[Term], dtype: int) -> Term:
    """The sum or product of constants, with its bound, without axes along which it does not change."""
    elements, bound = constants[0].elements, constants[0].magnitudes
    for term in constants[1:]:
        elements = elements + term.elements if op == "Add" else elements * term.elements
        bound = bound + term.magnitudes if op == "Add" else bound * term.magnitudes
    lemmas = frozenset[str]().union(*(term.lemmas for term in constants))
    return constant(elements, dtype, bound if dtype in FLOATS else None, lemmas)


def scalar(term: Term) -> bool:
    """Whether a constant has one element."""
    return term.op == CONSTANT and term.elements.size == 1
