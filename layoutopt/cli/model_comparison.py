"""`verify` and `certify`: whether two models compute the same, by running them or by a proof."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from layoutopt import inference, onnx_io
from layoutopt.certificate.checker.check import check, parse
from layoutopt.certificate.checker.lemmas import BY_NAME
from layoutopt.certificate.checker.model import read
from layoutopt.certificate.producer import measure
from layoutopt.cli.exit_codes import NotVerifiedError
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import OutputFiles
from layoutopt.cli.rendering.stderr import progress_line, warn_of_repairs
from layoutopt.cli.rendering.terminal import Document
from layoutopt.errors import CertificateError, VerificationError
from layoutopt.formats import Format, lookup
from layoutopt.ir.graph import Graph
from layoutopt.report.stamp import KEY
from layoutopt.runtime.custom_ops import kernel_libraries
from layoutopt.sample_inputs import prepare_inputs, read_inputs
from layoutopt.verification import Verification
from layoutopt.verification.difference import Difference
from layoutopt.verification.gate import verify_files
from layoutopt.verification.runs import Request


def verify(given: Given, original: Path, rewritten: Path) -> None:
    """Compare two models on given inputs, or on random inputs: the verdict, and a row per output.

    Raises:
        ModelError: one of the files cannot be read.
        DimensionError, InputError: the original has no such symbolic dimension, or does not take the inputs.
        VerificationError: the models differ.
        NotVerifiedError: the original cannot be run.
    """
    settings, files = given.settings(original), (original, rewritten)
    arrays = [read_inputs(path) for path in settings.inputs]
    record = OutputFiles("verify", given, *files, reads=settings.reads)
    with kernel_libraries(settings.custom_ops), progress_line() as progress:
        progress("reading")
        models = [onnx_io.read(path, strict=settings.strict) for path in files]
        graphs = [inference.lift(each, strict=settings.strict) for each in models]  # invalid ones may crash onnxruntime
        samples, _ = prepare_inputs(original, graphs[0], settings.dim, arrays)
        pins = recorded_pins(models[1].metadata_props, graphs[0])
        progress("verifying")
        verdict = verify_files(original, rewritten, Request(pins, (), samples), graphs)
    if given.tolerance is not None and verdict.comparisons:
        limit = Difference(given.tolerance, given.tolerance)
        comparisons = (replace(each, limit=limit) for each in verdict.comparisons)
        verdict = Verification.of(comparisons, verdict.depends_on_inputs, verdict.sizes)
    found = _comparison_record(verdict)
    record.show(found, Document(title=f"{original} and {rewritten}", record=found))
    if verdict.status == "failed":
        hint = f"compare with {original}, or set --tolerance" if verdict.comparisons else "correct the model"
        raise VerificationError(verdict.reason, where=str(rewritten), hint=hint)
    if verdict.status == "not verified":
        hint = "give models that onnxruntime can run on this machine"
        raise NotVerifiedError(f"not verified: {verdict.reason}", where=str(original), hint=hint)
    for path, graph in dict(zip(files, graphs, strict=True)).items():
        warn_of_repairs(graph.repairs, str(path))


def _comparison_record(verdict: Verification) -> dict[str, Any]:
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


def recorded_pins(metadata: Mapping[str, str], original: Graph) -> dict[str, Format]:
    """Pinned formats by tensor, from the metadata of a model that layoutopt wrote.

    Args:
        metadata: of the rewritten model.
        original: the graph of the original, with the element types of the tensors.
    """
    try:
        stamp = json.loads(metadata.get(KEY, "{}"))
        found: dict[str, Format] = {}
        for name, text in stamp.get("pins", {}).items():
            dtype = getattr(original.find(name), "dtype", None)
            found[name] = lookup(str(text), dtype and dtype.label, stamp.get("pin_axes", {}).get(name))
        return found
    except (ValueError, AttributeError):  # the metadata entry was edited, or another tool wrote it
        return {}


def certify(given: Given, original: Path, result: Path, certificate: Path) -> None:
    """Check a certificate: how many ops are proven, by which lemmas, and the claims that are only tested.

    Raises:
        CertificateError: it is refused, or cannot be read.
    """
    record = OutputFiles("certify", given, original, result, certificate)
    first, second = read(original), read(result)
    try:
        text = certificate.read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no text"
        raise CertificateError(f"cannot be read: {reason}", where=str(certificate)) from fault
    found = check(parse(text, str(certificate)), first, second, allow_tested=given.allow_tested)
    differences = measure(first, second, [claim for claim, _ in found.tested.values()])
    lemmas = Counter(name for proof in found.proofs.values() for name in proof.lemmas)
    tested = zip(found.tested.items(), differences, strict=True)
    data = {
        "status": f"proven except {len(found.tested)} tested" if found.tested else "proven",
        "ops": found.nodes,
        "proven_ops": len(found.proven_nodes),
        "tested_ops": len(found.tested_nodes),
        "proven_claims": len(found.proofs),
        "lemmas": [
            {"lemma": name, "claims": count, "statement": BY_NAME[name].statement}
            for name, count in sorted(lemmas.items())
        ],
        "tested": [
            {"value": name, "ops": len(nodes), "largest_difference": error} for (name, (_, nodes)), error in tested
        ],
    }
    record.show(data, Document(title=f"{result} against {original}", record=data))
