"""The records and texts of `verify`, `certify`, `check` and `bench`."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutopt.cli.rendering.terminal import Document, Row
from layoutopt.files import path_text
from layoutopt.version import VERSION

if TYPE_CHECKING:
    from layoutopt.bench.bench_report import BenchReport
    from layoutopt.certificate.checker.check import Verdict
    from layoutopt.report.compatibility import Compatibility
    from layoutopt.verification import Verification


# --- verify and certify ------------------------------------------------------------------------------------


def comparison_record(verdict: "Verification") -> dict[str, Any]:
    """The verdict on two models, and a row per output."""
    outputs = [
        {
            "name": each.name,
            "dtype": each.dtype,
            "error": each.error if math.isfinite(each.error) else None,
            "rounding": each.spread.largest,
            "tolerance": each.tolerance,
            "passed": each.passed,
        }
        for each in verdict.comparisons
    ]
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "outputs_depend_on_inputs": verdict.depends_on_inputs,
        "block_by_definition": verdict.defined_block or None,
        "sizes": [dict(each) for each in verdict.sizes],
        "outputs": outputs,
    }


def certificate_record(found: "Verdict", differences: Sequence[float]) -> dict[str, Any]:
    """How many ops are proven, the lemmas of the proofs, and the claims that are only tested, with their differences."""
    lemmas = Counter(name for proof in found.proofs.values() for name in proof.lemmas)
    tested = zip(found.tested.items(), differences, strict=True)
    return {
        "status": f"proven except {len(found.tested)} tested" if found.tested else "proven",
        "ops": found.nodes,
        "proven_ops": len(found.proven_nodes),
        "tested_ops": len(found.tested_nodes),
        "proven_claims": len(found.proofs),
        "lemmas": dict(sorted(lemmas.items())),
        "tested": [
            {"value": name, "ops": len(nodes), "largest_difference": error} for (name, (_, nodes)), error in tested
        ],
    }


# --- check -------------------------------------------------------------------------------------------------


def model_record(model: Path, found: "Compatibility") -> dict[str, Any]:
    """The verdict on a model, and a row per operator and element types."""
    return {
        "model": path_text(model),
        "fits": not found.problems,
        "problems": list(found.problems),
        "layoutopt_version": VERSION,
        **asdict(found.machine),
        "target": found.machine.target or None,
        "packed_for": found.packed,
        "is_blocked": found.is_blocked,
        "load_error": found.failure or None,
        "operators": [record | record.pop("support") for record in map(asdict, found.usages)],
    }


def model_document(record: Row, show_all: bool) -> Document:
    """The same without the standard operators that have a kernel, unless `show_all`."""
    operators = [each for each in record["operators"] if show_all or each["domain"] or each["status"] != "kernel"]
    hidden = len(record["operators"]) - len(operators)
    note = f"{hidden} more, standard ONNX operators, have a kernel: --all lists them." if hidden else ""
    verdict = "compatible" if record["fits"] else "incompatible"
    shown = {"verdict": verdict, **record, "operators": operators, "fits": None, "model": None}
    return Document(title=record["model"], record=shown, note=note)


# --- bench -------------------------------------------------------------------------------------------------


def bench_document(report: "BenchReport") -> Document:
    """Conditions, and a row per model: time, speed-up with its interval, session creation and data movement."""
    rows = []
    for each in report.models:
        ratio = {key: getattr(each.speed_up, key, None) for key in ("value", "low", "high", "verdict")}
        rows.append(
            {
                "model": each.label,
                "run_seconds": each.time.value,
                f"{report.models[0].label} / model": ratio.pop("value"),
                **ratio,
                "session_seconds": each.creation.value,
                "Transposes and reorders percent": 100 * each.reorder_share,
            }
        )
    record = {
        **{each.label: f"{each.model} in {each.runtime} {each.runtime_version}" for each in report.models},
        **report.model_dump(include={"machine", "seed", "rounds", "blocks", "warnings"}),
        "inputs": [each.model_dump() for each in report.models[0].inputs],
        "95 % confidence intervals": rows,
    }
    return Document(title="bench", record=record, note="Compare the outputs with: layoutopt verify A B")
