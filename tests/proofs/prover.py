"""Proof obligations for z3: claims over real numbers and integers, and induction over the number of terms of a finite sum.

A lemma is a function of a coefficient `k`, which is 1 in the lemma. With k = 2 the lemma is wrong, and z3 has to find a
counterexample; that shows that the proof can fail. z3 proves the obligations, all in exact arithmetic. Outside of z3 remain:

- the principle of induction: base and step are obligations, the conclusion for every number of terms is not;
- the meaning of the operators: an element of a convolution or of a product of matrices is a finite sum of products;
- the order of a finite sum, which does not matter for real numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import z3

Real: TypeAlias = Any  # an expression of z3, or a number
Claim: TypeAlias = Any
Index: TypeAlias = int | str
Term: TypeAlias = Callable[[Index], Real]

STEP = "n"  # the index of the last term of a sum of n + 1 terms
_EXAMPLE = 2  # terms of the sums in which counterexamples are sought


@dataclass(frozen=True, slots=True)
class Obligation:
    """A claim that follows from assumptions.

    Attributes:
        name: the part of the proof.
        claim: the claim.
        assumptions: conditions of the lemma, the hypothesis of an induction, or obligations that are proven elsewhere.
        is_step: whether it is a part of an induction, where a counterexample to the step need not be one to the lemma.
    """

    name: str
    claim: Claim
    assumptions: Sequence[Claim] = ()
    is_step: bool = False


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
    """A claim about sums of any number of terms: its base, its step, and an example of two terms, written out.

    Args:
        name: the claim in words.
        claim: the claim about sums.
        given: what is known of the terms of an index.
    """
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
