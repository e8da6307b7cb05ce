"""The stages of `optimize`: a model goes from left to right once, and a stage that ends early returns why.

    read -> lift (`driver.lifting`) -> plan -> lower -> emit -> bake -> verify -> measure -> finish (`driver.finish`)

With `portable` (`driver.portable`), the rewritten model and one of standard operators become branches of one file, of which
every machine runs one.
"""

from dataclasses import replace
from functools import partial
from typing import TypeAlias

import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted, lift
from layoutopt.driver.measuring import measure
from layoutopt.driver.model_faults import has_fault, is_loadable, raise_if_refused
from layoutopt.driver.prices import calibrated_plan, reason_of_loss, within_growth
from layoutopt.errors import ModelError, UnverifiedError, VerificationError
from layoutopt.files import scratch_folder
from layoutopt.passes.base import Note, Pipeline
from layoutopt.passes.planning import has_quantized_ops, reason_to_keep
from layoutopt.report.facts import LEFT_OUT
from layoutopt.report.stamp import KEY
from layoutopt.runtime.baking import bake, drop_inner_types
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.verification import CutCandidates, RunnableCopies, Verification, verify_rewrite
from layoutopt.verification.cuts import locate_values
from layoutopt.verification.runs import Request

Outcome: TypeAlias = onnx_ir.Model | str
"""A model, or the reason why the original stays unchanged."""

UNVERIFIED = "add --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"


def rewrite(job: Job, lifted: Lifted) -> Outcome:
    """The rewritten model.

    Raises:
        ModelError: the original is invalid, and ONNX Runtime does not run it either.
        VerificationError: the rewritten model is not equivalent, or ONNX Runtime loads only the original.
        UnverifiedError: the two models could not be compared.
    """
    context, graph = job.context, lifted.graph
    if lifted.reason:
        return lifted.reason
    if graph.contradiction is not None:
        where, what = graph.contradiction
        raise_if_refused(job.given, job.dims, ModelError(what, where=where))
        return "its shapes contradict each other"
    candidates = CutCandidates.of(graph)
    context.make_plan = partial(calibrated_plan, job, lifted.model)
    job.passes = job.pipeline.run(graph, context, job.watch)
    requests = context.growth.requests
    job.gain = within_growth(job.gain, requests)
    # The baseline has packed weights, which training changes.
    is_tried = context.pins or context.sessions == "fast" or context.mode == "training"
    reason = context.reason_to_keep or ("" if is_tried else reason_of_loss(job.gain, requests))
    emitted = reason or _emitted(job, lifted.model)
    if isinstance(emitted, str):
        return emitted
    final = _baked(job, emitted)
    if reason := reason_to_keep(context):
        return reason
    with scratch_folder() as folder:
        copies = RunnableCopies(folder)
        if job.options.verify:
            job.verification = _verdict_on(job, lifted, candidates, emitted, final, copies)
            if wrong := job.verification.misdeclared:  # ONNX Runtime fuses by declared shapes
                what = "the computed shape contradicts the declared one: the declaration is dropped"
                context.notes += [Note("read", name, what) for name in wrong]
                onnx_io.drop_output_shapes(emitted, wrong)
                copies.forget(emitted)
                final = _baked(job, emitted)
                job.verification = _verdict_on(job, lifted, candidates, emitted, final, copies)
            difference = f"the rewritten model is not equivalent to the original: {job.verification.reason}"
            raise_unless_passed(job, job.verification, difference)
        if reason := measure(job, lifted.model, graph, lifted.samples, final, copies):
            return reason
    if final is not emitted:
        drop_inner_types(final)  # onnxruntime infers them faster
    final.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(final))
    return final


def rewrite_exactly(job: Job, source: onnx_ir.Model) -> tuple[Job, Lifted, Outcome]:
    """Lift and rewrite a model. Where the result differs, a pass that changes the rounding is left out, the last one first.

    A pass is left out in the segments that differ, and if the result then differs again, in the whole model: then the job is
    another one.

    Raises:
        ModelError, VerificationError, UnverifiedError: as for `rewrite`; the result differs without these passes, too.
    """
    notes: list[Note] = []
    exact: dict[str, frozenset[str]] = {}
    while True:
        lifted = lift(job, source)
        try:
            outcome = rewrite(job, lifted)
        except VerificationError as error:
            names = {each.name for each in job.pipeline.passes if each.changes_rounding}
            changing = [each.name for each in reversed(job.passes) if each.changed and each.name in names]
            made = dict.fromkeys(job.context.inexact)  # the rewrites of each pass that changed the rounding
            places = {
                name: [tensor for source, tensor in made if source == name and tensor in error.tensors]
                for name in changing
                if name not in exact
            }
            name = next((name for name in changing if places.get(name)), None)
            passes = job.pipeline.passes
            if name is not None:
                exact[name] = frozenset(places[name])
                where = f" at {', '.join(places[name])}"
            elif changing:
                name, where = changing[0], ""
                passes = tuple(each for each in passes if each.name != name)
            else:
                raise
            job = job.again(passes, exact)
            notes.append(Note(LEFT_OUT, name, f"left out{where}, because with it {error.what}"))
        else:
            job.context.notes += notes
            return job, lifted, outcome


def _emitted(job: Job, source: onnx_ir.Model) -> Outcome:
    """The model of the lowered graph, unless onnx's checker refuses the original, too, which ONNX Runtime runs.

    Raises:
        ModelError: onnx's checker refuses it alone, or ONNX Runtime does not run the original.
    """
    assert job.context.lowered is not None, "the pipeline has no pass that lowers the graph"
    job.progress("writing ONNX")
    emitted = onnx_io.emit(job.context.lowered)
    try:
        onnx_io.check(emitted)
    except ModelError as error:
        if job.options.strict or not has_fault(source):
            raise
        raise_if_refused(job.given, job.dims, error)
        what = f"{error.what}: onnxruntime runs the model, so it stays unchanged"
        job.context.notes.append(Note("read", error.where, what))
        return "onnx's checker finds a fault in it"
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


def _verdict_on(
    job: Job,
    lifted: Lifted,
    candidates: CutCandidates,
    emitted: onnx_ir.Model,
    final: onnx_ir.Model,
    copies: RunnableCopies,
) -> Verification:
    """The verdict on the final model, which was baked from `emitted`, after a comparison with the original."""
    assert job.context.lowered is not None
    job.progress("verifying")
    return verify_rewrite(
        lifted.model,
        emitted,
        final,
        partial(locate_values, lifted.graph, job.context.lowered),
        candidates,
        Request(job.context.pins, (), lifted.samples),
        copies,
        path=job.path,
        is_emulated=job.runtime.is_emulated,
    )


def raise_unless_passed(job: Job, verdict: Verification, difference: str) -> None:
    """Raise an error unless two models agree.

    Args:
        job: the call of `optimize`.
        verdict: the verdict.
        difference: the message if they differ.

    Raises:
        VerificationError: they differ.
        UnverifiedError: they could not be compared, and the call requires it.
    """
    if verdict.status == "failed":
        hint = "nothing was written; please report it with the model"
        error = VerificationError(difference, where=job.name, hint=hint)
        error.tensors = verdict.tensors
        raise error
    if verdict.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)
