"""Equivalence gate: the comparison that a rewritten model must pass before it is returned.

1. Both models are compared as a whole. The operands of a final Softmax or Sigmoid, which hides differences, count as outputs.
2. They are compared segment by segment where the first comparison is inconclusive: the difference is larger than the rounding
   spread, the spread is large enough to hide faults, or the outputs hardly depend on the inputs.

A model with more than `MAX_BYTES_IN_MEMORY` bytes of weights is compared through files: sessions map its weights, and only one
model is loaded at a time. A model whose weights do not fit into memory is compared segment by segment only, with the weights of
one part in memory at a time (`parts`).

Two kinds of models get a second comparison as a whole:

- Models with float16 or bfloat16, whose rounding spread hides faults, are also compared after an upcast to float32.
- Quantised models are compared without optimisations where onnxruntime's optimisation levels disagree: it computes
  DequantizeLinear -> op -> QuantizeLinear in integers at one level and in floating point at the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir

from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.ir.sizes import Dims
from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.runtime.definitions import DEFINITION_DOMAIN, define
from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.portable import portable_block
from layoutopt.sample_inputs import Given, lift_source, prepare_inputs
from layoutopt.verification.comparison import PairOfModels
from layoutopt.verification.cuts import CutCandidates, ObservedValue
from layoutopt.verification.data_movement import executed_data_movement
from layoutopt.verification.edits import computed_names, upcast_to_float32
from layoutopt.verification.parts import PartedSession, is_too_large
from layoutopt.verification.runnable import (
    Runnable,
    RunnableCopies,
    Source,
    with_definitions,
    with_seeds,
)
from layoutopt.verification.runs import Request
from layoutopt.verification.verdict import Verification

FLOAT16_ERROR_RATIO = 8
"""Accepted error of a rewritten 16-bit model against float32, as a multiple of the original's own error.

