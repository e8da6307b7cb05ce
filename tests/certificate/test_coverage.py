"""Every pass and fusion pattern has its lemmas or is called tested; the documentation has the tables of the code."""

from collections.abc import Iterable
from pathlib import Path

from proofs_of_lemmas import PROOFS

import layoutopt.passes
from layoutopt.certificate.checker.lemmas import LEMMAS
from layoutopt.certificate.coverage import IDENTITIES, OTHERS, PASSES, PATTERNS, Coverage
from layoutopt.dialects import DIALECTS
from layoutopt.patterns import fusion_patterns

PAGE = Path(__file__).parents[2] / "docs" / "certificate-lemmas.md"
_LEMMAS = {lemma.name for lemma in LEMMAS}
_IDENTITIES = {identity.name for identity in IDENTITIES}


def test_every_pass_is_in_the_table() -> None:
    known = {"lower"}
    for pipeline in (layoutopt.passes.DEFAULT_PIPELINE, layoutopt.passes.TRAINING_PIPELINE):
        known |= {each.name for each in pipeline.passes}
    known.add(layoutopt.passes.CheckGain.name)
    for dialect in DIALECTS.values():
        known |= {each.name for each in (*dialect.passes, *dialect.baked_passes)}
    assert [each.name for each in PASSES] == list(dict.fromkeys(each.name for each in PASSES))
    assert {each.name for each in PASSES} == known


def test_every_fusion_pattern_is_in_the_table() -> None:
    own = [each.name for each in fusion_patterns() if type(each).__module__.startswith("layoutopt.")]
    assert [each.name for each in PATTERNS] == own


def test_every_lemma_is_proven() -> None:
    assert not _LEMMAS & _IDENTITIES
    assert set(PROOFS) == _LEMMAS | _IDENTITIES


def test_rewrites_refer_to_lemmas() -> None:
    for each in (*PASSES, *PATTERNS, *OTHERS):
        assert set(each.lemmas) <= _LEMMAS | _IDENTITIES, each.name
        assert each.kind in ("proven", "tested") or not each.lemmas, each.name
    used = {name for each in (*PASSES, *PATTERNS, *OTHERS) for name in each.lemmas}
    assert used | {"product-with-constant"} == _LEMMAS | _IDENTITIES


def test_the_page_is_current(update_golden: bool) -> None:
    text = PAGE.read_text()
    head, *rest = text.split("<!-- generated: ")
    found = [head]
    for part in rest:
        name, _, behind = part.partition(" -->\n")
        _, end, after = behind.partition("<!-- end -->")
        found.append(f"{name} -->\n{TABLES[name]}{end}{after}")
    new = "<!-- generated: ".join(found)
    if update_golden:
        PAGE.write_text(new)
    assert text == new or update_golden, "run pytest tests/certificate/test_coverage.py --update-golden"


def _table(heads: str, rows: Iterable[tuple[str, ...]]) -> str:
    names = heads.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rewrites(rows: Iterable[Coverage]) -> str:
    return _table(
        "rewrite, in certificates, effect, lemmas",
        ((each.name, each.kind, each.effect, ", ".join(f"`{name}`" for name in each.lemmas)) for each in rows),
    )


TABLES = {
    "lemmas": _table("lemma, identity", ((f"`{each.name}`", each.statement) for each in LEMMAS)),
    "identities": _table(
        "identity, statement, claimed for", ((f"`{each.name}`", each.statement, each.claims) for each in IDENTITIES)
    ),
    "passes": _rewrites(PASSES),
    "patterns": _rewrites(PATTERNS),
    "others": _rewrites(OTHERS),
    "tested": "".join(
        f"- {each.name}: {each.effect}\n" for each in (*PASSES, *PATTERNS, *OTHERS) if each.kind == "tested"
    ),
}
