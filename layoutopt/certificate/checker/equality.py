"""Equality of terms: the same operators on equal operands, constants within rounding."""

import numpy as np

from layoutopt.certificate.checker.normal import NARY
from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Term, constant

ROUNDINGS = {1: 16, 10: 4, 11: 16, 16: 2}
"""How many roundings to the element type a constant may differ by, relative to the sum of the absolute values it comes from."""

LARGEST_CANCELLATION = 2.0**10
"""How much larger than the numbers of the original the absolute values may be that a constant of the result comes from."""

_PRECISION = {1: 2.0**-24, 10: 2.0**-11, 11: 2.0**-53, 16: 2.0**-8}


def difference(found: Term, expected: Term) -> str:
    """The first difference of two terms in normal form, in a few words; an empty text if they are equal."""
    return _difference(found, expected, set())


def _difference(found: Term, expected: Term, equal: set[tuple[int, int]], is_broadcast: bool = False) -> str:
    if found is expected or (id(found), id(expected)) in equal:
        return ""
    if found.op != expected.op:
        return f"{_name(found)} where the original has {_name(expected)}"
    if found.op == CONSTANT == expected.op and is_broadcast and found.dtype == expected.dtype:
        return _numbers(*_aligned(found, expected))
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{_name(found)} of {found.shape} where the original has {expected.shape}"
    if found.op == CONSTANT:
        return _numbers(found, expected)
    if found.attributes != expected.attributes:
        changed = [name for (name, a), (_, b) in zip(found.attributes, expected.attributes, strict=False) if a != b]
        return f"{found.op} has other {' and '.join(changed) or 'attributes'} than in the original"
    if len(found.args) != len(expected.args):
        return f"{found.op} of {len(found.args)} operands where the original has {len(expected.args)}"
    for first, second in zip(found.args, expected.args, strict=True):
        if (first is None) != (second is None):
            return f"{found.op} has an operand that is omitted in the other model"
        if first is not None and second is not None and (reason := _difference(first, second, equal, found.op in NARY)):
            return reason
    equal.add((id(found), id(expected)))
    return ""


def _aligned(found: Term, expected: Term) -> tuple[Term, Term]:
    """Constants that are operands of element-wise operators, broadcast to one shape if there is one."""
    try:
        shape = np.broadcast_shapes(found.elements.shape, expected.elements.shape)
    except ValueError:
        return found, expected
    first, second = (
        constant(np.broadcast_to(term.elements, shape), term.dtype, np.broadcast_to(term.magnitudes, shape))
        for term in (found, expected)
    )
    return first, second


def _name(term: Term) -> str:
    return f"{term.op} {term['name']}" if term.op == "leaf" else term.op


def _numbers(found: Term, expected: Term) -> str:
    a, b = found.elements, expected.elements
    if a.shape != b.shape:
        return f"a constant of {a.shape} where the original has {b.shape}"
    if found.dtype not in FLOATS:
        return "" if np.array_equal(a, b) else f"integers {_few(a)} where the original has {_few(b)}"
    with np.errstate(invalid="ignore"):
        scale = np.maximum(found.magnitudes, expected.magnitudes)
        finite = np.isfinite(a) & np.isfinite(b)
        near = finite & (np.abs(a - b) <= ROUNDINGS[found.dtype] * _PRECISION[found.dtype] * scale)
    own = np.max(np.where(finite, np.maximum(np.abs(b), expected.magnitudes), 0), initial=0)
    if np.any(np.where(finite, found.magnitudes, 0) > LARGEST_CANCELLATION * own):
        return "numbers of a constant are differences of much larger ones, in which rounding can hide anything"
    same = near | (a == b) | (np.isnan(a) & np.isnan(b))
    if np.all(same):
        return ""
    place = tuple(int(k) for k in np.argwhere(~same)[0])
    where = f"element {list(place)} is {a[place]:.9g} and not {b[place]:.9g}"
    return f"{np.count_nonzero(~same)} of {same.size} numbers of a constant differ, {where}"


def _few(array: object) -> str:
    return str(np.asarray(array).reshape(-1)[:6].tolist())
