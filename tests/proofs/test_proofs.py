"""Every lemma is proven by z3, and a variant of it with one changed coefficient is refuted."""

import pytest
from proofs_of_lemmas import PROOFS
from prover import counterexample, is_vacuous
from winograd_proofs import two_dimensions


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


@pytest.mark.parametrize("outputs", [(2, 2), pytest.param((4, 4), marks=pytest.mark.thorough)])
def test_winograd_in_two_dimensions(outputs: tuple[int, int]) -> None:
    assert all(counterexample(each) is None for each in two_dimensions(outputs, 3, 1))
    assert any(counterexample(each) is not None for each in two_dimensions(outputs, 3, 2))