The error of a model varies by up to a factor of 7 between onnxruntime's optimisation levels: bert_medium 0.0007 to 0.0051.
"""

_FLOAT16_ERROR = 1e-2  # an error of a few units in the last place of float16
_OTHER_BRANCH = {"then_branch": "else_branch", "else_branch": "then_branch"}

Match: TypeAlias = Callable[[Sequence[str]], Sequence[ObservedValue]]
"""Finds those of some values of the original that the rewritten model has, too."""


def verify_models(
    original: Source,
    rewritten: Source,
    *,
    pins: Mapping[str, Format] | None = None,
    observed: Sequence[ObservedValue] = (),
    seed: int = 0,
    dims: Dims | None = None,
    inputs: Given | None = None,
    custom_ops: Libraries = (),
) -> Verification:
    """Run both models on two sets of random inputs, and on one more for every further size, and compare their outputs.

    Args:
        original: the reference model: a file, or the bytes of one.
        rewritten: the model to check.
        pins: formats of the rewritten model's inputs and outputs, where these are not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten model.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions, or ranges of them, by name, or by `input[axis]` for an unnamed dimension.
        inputs: arrays by input name, or several such sets, instead of random inputs.
        custom_ops: the path of a shared library with kernels of custom operators for onnxruntime, or several.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the given arrays.
    """
    with kernel_libraries(custom_ops):
        graph = lift_source(original)
        candidates = CutCandidates() if graph is None else CutCandidates.of(graph)
        request = Request(pins or {}, observed, prepare_inputs(original, graph, dims, inputs)[0], seed)
        prepared = [with_definitions(Runnable.of(each)) for each in (original, rewritten)]
        models = [_seeded(model, candidates) for model, _ in prepared]
        try:
            verdict = compare_as_a_whole(models[0], models[1], request, candidates)
        except MemoryError as error:
            raise_if_out_of_memory(error, "model" if isinstance(original, bytes) else str(original))
            raise
        return replace(verdict, defined_block=max(block for _, block in prepared))


def verify_rewrite(
    original: onnx_ir.Model,
    emitted: onnx_ir.Model,
    final: onnx_ir.Model,
    match: Match,
    candidates: CutCandidates,
    request: Request,
    copies: RunnableCopies,
    *,
    path: str | None = None,
    is_emulated: bool = False,
) -> Verification:
    """Compare a rewritten model with the original.

    Args:
        original: the model that was read.
        emitted: the rewritten model.
        final: the model to be returned: `emitted`, or its form after onnxruntime's optimisations.
        match: finds the values of the original in `emitted`.
        candidates: the values at which the original can be cut.
        request: pins, test inputs, seed and time limits.
        copies: the models as Runnables.
        path: the file that the original was read from; None if it was not a file.
        is_emulated: whether onnxruntime emulates the formats of the result, so that its data movement there is not measured.
    """
    is_parted = final is emitted and is_too_large(original, emitted)
    with scratch_folder() as traces:
        reference = replace(copies.of(original, path), trace=traces / "original", is_parted=is_parted)
        written = replace(copies.of(final), trace=traces / "final", is_parted=is_parted)
        returned, block = with_definitions(written)
        verdict = compare(
            _seeded(reference, candidates),
            _seeded(returned, candidates),
            match,
            candidates,
            request,
            None if final is emitted else lambda: _seeded(with_definitions(copies.of(emitted))[0], candidates),
        )
        verdict = replace(verdict, defined_block=block)
        if verdict.status != "passed" or is_parted:
            return verdict
        moved_after = None if block or is_emulated else executed_data_movement(returned, request.inputs)
        return replace(verdict, moved_before=executed_data_movement(reference, request.inputs), moved_after=moved_after)


def _seeded(model: Runnable, candidates: CutCandidates) -> Runnable:
    """The model, with equal seeds of all random numbers if it draws any."""
    return with_seeds(model) if candidates.has_random_ops else model


def compare(
    original: Runnable,
    final: Runnable,
    match: Match,
    candidates: CutCandidates,
    request: Request,
    unoptimised: Callable[[], Runnable] | None = None,
    *,
    always_cuts: bool = False,
) -> Verification:
    """Compare two models as a whole, and segment by segment if that is inconclusive, or if they are loaded part by part.

    Args:
        original: the reference model.
        final: the rewritten model.
        match: finds values of the original in the rewritten model, before onnxruntime's optimisations.
        candidates: the values at which the original can be cut.
        request: pins, test inputs, seed and time limits.
        unoptimised: function that returns the rewritten model before onnxruntime's optimisations, which keeps more of the
            original's values; None if that is `final`.
        always_cuts: whether to compare segment by segment even if the comparison as a whole is conclusive.
    """

    def common(names: Sequence[str]) -> list[ObservedValue]:
        """The values that nodes of the original's main graph compute, without those in functions that it calls."""
        computed = computed_names(original.message()) if names else set()
        return [each for each in match(names) if each.original in computed]

    if original.is_parted:
        return _compare_parts(
            PairOfModels(original, final, request, candidates.cuts(common(candidates.names)), is_optimised=False)
        )
    saturated = common(candidates.before_saturation)
    computed = computed_names(final.message()) if saturated else set()
    observed = [each for each in saturated if each.rewritten in computed]
    verdict = compare_as_a_whole(original, final, replace(request, observed=observed), candidates)
    is_sufficient = (
        verdict.is_conclusive and verdict.depends_on_inputs and len(observed) == len(candidates.before_saturation)
    )
    cannot_run = verdict.status == "failed" and not verdict.comparisons
    if (is_sufficient and not always_cuts) or cannot_run or verdict.status == "not verified":
        return verdict
    cuts = candidates.cuts(common(candidates.names))
    if not cuts.values:
        return verdict
    cuttable = final if unoptimised is None else unoptimised()
    if unoptimised is not None and not _is_baking_equivalent(cuttable, final, request, candidates):
        return verdict
    segments = PairOfModels(original, cuttable, request, cuts, is_optimised=False).verdict()
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


def _compare_parts(models: PairOfModels) -> Verification:
    """The verdict on models whose weights are loaded part by part."""
    verdict = models.verdict()
    session = models.original.session()
    if verdict.status == "passed" and isinstance(session, PartedSession):
        return replace(verdict, reason=f"segment by segment, one of {len(session.parts)} in memory at a time")
    return replace(verdict, reason=f"segment by segment {verdict.reason}") if verdict.status == "failed" else verdict


def _is_baking_equivalent(emitted: Runnable, final: Runnable, request: Request, candidates: CutCandidates) -> bool:
    """Whether the final model is equivalent to the emitted one, which onnxruntime has optimised to it."""
    unpinned = replace(request, pins={}, observed=(), defers_spread=True)
    optimised = replace(candidates, is_quantised=False)
    return compare_as_a_whole(emitted, final, unpinned, optimised).status == "passed"


def compare_as_a_whole(
    original: Runnable, rewritten: Runnable, request: Request, candidates: CutCandidates
) -> Verification:
    """Compare two models; a second time if they use narrow types or integers and the first comparison is inconclusive."""
    verdict = PairOfModels(original, rewritten, request).verdict()
    if verdict.is_conclusive:
        return verdict
    if candidates.is_narrow and not candidates.is_quantised:
        return _compare_upcast(original, rewritten, request, verdict)
    if verdict.status != "failed" or not candidates.is_quantised:
        return verdict
    unoptimised = PairOfModels(original, rewritten, request, is_optimised=False).verdict()
    if unoptimised.status == "passed":
        return replace(unoptimised, reason=f"without onnxruntime's optimisations; with them {verdict.reason}")
    return verdict if unoptimised.status == "not verified" else unoptimised


