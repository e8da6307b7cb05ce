"""Every lemma of the checker is proven by z3; the documentation has the tables of the code."""

from collections.abc import Mapping
from pathlib import Path

from proofs_of_lemmas import IDENTITIES, PROOFS

from layoutopt.certificate.checker.lemmas import LEMMAS

PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"
STATEMENTS = {lemma.name: lemma.statement for lemma in LEMMAS}


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
    assert text == new or update_golden, "run pytest tests/certificate/test_coverage.py --update-golden"
