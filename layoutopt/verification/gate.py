"""Equivalence gate: the comparison that a rewritten model must pass before it is returned.

1. Both models are compared as a whole. The operands of a final Softmax or Sigmoid, which hides differences, count as outputs.
2. They are compared segment by segment (`segments`) where the first comparison is inconclusive: the difference is larger than
   the rounding spread, the spread is large enough to hide faults, or the outputs hardly depend on the inputs.

A model with more than `MAX_BYTES_IN_MEMORY` bytes of weights is compared through files (`runnable_copies`): sessions map its
weights, and only one model is loaded at a time. Models whose weights do not fit into memory are compared segment by segment
only, one segment in memory at a time (`out_of_core`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import onnx_ir

from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.errors import VerificationError
from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.runtime.session import MAX_BYTES_IN_MEMORY
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.cut_candidates import CutCandidates
from layoutopt.verification.model_edits import add_outputs, computed_names
from layoutopt.verification.observed_values import ObservedValue, locate_values
from layoutopt.verification.other_blocks import defined_block, with_definitions
from layoutopt.verification.out_of_core import compare_out_of_core, out_of_core_memory
from layoutopt.verification.random_numbers import with_seeds
from layoutopt.verification.request import Request
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runnable_copies import RunnableCopies
from layoutopt.verification.segments import compare_segments
from layoutopt.verification.traced_run import executed_data_movement
from layoutopt.verification.verdict import Verification
from layoutopt.verification.whole_model import verify_models


@dataclass(frozen=True, slots=True)
class EquivalenceGate:
    """The equivalence check of one run of `optimize`.

    Attributes:
        name: the name of the model in error messages.
        path: the file that the model was read from; None if it was not a file.
        pins: formats of its inputs and outputs in the rewritten model.
        inputs: generator of test inputs.
        is_native: whether the result is written for onnxruntime with its optimisations.
        is_emulated: whether onnxruntime emulates the formats of the result, so that its data movement there is not measured.
        candidates: the values at which the original can be cut.
    """

    name: str
    path: str | None
    pins: Mapping[str, Format]
    inputs: SampleInputs
    is_native: bool
    is_emulated: bool
    candidates: CutCandidates = field(repr=False)

    def verify(
        self,
        planned: Graph,
        lowered: Graph,
        original: onnx_ir.Model,
        emitted: onnx_ir.Model,
        final: onnx_ir.Model,
        copies: RunnableCopies,
    ) -> Verification:
        """Compare the final model with the original.

        Args:
            planned: the graph with formats and casts.
            lowered: the graph that it was lowered to.
            original: the model that was read.
            emitted: the lowered graph as a model.
            final: the model to be returned: `emitted`, or its form after onnxruntime's optimisations.
            copies: the models as Runnables.

        Raises:
            VerificationError: the final model is not equivalent to the original.
        """
        request = Request(self.pins, (), self.inputs)
        memory = out_of_core_memory(original, emitted) if final is emitted else None
        if memory is not None:
            common = locate_values(planned, lowered, self.candidates.names)
            verdict = compare_out_of_core(original, emitted, common, self.candidates, request, memory)
            return self._passed_or_not_verified(verdict)
        with scratch_folder() as traces:
            is_file = self.path is not None and Path(self.path).stat().st_size <= MAX_BYTES_IN_MEMORY
            # The weights inside of a larger file cannot be mapped, so the model is written again, with external data.
            path = self.path if is_file else None
            stored = Runnable.of(path, self.candidates.has_float16) if path else copies.of(original)
            reference = replace(stored, trace=traces / "original")
            block = packed_block(node.name or "" for node in emitted.graph)
            written = replace(copies.of(final), trace=traces / "final")
            returned = with_definitions(written)
            saturated = locate_values(planned, lowered, list(self.candidates.before_saturation))
            names = self.candidates.names
            models = ComparedModels(
                reference,
                returned,
                saturated,
                None if final is emitted else lambda: with_definitions(copies.of(emitted)),
                lambda: locate_values(planned, lowered, names),
            )
            verdict = compare(models, self.candidates, request, only_optimised=self.is_native)
            verdict = replace(verdict, defined_block=defined_block(block))
            if verdict.status == "passed":
                uses_kernels = returned is written and not self.is_emulated
                verdict = replace(
                    verdict,
                    moved_before=executed_data_movement(reference, self.inputs),
                    moved_after=executed_data_movement(returned, self.inputs) if uses_kernels else None,
                )
        return self._passed_or_not_verified(verdict)

    def _passed_or_not_verified(self, verdict: Verification) -> Verification:
        """The verdict, unless the models differ.

        Raises:
            VerificationError: the verdict is "failed".
        """
        if verdict.status == "failed":
            error = VerificationError(
                f"the rewritten model is not equivalent to the original: {verdict.reason}",
                where=self.name,
                hint="nothing was written; please report it with the model",
            )
            error.tensors = verdict.tensors
            raise error
        return verdict


@dataclass(frozen=True, slots=True)
class ComparedModels:
    """The models of one comparison.

    Attributes:
        original: the reference model.
        final: the rewritten model that is returned.
        before_saturation: the operands of saturating activations that the original and `cuttable` have in common.
        unoptimised: function that returns the rewritten model before onnxruntime's optimisations; None if that is `final`.
        common_values: function that returns all values that they have in common.
    """

    original: Runnable
    final: Runnable
    before_saturation: Sequence[ObservedValue]
    unoptimised: Callable[[], Runnable] | None
    common_values: Callable[[], Sequence[ObservedValue]]

    @property
    def cuttable(self) -> Runnable:
        """The rewritten model before onnxruntime's optimisations, which keeps more of the original's values."""
        return self.final if self.unoptimised is None else self.unoptimised()

    def with_seeds(self) -> Self:
        """The models with equal seeds of all random numbers."""
        unoptimised = self.unoptimised
        return replace(
            self,
            original=with_seeds(self.original),
            final=with_seeds(self.final),
            unoptimised=None if unoptimised is None else lambda: with_seeds(unoptimised()),
        )

    def computed(self, values: Sequence[ObservedValue]) -> list[ObservedValue]:
        """The values that nodes of the original's main graph compute, without those in functions that it calls."""
        names = computed_names(self.original.message()) if values else set()
        return [each for each in values if each.original in names]