def _compare_upcast(original: Runnable, rewritten: Runnable, request: Request, verdict: Verification) -> Verification:
    """The verdict on models with 16-bit types, after a comparison of both with these types upcast to float32.

    Where the upcast models differ, constants may have been recomputed and rounded to 16 bits: the spread is then measured
    with the original's weights moved by one unit in the last place of their own types.
    """
    reference, other = (
        upcast_to_float32(each.source) if each.folder is None else None for each in (original, rewritten)
    )
    if reference is None or other is None:
        return verdict
    upcast = PairOfModels(Runnable.of(reference), Runnable.of(other), request)
    wide = upcast.verdict()
    if wide.status == "failed":
        wide = replace(upcast, narrow=original).verdict()
    if wide.status == "not verified" or (verdict.status == "passed" and wide.status == "passed"):
        return verdict
    if wide.status == "passed" and (not verdict.comparisons or _is_as_exact(original, rewritten, reference, request)):
        return replace(wide, reason=f"with float32 instead of 16-bit types; with 16-bit types {verdict.reason}")
    if verdict.status == "passed":
        return replace(wide, reason=f"with float32 instead of 16-bit types {wide.reason}")
    return verdict


def _is_as_exact(original: Runnable, rewritten: Runnable, reference: bytes, request: Request) -> bool:
    """Whether the 16-bit rewritten model is about as close to the float32 reference as the 16-bit original is."""
    base = replace(request, observed=(), pins={})
    wide = Runnable.of(reference)
    before = errors_of(PairOfModels(wide, original, base, upcasts_outputs=True).verdict())
    after = errors_of(PairOfModels(wide, rewritten, request, upcasts_outputs=True).verdict())
    return bool(after) and all(
        after[name] <= max(_FLOAT16_ERROR, FLOAT16_ERROR_RATIO * before.get(name, 0.0))
        for name in after
        if name in before
    )


def errors_of(verdict: Verification) -> dict[str, float]:
    """The largest finite error of every output, relative to the output's largest magnitude on any of the inputs.

    A sum may cancel on one set of inputs, so that its error is large relative to its magnitude there, but not on others.
    """
    errors: dict[str, float] = {}
    largest: dict[str, float] = {}
    for each in verdict.comparisons:
        largest[each.name] = max(largest.get(each.name, 0.0), each.magnitude)
    for each in verdict.comparisons:
        is_measured = largest[each.name] > 0 and np.isfinite(each.error)
        error = each.error * each.magnitude / largest[each.name] if is_measured else each.error
        errors[each.name] = max(errors.get(each.name, 0.0), error)
    return {name: error for name, error in errors.items() if np.isfinite(error)}


def verify_portable(
    model: Runnable, native: Runnable, standard: Runnable, request: Request, *, is_narrow: bool
) -> Verification:
    """Compare a portable model, as every kind of machine runs it, with the references of its branches.

    It runs unchanged, and in variants that make this machine run it as another kind of machine does: with exchanged branches as
    where blocks have another size, without blocked operators, so that the functions of their names are used, and with
    definitions of the native operators, if this machine has blocks of another size.

    Args:
        model: the portable model, whose branches were verified one by one before.
        native: the reference for the native branch.
        standard: the reference for the standard branch.
        request: the conditions of the comparisons.
        is_narrow: whether a value has a 16-bit floating-point type.

    Returns:
        The first verdict that is not "passed", with the variant in its reason; "passed" if all variants pass.
    """
    block = portable_block(node.name for node in model.message().graph.node)
    assert block is not None, "the model is not portable"
    has_native_blocks = block == blocked_channels()
    variants = [("on this machine", model, has_native_blocks)]
    message = model.message()
    if has_native_blocks:
        for attr in message.graph.node[-1].attribute:
            attr.name = _OTHER_BRANCH[attr.name]
        variants.append(("where blocks have another size", model.edited(message), False))
    else:
        define(message, block)
        variants.append((f"where blocks have {block} channels", model.edited(message), True))
    variants.append(("where there are no blocks", model.edited(without_native_schemas(model.message())), False))
    verdict = Verification("passed")
    for name, edited, is_native in variants:
        reference = native if is_native else standard
        verdict = compare_as_a_whole(reference, edited, request, CutCandidates(is_narrow=is_narrow))
        if verdict.status != "passed":
            return Verification(verdict.status, f"as a portable model {name}: {verdict.reason}")
    return verdict


def without_native_schemas(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message with blocked operators renamed, in place, so that onnxruntime uses the functions of these names in it."""
    for part in (*nodes(message), *message.functions, *message.opset_import):
        if part.domain == BLOCKED_DOMAIN:
            part.domain = DEFINITION_DOMAIN
    return message
