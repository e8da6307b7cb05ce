"""The comparison of `verify`: two model files on the same inputs, with the differences of their outputs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from layoutopt import inference, onnx_io
from layoutopt.cli.rendering.stderr import ProgressLine
from layoutopt.formats import Format, lookup
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims
from layoutopt.report.stamp import KEY
from layoutopt.sample_inputs import InputSet, prepare_inputs
from layoutopt.verification import Verification
from layoutopt.verification.difference import Difference
from layoutopt.verification.gate import verify_files
from layoutopt.verification.runs import Request


def compare_models(
    original: Path,
    rewritten: Path,
    tolerance: float | None,
    dims: Dims,
    inputs: Sequence[InputSet] = (),
    *,
    strict: bool = False,
) -> tuple[Verification, dict[Path, list[tuple[str, str]]]]:
    """Compare two models on given inputs, or on random inputs.

    Args:
        original: the reference model.
        rewritten: the model to compare with it.
        tolerance: the largest accepted error; None to derive it from the rounding spread.
        dims: sizes of symbolic dimensions.
        inputs: sets of input arrays; empty for random inputs.
        strict: reject a model with a fault that onnxruntime tolerates.

    Returns:
        The verdict, and the faults that the reader repaired, as (name, repair), by file.

    Raises:
        ModelError: one of the files cannot be read.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the inputs.
    """
    with ProgressLine() as progress:
        progress("reading")
        models = [onnx_io.read(path, strict=strict) for path in (original, rewritten)]
        graphs = [inference.lift(model, strict=strict) for model in models]  # an invalid model may crash onnxruntime
        repairs = {path: graph.repairs for path, graph in zip((original, rewritten), graphs, strict=True)}
        samples, _ = prepare_inputs(original, graphs[0], dims, inputs)
        pins = recorded_pins(models[1].metadata_props, graphs[0])
        progress("verifying")
        verdict = verify_files(original, rewritten, Request(pins, (), samples), graphs)
    return verdict if tolerance is None else with_tolerance(verdict, tolerance), repairs


def recorded_pins(metadata: Mapping[str, str], original: Graph) -> dict[str, Format]:
    """Pinned formats by tensor, from the metadata of a model that layoutopt wrote.

    Args:
        metadata: of the rewritten model.
        original: the graph of the original, with the element types of the tensors.
    """
    try:
        stamp = json.loads(metadata.get(KEY, "{}"))
        letters, values = stamp.get("pin_axes", {}), {name: original.find(name) for name in stamp.get("pins", {})}
        dtypes = {name: None if value is None or value.dtype is None else value.dtype for name, value in values.items()}
        return {
            name: lookup(str(stamp["pins"][name]), dtype and dtype.label, letters.get(name))
            for name, dtype in dtypes.items()
        }
    except (ValueError, AttributeError):  # the metadata entry was edited, or another tool wrote it
        return {}


def with_tolerance(verdict: Verification, tolerance: float) -> Verification:
    """The verdict on the same comparisons with a fixed tolerance."""
    if not verdict.comparisons:
        return verdict
    limit = Difference(tolerance, tolerance)
    comparisons = (replace(each, limit=limit) for each in verdict.comparisons)
    return Verification.of(comparisons, verdict.depends_on_inputs, verdict.sizes)