def compare(
    models: ComparedModels,
    candidates: CutCandidates,
    request: Request,
    *,
    only_optimised: bool = False,
    always_cuts: bool = False,
) -> Verification:
    """Compare two models as a whole, and segment by segment if that is inconclusive.

    Args:
        models: the models.
        candidates: the values at which the original can be cut.
        request: pins, test inputs, seed and time limits.
        only_optimised: whether to compare as a whole only with onnxruntime's optimisations, not without them too.
        always_cuts: whether to compare segment by segment even if the comparison as a whole is conclusive.
    """
    if candidates.has_random_ops:
        models = models.with_seeds()
    names = computed_names(models.final.message()) if models.before_saturation else set()
    observed = [each for each in models.computed(models.before_saturation) if each.rewritten in names]
    verdict = verify_models(
        _with_outputs(models.original, [each.original for each in observed]),
        _with_outputs(models.final, [each.rewritten for each in observed]),
        request=replace(request, observed=observed),
        only_optimised=only_optimised,
    )
    is_sufficient = (
        verdict.is_conclusive and verdict.depends_on_inputs and len(observed) == len(models.before_saturation)
    )
    cannot_run = verdict.status == "failed" and not verdict.comparisons
    if (is_sufficient and not always_cuts) or cannot_run or verdict.status == "not verified":
        return verdict
    cuts = candidates.cuts(models.computed(models.common_values()))
    if not cuts:
        return verdict
    cuttable = models.cuttable
    if models.final is not cuttable and not _is_baking_equivalent(cuttable, models.final, request):
        return verdict
    segments = compare_segments(models.original, cuttable, cuts, request)
    if segments.status == "not verified":
        return replace(verdict, reason=f"{verdict.reason or 'as a whole only'}; {segments.reason}")
    if segments.status == "failed":
        return replace(segments, reason=f"segment by segment {segments.reason}", sizes=verdict.sizes)
    if verdict.is_conclusive:
        return replace(verdict, depends_on_inputs=True)
    whole = verdict.reason or verdict.worst.description if verdict.worst is not None else verdict.reason
    comparisons = verdict.comparisons if verdict.status == "passed" else segments.comparisons
    reason = f"segment by segment; as a whole {whole}"
    return replace(verdict, status="passed", reason=reason, comparisons=comparisons, depends_on_inputs=True)


def _with_outputs(model: Runnable, names: Sequence[str]) -> Runnable:
    if not names:
        return model
    message = model.message()
    add_outputs(message, names)
    return model.edited(message)


def _is_baking_equivalent(emitted: Runnable, final: Runnable, request: Request) -> bool:
    """Whether the final model is equivalent to the emitted one, which onnxruntime has optimised to it."""
    unpinned = replace(request, pins={}, observed=(), defers_spread=True)
    return verify_models(emitted, final, request=unpinned, only_optimised=True).status == "passed"


__all__ = ["ComparedModels", "CutCandidates", "EquivalenceGate", "compare"]
