"""The stage `rewrite` of a job: passes, emission, baking and verification."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.driver.calibration import calibrated_plan
from layoutopt.driver.gain import reason_of_loss, within_growth
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import lift
from layoutopt.driver.measuring import measure
from layoutopt.driver.model_faults import has_same_fault, is_loadable, raise_if_refused
from layoutopt.errors import ModelError, UnverifiedError, VerificationError
from layoutopt.files import scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Note, Pipeline
from layoutopt.passes.planning import has_quantized_ops, reason_to_keep
from layoutopt.report.facts import LEFT_OUT
from layoutopt.report.stamp import KEY
from layoutopt.runtime.baking import bake, drop_inner_types
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification import CutCandidates, RunnableCopies, Verification, verify_rewrite
from layoutopt.verification.cuts import locate_values
from layoutopt.verification.runs import Request

UNVERIFIED = "add --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"


def rewrite(job: Job, source: onnx_ir.Model, graph: Graph, samples: SampleInputs) -> onnx_ir.Model | None:
    """The rewritten model; None if the original stays unchanged, for the reason in `job.context.reason_to_keep`.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its graph, which the passes change.
        samples: the generator of the inputs for verification.

    Raises:
        ModelError: the original is invalid, and ONNX Runtime does not run it either.
        VerificationError: the rewritten model is not equivalent, or ONNX Runtime loads only the original.
        UnverifiedError: the two models could not be compared.
    """
    context = job.context
    if context.reason_to_keep:
        return None
    if graph.contradiction is not None:
        where, what = graph.contradiction
        raise_if_refused(job.given, job.dims, ModelError(what, where=where))
        context.reason_to_keep = "its shapes contradict each other"
        return None
    candidates = CutCandidates.of(graph)
    context.make_plan = partial(calibrated_plan, job, source)
    job.passes = job.pipeline.run(graph, context, job.watch)
    requests = context.growth.requests
    job.gain = within_growth(job.gain, requests)
    # The baseline has packed weights, which training changes.
    is_tried = context.pins or context.sessions == "fast" or context.mode == "training"
    if not context.reason_to_keep and not is_tried:
        context.reason_to_keep = reason_of_loss(job.gain, requests)
    emitted = None if context.reason_to_keep else _emitted(job, source)
    if emitted is None:
        return None
    final = _baked(job, emitted)
    context.reason_to_keep = reason_to_keep(context)
    if context.reason_to_keep:
        return None
    with scratch_folder() as folder:
        copies = RunnableCopies(folder, candidates.has_float16)
        if job.options.verify:
            final = _verified(job, source, graph, samples, candidates, emitted, final, copies)
        context.reason_to_keep = measure(job, source, graph, samples, final, copies)
    if context.reason_to_keep:
        return None
    if final is not emitted:
        drop_inner_types(final)  # onnxruntime infers them faster
    final.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(final))
    return final


class Rewritten(NamedTuple):
    """A rewritten model, None if the original stays unchanged, with its job, its planned graph and its inputs."""

    job: Job
    graph: Graph
    samples: SampleInputs
    model: onnx_ir.Model | None


def rewrite_source(job: Job, source: onnx_ir.Model) -> Rewritten:
    """Lift and rewrite a model. Where the result differs, a pass that changes the rounding is left out, the last one first.

    A pass is left out in the segments that differ, and if the result then differs again, in the whole model.

    Raises:
        ModelError, VerificationError, UnverifiedError: as for `rewrite`; the result differs without these passes, too.
    """
    notes: list[Note] = []
    exact: dict[str, frozenset[str]] = {}
    while True:
        graph, samples = lift(job, source)
        try:
            model = rewrite(job, source, graph, samples)
        except VerificationError as error:
            names = {each.name for each in job.pipeline.passes if each.changes_rounding}
            changing = [each.name for each in reversed(job.passes) if each.changed and each.name in names]
            places = {name: _places(job, name, error.tensors) for name in changing if name not in exact}
            name = next((name for name in changing if places.get(name)), None)
            if name is not None:
                exact[name] = frozenset(places[name])
                where = f" at {', '.join(places[name])}"
                job = job.again(job.pipeline.passes, exact)
            elif changing:
                name, where = changing[0], ""
                job = job.again([each for each in job.pipeline.passes if each.name != name], exact)
            else:
                raise
            notes.append(Note(LEFT_OUT, name, f"left out{where}, because with it {error.what}"))
        else:
            job.context.notes += notes
            return Rewritten(job, graph, samples, model)


def _places(job: Job, name: str, tensors: Collection[str]) -> list[str]:
    """The places among some tensors where a pass has changed the rounding."""
    return [tensor for source, tensor in dict.fromkeys(job.context.inexact) if source == name and tensor in tensors]


def _emitted(job: Job, source: onnx_ir.Model) -> onnx_ir.Model | None:
    """The model of the lowered graph; None if onnx's checker refuses it for a fault of the original, which ONNX Runtime runs.

    Raises:
        ModelError: onnx's checker refuses it for another fault, or ONNX Runtime does not run the original.
    """
    assert job.context.lowered is not None, "the pipeline has no pass that lowers the graph"
    job.progress("writing ONNX")
    emitted = onnx_io.emit(job.context.lowered)
    try:
        onnx_io.check(emitted)
    except ModelError as error:
        if job.options.strict or not has_same_fault(source, error):
            raise
        raise_if_refused(job.given, job.dims, error)
        what = f"{error.what}: onnxruntime runs the model, so it stays unchanged"
        job.context.notes.append(Note("read", error.where, what))
        job.context.reason_to_keep = "onnx's checker finds a fault in it"
        return None
    return emitted


def _baked(job: Job, model: onnx_ir.Model) -> onnx_ir.Model:
    """The model after ONNX Runtime's optimiser; a model for blocks of another size is not packed for those of this machine.

    Raises:
        VerificationError: ONNX Runtime does not load the rewritten model at its default level, but loads the original.
    """
    block = job.context.block
    if not job.dialect.is_native:
        return model
    job.progress("baking")
    try:
        # A model without blocks has no block-size check, so baking must not add blocks. Kernels for other blocks must not run.
        is_native_block = block == blocked_channels()
        return _after_baking(job, bake(model, packs=is_native_block, folds=is_native_block or not block))
    except ModelError as error:
        if is_loadable(job.given, is_optimised=True):
            raise VerificationError(error.what, where=job.name, hint="please report it with the model") from error
        # The original may have an op of another library, or ops that ONNX Runtime's own optimiser makes invalid.
        job.context.notes.append(Note("bake", error.where, error.what))
        return model


def _after_baking(job: Job, baked: onnx_ir.Model) -> onnx_ir.Model:
    """The baked model after the dialect's passes on quantised models; the baked model itself if they change nothing.

    Raises:
        ModelError: the types of the baked model cannot be inferred.
    """
    assert job.context.lowered is not None
    if not job.dialect.baked_passes or not has_quantized_ops(job.context.lowered):
        return baked
    graph = inference.lift(baked)
    context = replace(job.context, lowered=None)
    results = Pipeline(job.dialect.baked_passes).run(graph, context, job.watch)
    job.passes += results
    job.context.is_rewritten = context.is_rewritten
    return onnx_io.emit(graph) if any(each.changed for each in results) else baked


def _verified(
    job: Job,
    source: onnx_ir.Model,
    graph: Graph,
    samples: SampleInputs,
    candidates: CutCandidates,
    emitted: onnx_ir.Model,
    final: onnx_ir.Model,
    copies: RunnableCopies,
) -> onnx_ir.Model:
    """The final model after it has been compared with the original; if that finds wrong declared shapes, baked without them.

    Raises:
        VerificationError: the model is not equivalent to the original.
        UnverifiedError: the two models could not be compared.
    """
    assert job.context.lowered is not None

    def verdict() -> Verification:
        match = partial(locate_values, graph, job.context.lowered)
        request = Request(job.context.pins, (), samples)
        is_emulated = job.runtime.is_emulated
        return verify_rewrite(
            source, emitted, final, match, candidates, request, copies, path=job.path, is_emulated=is_emulated
        )

    job.progress("verifying")
    found = verdict()
    if found.misdeclared:  # ONNX Runtime fuses by declared shapes
        for name in found.misdeclared:
            what = "the computed shape contradicts the declared one: the declaration is dropped"
            job.context.notes.append(Note("read", name, what))
        onnx_io.drop_output_shapes(emitted, found.misdeclared)
        copies.forget(emitted)
        final = _baked(job, emitted)
        found = verdict()
    job.verification = found
    if found.status == "failed":
        what = f"the rewritten model is not equivalent to the original: {found.reason}"
        error = VerificationError(what, where=job.name, hint="nothing was written; please report it with the model")
        error.tensors = found.tensors
        raise error
    if found.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {found.reason}", where=job.name, hint=UNVERIFIED)
    return final


__all__ = ["UNVERIFIED", "Rewritten", "rewrite", "rewrite_source"]
