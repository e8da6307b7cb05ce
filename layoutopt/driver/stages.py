"""The stages of `optimize`: a model goes from left to right once, and a stage that ends early returns why.

    read -> lift (`driver.lifting`) -> plan -> lower -> emit -> bake -> verify -> measure -> finish (`driver.result`)

With `portable` (`driver.portable`), the rewritten model and one of standard operators become branches of one file, of which
every machine runs one.
"""

from functools import partial
from typing import TypeAlias

import onnx_ir
from msgspec.structs import replace

from layoutopt import inference, onnx_io
from layoutopt.driver.job import LOWER, Job, lowered_passes
from layoutopt.driver.lifting import Lifted
from layoutopt.driver.measuring import measure
from layoutopt.driver.model_faults import has_fault, is_loadable, raise_if_refused
from layoutopt.driver.prices import calibrated_plan, reason_of_loss
from layoutopt.errors import ModelError, UnverifiedError, VerificationError
from layoutopt.files import scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.passes.base import Note, Pipeline
from layoutopt.passes.planning import has_quantized_ops, reason_to_keep
from layoutopt.report.stamp import KEY, stamp
from layoutopt.runtime.available_memory import return_freed_memory
from layoutopt.runtime.baking import MAX_BAKED_BYTES, bake, drop_inner_types
from layoutopt.runtime.engines import Engine
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.verification import CutCandidates, RunnableCopies, Verification, verify_rewrite
from layoutopt.verification.comparison import PairOfModels
from layoutopt.verification.cuts import locate_values
from layoutopt.verification.runs import Request

Outcome: TypeAlias = onnx_ir.Model | str
"""A model, or the reason why the original stays unchanged."""

UNVERIFIED = "add --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"


def rewrite(job: Job, lifted: Lifted) -> Outcome:
    """The rewritten model.

    Raises:
        ModelError: the rewritten model is invalid, and ONNX Runtime does not run the original either.
        VerificationError: the rewritten model is not equivalent, or ONNX Runtime loads only the original.
        UnverifiedError: the two models could not be compared.
    """
    if lifted.reason:
        return lifted.reason
    candidates = CutCandidates.of(lifted.graph)
    if reason := plan(job, lifted):
        return reason
    lowered = lower(job, lifted.graph)
    if isinstance(lowered, str):
        return lowered
    emitted = emit(job, lifted.model, lowered)
    if isinstance(emitted, str):
        return emitted
    baked_passes = job.dialect.baked_passes if has_quantized_ops(lowered) else ()
    with scratch_folder() as folder:
        copies = RunnableCopies(folder)
        final = bake_model(job, emitted, Pipeline(baked_passes), copies)
        if reason := reason_to_keep(job.context):
            return reason
        if job.options.verify:
            verdict = partial(verify, job, lifted, candidates, lowered, emitted, copies)
            job.verification = verdict(final)
            if wrong := job.verification.misdeclared:  # ONNX Runtime fuses by declared shapes
                what = "the computed shape contradicts the declared one: the declaration is dropped"
                job.context.notes += [Note("read", name, what) for name in wrong]
                onnx_io.drop_output_shapes(emitted, wrong)
                copies.forget(emitted)
                final = bake_model(job, emitted, Pipeline(baked_passes), copies)
                job.verification = verdict(final)
            difference = f"the rewritten model is not equivalent to the original: {job.verification.reason}"
            raise_unless_passed(job, job.verification, difference)
            if job.engine is not None and (reason := verify_in(job.engine, job, lifted, copies, final)):
                return reason
        return_freed_memory()
        reason = measure(job, lifted.model, lifted.graph, lifted.samples, final, copies)
        if reason and not job.context.pins:
            return reason
    if final is not emitted:
        drop_inner_types(final)  # onnxruntime infers them faster
    final.metadata_props[KEY] = stamp(job.stamp, onnx_io.fingerprint(final))
    return final


def plan(job: Job, lifted: Lifted) -> str:
    """Plan the graph, and return the reason why the original should stay; empty if there is none yet.

    A quantised model may gain by the dialect's passes after baking only, and one for an engine by those after lowering.
    """
    job.context.make_plan = partial(calibrated_plan, job, lifted.model)
    job.passes = job.pipeline.run(lifted.graph, job.context, job.watch)
    if job.engine is not None and job.context.time_graphs is not None:
        return ""
    return "" if job.dialect.baked_passes and has_quantized_ops(lifted.graph) else reason_to_keep(job.context)


