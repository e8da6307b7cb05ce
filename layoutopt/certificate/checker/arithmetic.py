"""Sums and products: flattened, with one constant, constants distributed over sums."""

from collections.abc import Sequence

import numpy as np

from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Array, Shape, Term, UnprovableError, apply, constant

_RANGE = {1: (2.0**-126, 2.0**128), 10: (2.0**-14, 65504.0), 11: (2.0**-1022, np.inf), 16: (2.0**-126, 2.0**128)}


def combined(op: str, terms: Sequence[Term], shape: Shape) -> Term:
    """The sum or product of flattened, sorted operands; constants come last."""
    from layoutopt.certificate.checker.normal import broadcast, make

    dtype = terms[0].dtype
    if op == "Mul" and (factored := _without_coefficients(terms)) is not None:
        return make("Mul", *factored)
    others = [term for term in terms if term.op != CONSTANT]
    merged = [_merged(op, [term for term in terms if term.op == CONSTANT], dtype)] if len(others) < len(terms) else []
    if not others:
        return merged[0]
    is_neutral = bool(merged) and (np.all(merged[0].elements == 1) if op == "Mul" else not np.any(merged[0].magnitudes))
    if is_neutral and broadcast([term.shape for term in others]) == shape:
        others[0], merged = _noting(others[0], merged[0]), []
    if merged and op == "Mul" and len(others) == 1 and others[0].op == "Add":
        return make("Add", *(make("Mul", part, merged[0]) for part in others[0].operands))
    if len(others) == 1 and not merged:
        return others[0]
    return apply(op, (*others, *merged), shape, dtype)


def _without_coefficients(terms: Sequence[Term]) -> list[Term] | None:
    """Factors with the coefficient of the first operand of every sum taken out of the sum; None if there is none."""
    from layoutopt.certificate.checker.normal import make

    found: list[Term] = []
    if terms[0].dtype not in FLOATS or sum(term.op != CONSTANT for term in terms) < 2:
        return None
    for term in terms:
        first = term.args[0] if term.op == "Add" else None
        factor = first.args[-1] if first is not None and first.op == "Mul" else None
        if factor is not None and scalar(factor) and np.all(factor.elements != 0):
            back = constant(1 / factor.elements, factor.dtype)
            found += [make("Add", *(make("Mul", part, back) for part in term.operands)), factor]
        else:
            found.append(term)
    return found if len(found) > len(terms) else None


def _noting(term: Term, other: Term) -> Term:
    from layoutopt.certificate.checker.normal import with_lemmas

    return with_lemmas(term, other.lemmas)


def _merged(op: str, constants: Sequence[Term], dtype: int) -> Term:
    """The sum or product of constants, with its bound, without axes along which it does not change."""
    elements, bound = constants[0].elements, constants[0].magnitudes
    for term in constants[1:]:
        if (
            op == "Mul"
            and dtype in FLOATS
            and not (np.all(np.isfinite(elements)) and np.all(np.isfinite(term.elements)))
        ):
            raise UnprovableError("a product with an infinite constant")
        is_zero = (elements == 0) | (term.elements == 0)
        elements = elements + term.elements if op == "Add" else elements * term.elements
        bound = bound + term.magnitudes if op == "Add" else bound * term.magnitudes
        if dtype in FLOATS:
            check_range(elements, dtype, is_zero if op == "Mul" else np.asarray(True))
    lemmas = frozenset[str]().union(*(term.lemmas for term in constants))
    return constant(elements, dtype, bound if dtype in FLOATS else None, lemmas)


def check_range(elements: Array, dtype: int, can_be_zero: Array) -> None:
    """Check that numbers of a float type are neither too large nor too small for it.

    Raises:
        UnprovableError: one is, so that exact arithmetic does not describe the type.
    """
    smallest, largest = _RANGE[dtype]
    sizes = np.abs(elements)
    if np.any(np.isfinite(sizes) & (sizes > largest)) or np.any((sizes < smallest) & ~can_be_zero):
        raise UnprovableError("a constant is beyond the range of its element type")


def scalar(term: Term) -> bool:
    """Whether a constant has one element."""
    return term.op == CONSTANT and term.elements.size == 1
