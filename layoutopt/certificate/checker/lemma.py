"""A lemma: a rewrite of terms that does not change the tensor, over exact arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass

from layoutopt.certificate.checker.terms import Term


@dataclass(frozen=True, slots=True)
class Lemma:
    """A named identity of terms.

    Attributes:
        name: its name in certificates and in the documentation.
        ops: the operators of the terms it is tried on.
        statement: the identity, in one line.
        claims: `all shapes`, or the shapes that the proof covers.
        rewrite: the other side of the identity, or None if the term is not one side of it. Every condition of the lemma,
            also one on elements of constants, is tested here. The result is normalised again by the caller.
    """

    name: str
    ops: frozenset[str]
    statement: str
    claims: str
    rewrite: Callable[[Term], Term | None]
