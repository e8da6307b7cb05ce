"""The comparison of `verify`: two model files on the same inputs, with the differences of their outputs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt import inference, onnx_io
from layoutopt.cli.exit_codes import NotVerifiedError
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.errors import VerificationError
from layoutopt.formats import Format, lookup
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims
from layoutopt.report.stamp import KEY
from layoutopt.sample_inputs import InputSet, prepare_inputs
from layoutopt.verification import Comparison, Verification
from layoutopt.verification.difference import Difference
from layoutopt.verification.file_comparison import verify_files
from layoutopt.verification.runs import Request


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The outcome of several rounds of comparison of two models.

    Attributes:
        original: the reference model.
        rewritten: the model to compare with it.
        verdicts: one verdict per round.
        repairs: the faults that the reader repaired, as (name, repair), by file.
    """

    original: Path
    rewritten: Path
    verdicts: tuple[Verification, ...]
    repairs: Mapping[Path, Sequence[tuple[str, str]]]

    @property
    def outputs(self) -> list[Comparison]:
        """The comparison with the largest error, for every output."""
        worst: dict[str, Comparison] = {}
        for each in (comparison for verdict in self.verdicts for comparison in verdict.comparisons):
            if each.name not in worst or each.error > worst[each.name].error:
                worst[each.name] = each
        return list(worst.values())

    @property
    def verdict(self) -> Verification:
        """The first verdict that is not "passed"; if all passed, the first."""
        return next((each for each in self.verdicts if each.status != "passed"), self.verdicts[0])

    @property
    def depends_on_inputs(self) -> bool:
        """Whether the outputs depend on the inputs."""
        return any(verdict.depends_on_inputs for verdict in self.verdicts)

    def raise_for_status(self) -> None:
        """Raise an error unless the models agree.

        Raises:
            VerificationError: the models differ.
            NotVerifiedError: the original cannot be run.
        """
        verdict = self.verdict
        if verdict.status == "failed":
            hint = f"compare with {self.original}, or set --tolerance" if self.outputs else "correct the model"
            raise VerificationError(verdict.reason, where=str(self.rewritten), hint=hint)
        if verdict.status == "not verified":
            hint = "give models that onnxruntime can run on this machine"
            raise NotVerifiedError(f"not verified: {verdict.reason}", where=str(self.original), hint=hint)


def compare_models(
    original: Path,
    rewritten: Path,
    tolerance: float | None,
    rounds: int,
    dims: Dims,
    inputs: Sequence[InputSet] = (),
    *,
    strict: bool = False,
) -> ModelComparison:
    """Compare two models on given inputs, or on random inputs.

    Args:
        original: the reference model.
        rewritten: the model to compare with it.
        tolerance: the largest accepted error; None to derive it from the rounding spread.
        rounds: the number of comparisons, each on inputs of its own.
        dims: sizes of symbolic dimensions.
        inputs: sets of input arrays; empty for random inputs.
        strict: reject a model with a fault that onnxruntime tolerates.

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
        verdicts = []
        for number in range(rounds):
            progress(f"verifying, {number + 1} of {rounds}")
            verdict = verify_files(original, rewritten, Request(pins, (), samples, 2 * number), graphs)
            verdicts.append(verdict if tolerance is None else with_tolerance(verdict, tolerance))
    return ModelComparison(original, rewritten, tuple(verdicts), repairs)


def recorded_pins(metadata: Mapping[str, str], original: Graph) -> dict[str, Format]:
    """Pinned formats by tensor, from the metadata of a model that layoutopt wrote.

    Args:
        metadata: of the rewritten model.
        original: the graph of the original, with the element types of the tensors.
    """
    try:
        stamp = json.loads(metadata.get(KEY, "{}"))
        letters = stamp.get("pin_axes", {})
        return {
            str(name): lookup(str(pin), _dtype_label(original, str(name)), letters.get(name))
            for name, pin in stamp.get("pins", {}).items()
        }
    except (ValueError, AttributeError):  # the metadata entry was edited, or another tool wrote it
        return {}


def _dtype_label(graph: Graph, name: str) -> str | None:
    """The element type of a tensor; None if it is not known."""
    value = graph.find(name)
    return None if value is None or value.dtype is None else value.dtype.label


def with_tolerance(verdict: Verification, tolerance: float) -> Verification:
    """The verdict on the same comparisons with a fixed tolerance."""
    if not verdict.comparisons:
        return verdict
    limit = Difference(tolerance, tolerance)
    comparisons = (replace(each, limit=limit) for each in verdict.comparisons)
    return Verification.of(comparisons, verdict.depends_on_inputs, verdict.sizes)
