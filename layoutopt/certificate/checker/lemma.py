"""A lemma: a rewrite of terms whose conditions bound its effect on rounding."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layoutopt.certificate.checker.terms import CONSTANT, Array, Term

ALGEBRAIC = (1, 11)  # float32 and double; values of narrower types overflow too easily
SMALLEST_FACTOR, LARGEST_FACTOR = 2.0**-64, 2.0**16


@dataclass(frozen=True, slots=True)
class Lemma:
    """A named identity of terms.

    Attributes:
        name: its name in certificates and in the documentation.
        ops: the operators of the terms it is tried on.
        statement: the identity, in one line.
        rewrite: the other side of the identity, or None if the term is not one side of it. Every condition of the lemma,
            also those on magnitudes, is tested here. The result is normalised again by the caller.
    """

    name: str
    ops: frozenset[str]
    statement: str
    rewrite: Callable[[Term], Term | None]


def operands(term: Term) -> tuple[Term, Term]:
    """The two operands of a term."""
    first, second = term.args
    assert first is not None and second is not None
    return first, second


def is_factor(term: Term | None) -> bool:
    """Whether a term is a constant whose elements are 0 or in the range in which products are reordered."""
    if term is None or term.op != CONSTANT or term.dtype not in ALGEBRAIC:
        return False
    sizes = np.abs(term.elements)
    return bool(np.all((sizes == 0) | ((sizes >= SMALLEST_FACTOR) & (sizes <= LARGEST_FACTOR))))


def product(first: Term, second: Term) -> Array | None:
    """The elements of the product of two constants; None if one is beyond the range, or smaller than normal numbers."""
    with np.errstate(all="ignore"):
        elements = first.elements * second.elements
    is_zero = (first.elements == 0) | (second.elements == 0)
    is_normal = (np.abs(elements) >= 2.0**-120) & (np.abs(elements) <= 2.0**32)
    return elements if np.all(is_zero & np.isfinite(elements) | is_normal) else None
