"""The output of `certify`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from layoutopt.certificate.checker.check import Verdict
from layoutopt.certificate.checker.lemmas import BY_NAME
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import Cell, key_values, section, show, styled_line, table


def print_verdict(
    found: Verdict, differences: Sequence[float], original: Path, result: Path, json: JsonRecord, *, is_quiet: bool
) -> None:
    """Print how many ops are proven, the lemmas of the proofs, and the claims that are only tested, with their differences."""
    lemmas = dict(sorted(Counter(name for proof in found.proofs.values() for name in proof.lemmas).items()))
    proven, tested = len(found.proven_nodes), len(found.tested_nodes)
    headline = f"proven except {len(found.tested)} tested" if found.tested else "proven"
    measured = [
        (name, len(nodes), error) for (name, (_, nodes)), error in zip(found.tested.items(), differences, strict=True)
    ]
    json.write(
        {
            "status": headline,
            "ops": found.nodes,
            "proven_ops": len(found.proven_nodes),
            "tested_ops": len(found.tested_nodes),
            "proven_claims": len(found.proofs),
            "lemmas": lemmas,
            "tested": [{"value": name, "ops": ops, "largest_difference": error} for name, ops, error in measured],
        }
    )
    if json.is_printed or is_quiet:
        return
    rows: list[tuple[str, Cell]] = [
        ("verdict", styled_line((headline, "yellow" if tested else "green"), f", {len(found.proofs)} claims")),
        ("proven", f"{proven} of {found.nodes} ops"),
        ("tested", (f"{tested} of {found.nodes} ops" if tested else "none", "yellow" if tested else "")),
    ]
    show(styled_line((str(result), "bold"), " against ", (str(original), "bold")), key_values(*rows))
    if lemmas:
        content = table(
            ["lemma", ">claims", "statement"],
            [[name, count, BY_NAME[name].statement] for name, count in lemmas.items()],
        )
        section("lemmas", "identities that the proofs use", content)
    if found.tested:
        content = table(
            ["value", ">ops", ">largest difference"], [[name, ops, f"{error:.1e}"] for name, ops, error in measured]
        )
        section("tested", "values that are compared on random inputs and not proven", content)
