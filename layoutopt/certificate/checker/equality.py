"""Equality of terms: the same operators on equal operands, constants equal element by element within rounding."""

import numpy as np

from layoutopt.certificate.checker.tables import NARY, PREDICATES
from layoutopt.certificate.checker.terms import CONSTANT, Term

ROUNDINGS = 16
"""How many roundings a constant may differ by, relative to the element, or to the numbers that a lemma adds to one element."""

LARGEST_GROWTH = 4
"""How much larger the numbers may be that a lemma adds to one element than those of the original."""

_CONTINUOUS = {"Conv", "MatMul", *NARY} - PREDICATES  # other operators need numbers that are exactly equal
_PRECISION = {1: 2.0**-24, 11: 2.0**-53}  # numbers of other element types have to be equal


def difference(found: Term, expected: Term) -> str:
    """The first difference of two terms in normal form, in a few words; an empty text if they are equal."""
    return _difference(found, expected, set())


def _difference(found: Term, expected: Term, equal: set[tuple[int, int]], reader: str = "") -> str:
    if found is expected or (id(found), id(expected)) in equal:
        return ""
    if found.op != expected.op:
        return f"{_name(found)} where the original has {_name(expected)}"
    if found.dtype != expected.dtype or (
        found.shape != expected.shape and not (found.op == CONSTANT and reader in NARY)
    ):
        return f"{_name(found)} of {found.shape} where the original has {expected.shape}"
    if found.op == CONSTANT:
        return _numbers(found, expected, ROUNDINGS if reader in _CONTINUOUS else 0)
    if found.attributes != expected.attributes or len(found.args) != len(expected.args):
        return f"{_name(found)} has other attributes or operands than in the original"
    for first, second in zip(found.args, expected.args, strict=True):
        if (first is None) != (second is None):
            return f"{found.op} has an operand that is omitted in the other model"
        if first is not None and second is not None and (reason := _difference(first, second, equal, found.op)):
            return reason
    equal.add((id(found), id(expected)))
    return ""


def _name(term: Term) -> str:
    return f"{term.op} {term['name']}" if term.op == "leaf" else term.op


def _numbers(found: Term, expected: Term, roundings: int) -> str:
    try:
        a, b = np.broadcast_arrays(found.elements, expected.elements)
        bounds = np.maximum(*np.broadcast_arrays(found.magnitudes, expected.magnitudes))
    except ValueError:
        return f"a constant of {found.shape} where the original has {expected.shape}"
    is_folded = found.bound is not None or expected.bound is not None
    exact = (a == b) & (is_folded | (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        near = np.abs(np.subtract(a, b, dtype=np.float64)) < roundings * _PRECISION.get(found.dtype, 0) * bounds
    is_grown = found.magnitudes > LARGEST_GROWTH * expected.magnitudes
    same = (exact | (near & np.isfinite(a) & np.isfinite(b) & (a != b))) & ~is_grown
    if np.all(same):
        return ""
    place = tuple(int(k) for k in np.argwhere(~same)[0])
    where = f"element {list(place)} is {a[place]:.9g} and not {b[place]:.9g}"
    return f"{np.count_nonzero(~same)} of {same.size} numbers of a constant differ, {where}"
