"""Every lemma is proven by z3, a variant of it with one changed coefficient is refuted, and the page has the lemmas."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from lemma_proofs import IDENTITIES
from prover import PROOFS, counterexample, is_vacuous

from layoutopt.certificate.checker.lemmas import LEMMAS

PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"
STATEMENTS = {lemma.name: lemma.statement for lemma in LEMMAS}


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


def table(rows: Mapping[str, str]) -> str:
    return "| name | statement |\n| --- | --- |\n" + "".join(f"| `{name}` | {rows[name]} |\n" for name in rows)


def test_every_lemma_is_proven() -> None:
    assert not STATEMENTS.keys() & IDENTITIES.keys()
    assert set(PROOFS) == STATEMENTS.keys() | IDENTITIES.keys()


def test_the_page_is_current(update_golden: bool) -> None:
    text = new = PAGE.read_text()
    for name, rows in (("lemmas", STATEMENTS), ("identities", IDENTITIES)):
        head, start, rest = new.partition(f"<!-- generated: {name} -->\n")
        new = head + start + table(rows) + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    if update_golden:
        PAGE.write_text(new)
    assert text == new or update_golden, "run pytest tests/proofs --update-golden"