def lower(job: Job, graph: Graph) -> Graph | str:
    """The graph on arrays of physical shape, after the passes of the dialect, or the reason why the original should stay."""
    context = job.context
    job.progress(LOWER)
    context.block = job.dialect.block(graph)
    lowered = job.dialect.lower(graph)
    job.passes += Pipeline(lowered_passes(job.dialect)).run(lowered, context, job.watch)
    loss = reason_of_loss(job.gain, context.growth.requests) if context.has_to_gain else ""
    return context.reason_to_keep or loss or lowered


def emit(job: Job, source: onnx_ir.Model, lowered: Graph) -> Outcome:
    """The model of the lowered graph, unless onnx's checker refuses the original, too, which ONNX Runtime runs.

    Raises:
        ModelError: onnx's checker refuses it alone, or ONNX Runtime does not run the original.
    """
    job.progress("writing ONNX")
    emitted = onnx_io.emit(lowered)
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


def bake_model(job: Job, model: onnx_ir.Model, passes: Pipeline, copies: RunnableCopies) -> onnx_ir.Model:
    """The model after ONNX Runtime's optimiser and `passes`; a model for blocks of another size is not packed for this machine.

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
        source = copies.of(model).source if weight_bytes(model) <= MAX_BAKED_BYTES else None
        baked = bake(model, source, packs=is_native_block, folds=is_native_block or not block)
        if not passes.passes:
            return baked
        graph = inference.lift(baked)
        results = passes.run(graph, job.context, job.watch)
        job.passes += results
        return onnx_io.emit(graph) if any(each.changed for each in results) else baked
    except ModelError as error:
        if is_loadable(job.given, is_optimised=True):
            raise VerificationError(error.what, where=job.name, hint="please report it with the model") from error
        # The original may have an op of another library, or ops that ONNX Runtime's own optimiser makes invalid.
        job.context.notes.append(Note("bake", error.where, error.what))
        return model


def verify(
    job: Job,
    lifted: Lifted,
    candidates: CutCandidates,
    lowered: Graph,
    emitted: onnx_ir.Model,
    copies: RunnableCopies,
    final: onnx_ir.Model,
) -> Verification:
    """The verdict on the final model, which was baked from `emitted`, after a comparison with the original."""
    job.progress("verifying")
    return verify_rewrite(
        lifted.model,
        emitted,
        final,
        partial(locate_values, lifted.graph, lowered),
        candidates,
        Request(job.context.pins, (), lifted.samples),
        copies,
        path=job.path,
        is_emulated=job.runtime.is_emulated,
        has_devices=job.context.platform is not None,
    )


def verify_in(engine: Engine, job: Job, lifted: Lifted, copies: RunnableCopies, final: onnx_ir.Model) -> str:
    """Compare the final model in an engine with the original in onnxruntime, and return the reason to keep the original.

    The reason is empty, unless the engine does not run the original, either, or computes it differently.

    Raises:
        VerificationError: the final model differs, and the original does not.
    """
    original = copies.of(lifted.model, job.path)
    request = Request(job.context.pins, (), lifted.samples, defers_spread=True)
    verdict = PairOfModels(original, replace(copies.of(final), engine=engine), request).verdict()
    if verdict.status != "failed":
        return ""
    own = PairOfModels(original, replace(original, engine=engine), request).verdict()
    if own.status == "failed":
        return f"the original fails in {engine.name}, too: {own.reason}"
    difference = f"in {engine.name}, the rewritten model is not equivalent to the original: {verdict.reason}"
    raise_unless_passed(job, verdict, difference)
    return ""


def raise_unless_passed(job: Job, verdict: Verification, difference: str) -> None:
    """Raise an error unless two models agree.

    Raises:
        VerificationError: they differ; `difference` is the message.
        UnverifiedError: they could not be compared, and the call requires it.
    """
    if verdict.status == "failed":
        hint = "nothing was written; please report it with the model"
        error = VerificationError(difference, where=job.name, hint=hint)
        error.tensors = verdict.tensors
        raise error
    if verdict.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)
