"""The stages of `optimize`: a model goes from left to right once, and a stage that ends early returns why.

    read -> lift -> rewrite: plan -> lower -> emit -> bake -> verify -> measure -> finish (`driver.finish`)

With `portable`, the rewritten model and one of standard operators become branches of one file, of which every machine runs one.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TypeAlias

import onnx
import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.driver.arguments import pinned_format
from layoutopt.driver.job import Job
from layoutopt.driver.measuring import measure
from layoutopt.driver.model_faults import has_same_fault, is_loadable, raise_if_refused
from layoutopt.driver.prices import calibrated_plan, reason_of_loss, within_growth
from layoutopt.errors import ModelError, PinError, UnverifiedError, VerificationError
from layoutopt.files import scratch_folder
from layoutopt.inference.axis_letters import infer_axis_letters
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import DOMAIN, Graph
from layoutopt.ir.sizes import as_range, symbols
from layoutopt.ir.types import DType
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.ops import rules
from layoutopt.passes.base import Note, Pipeline
from layoutopt.passes.planning import has_quantized_ops, reason_to_keep
from layoutopt.report.builder import remaining_moves
from layoutopt.report.facts import LEFT_OUT
from layoutopt.report.schema import PortableReport
from layoutopt.report.stamp import KEY
from layoutopt.runtime.baking import bake, drop_inner_types
from layoutopt.runtime.errors import is_about_the_model, is_memory_message
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.portable import portable_block, portable_model
from layoutopt.sample_inputs import SampleInputs, given_ranges, prepare_inputs
from layoutopt.verification import CutCandidates, RunnableCopies, Verification, verify_rewrite
from layoutopt.verification.cuts import locate_values
from layoutopt.verification.gate import verify_portable
from layoutopt.verification.runnable import with_definitions
from layoutopt.verification.runs import Request, failure_without_weights

OPTIMISED_BEFORE = "it has been optimised like this before"
"""The reason why a result of the same options stays unchanged."""

_MAX_RUN_BYTES = 1_900_000_000
"""The largest size of the weights at which a model is run to infer sizes; a larger model does not fit in one message."""

_MAX_RUN_BYTES_UNVERIFIED = 100_000_000
"""The same limit without verification, so that `optimize` does not need memory for all weights."""


UNVERIFIED = "add --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"

_STANDARD_RUNTIME = "any"

Outcome: TypeAlias = onnx_ir.Model | str
"""A model, or the reason why the original stays unchanged."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A model with its graph, which passes change.

    Attributes:
        model: the model.
        graph: its graph.
        samples: the generator of its sample inputs.
        reason: why the model stays unchanged without planning; empty if there is no reason.
    """

    model: onnx_ir.Model
    graph: Graph
    samples: SampleInputs
    reason: str


def read(job: Job) -> onnx_ir.Model:
    """The model, parsed, repaired and checked. Given inputs set the sizes of symbolic dimensions.

    Raises:
        ModelError: it cannot be read, or is not valid.
        InputError: the inputs do not match those of the model.
    """
    job.progress("reading")
    model, strict = job.given, job.options.strict
    if isinstance(model, onnx.ModelProto):
        if isinstance(job.options.model, str | PathLike):
            what = "are emptied in the file; random numbers with their statistics are in their place"
            job.context.notes.append(Note("read", "weights", what))
        model = onnx_io.from_message(model, strict=strict)
    elif not isinstance(model, onnx_ir.Model):
        model = onnx_io.read(model, strict=strict)
    if job.given_inputs:
        requested = {name: as_range(given) for name, given in job.dims.items()}
        ranges = given_ranges(onnx_io.declared_inputs(model), job.given_inputs, requested)
        job.dims, job.stamp = ranges, replace(job.stamp, dims=tuple(sorted(ranges.items())))
    return model


def lift(job: Job, model: onnx_ir.Model) -> Lifted:
    """The graph of a model, and the generator of its sample inputs; the context has the sizes to plan for.

    Raises:
        ModelError: the model is not valid.
        PinError: there is no tensor of a pinned name.
        FormatError: a pin has neither the letters of its value's axes nor letters with a default meaning.
    """
    job.progress("lifting")
    reason = _reason_to_keep(job, model)
    graph = _graph(job, model, is_planned=not reason)
    job.progress("inferring sizes")
    limit = _MAX_RUN_BYTES if job.options.verify else _MAX_RUN_BYTES_UNVERIFIED
    may_run = bool(symbols(graph.inputs)) and weight_bytes(model) <= limit
    source = job.path or (onnx_io.to_bytes(model) if may_run else b"")
    samples, job.context.sizes = prepare_inputs(source, graph, job.dims, job.given_inputs, may_run=may_run)
    if job.options.sizes_found is not None:
        job.options.sizes_found(job.context.sizes)
    sizes = inference.evaluate_extents(graph, job.context.sizes)
    job.moves = remaining_moves(graph, sizes)
    if not job.options.verify and not reason:
        _check_run(job, model, graph, samples)
    return Lifted(model, graph, samples, reason)


def _check_run(job: Job, model: onnx_ir.Model, graph: Graph, samples: SampleInputs) -> None:
    """Run a model that will not be verified once, without its weights. If there is too little memory, a repair says so.

    Raises:
        ModelError: ONNX Runtime refuses to run it.
    """
    reason = failure_without_weights(model, samples)
    if is_memory_message(reason):
        graph.repairs.append(("model", f"onnxruntime cannot run it on this machine: {reason}"))
    elif reason and is_about_the_model(reason):
        raise_if_refused(job.given, job.dims, ModelError(f"cannot be run: {reason}", where=job.name))


def _reason_to_keep(job: Job, model: onnx_ir.Model) -> str:
    """The reason why the model stays unchanged without planning; empty if there is none."""
    if KEY in model.metadata_props and job.stamp.matches(model.metadata_props, onnx_io.fingerprint(model)):
        return OPTIMISED_BEFORE
    if portable_block(node.name or "" for node in model.graph) is not None:
        return "it is a portable result; optimise its original"
    if job.context.mode == "inference" and onnx_io.has_training(model):
        return "its training information binds its weights by name"
    return ""


def _graph(job: Job, model: onnx_ir.Model, *, is_planned: bool) -> Graph:
    """The graph of a model; the functions of an earlier run and, to plan it, those without a layout rule are inlined."""
    model = onnx_io.inline(model, DOMAIN)
    if is_planned:
        without_functions = onnx_io.inline_functions(model, lambda kind: kind in rules())
        job.context.notes += [Note("inline", name, reason) for name, reason in without_functions.kept]
        model = without_functions.model
    graph = inference.lift(model, strict=job.options.strict)
    infer_axis_letters(graph)
    if is_planned:
        job.context.growth = Growth(job.stamp.max_growth, stored_bytes(graph.regions()))
        _pin(job, graph)
    return graph


def _pin(job: Job, graph: Graph) -> None:
    """Resolve the pins to formats, by the letters of the axes of the values of the lifted graph."""
    formats, letters = {}, {}
    for name, text in job.stamp.pins:
        value = graph.find(name)
        if value is None:
            raise PinError("there is no such tensor to pin", where=name, hint="name a tensor of the model")
        formats[name], letters[name] = pinned_format(text, value)
    job.context.pins = formats
    job.stamp = replace(job.stamp, pin_axes=tuple(sorted(each for each in letters.items() if each[1])))


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
            final = _verified(job, lifted, candidates, emitted, final, copies)
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
            places = {name: _places(job, name, error.tensors) for name in changing if name not in exact}
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


def _places(job: Job, name: str, tensors: Collection[str]) -> list[str]:
    """The places among some tensors where a pass has changed the rounding."""
    return [tensor for source, tensor in dict.fromkeys(job.context.inexact) if source == name and tensor in tensors]


def _emitted(job: Job, source: onnx_ir.Model) -> Outcome:
    """The model of the lowered graph, unless onnx's checker refuses it for a fault of the original, which ONNX Runtime runs.

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


def _verified(
    job: Job,
    lifted: Lifted,
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
    verify = partial(
        verify_rewrite,
        lifted.model,
        emitted,
        match=partial(locate_values, lifted.graph, job.context.lowered),
        candidates=candidates,
        request=Request(job.context.pins, (), lifted.samples),
        copies=copies,
        path=job.path,
        is_emulated=job.runtime.is_emulated,
    )
    job.progress("verifying")
    found = verify(final)
    if found.misdeclared:  # ONNX Runtime fuses by declared shapes
        for name in found.misdeclared:
            what = "the computed shape contradicts the declared one: the declaration is dropped"
            job.context.notes.append(Note("read", name, what))
        onnx_io.drop_output_shapes(emitted, found.misdeclared)
        copies.forget(emitted)
        final = _baked(job, emitted)
        found = verify(final)
    job.verification = found
    _raise_unless_passed(job, found, f"the rewritten model is not equivalent to the original: {found.reason}")
    return final


def _raise_unless_passed(job: Job, verdict: Verification, difference: str) -> None:
    """Raise an error unless two models agree; `difference` is the message if they differ."""
    if verdict.status == "failed":
        hint = "nothing was written; please report it with the model"
        error = VerificationError(difference, where=job.name, hint=hint)
        error.tensors = verdict.tensors
        raise error
    if verdict.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)


def make_portable(job: Job, lifted: Lifted, native: onnx_ir.Model) -> onnx_ir.Model:
    """The portable model of a native model and a model of standard operators; the native model itself if it has no blocks.

    Args:
        job: the call of `optimize`.
        lifted: the original.
        native: the rewritten model, which becomes a branch.

    Raises:
        VerificationError: the portable model is not equivalent to its branches.
        UnverifiedError: it could not be compared with them.
    """
    block = job.context.block
    if not block:
        return native
    options = replace(job.options, model=job.given, runtime=_STANDARD_RUNTIME, dialect=None, portable=False)
    other = Job.of(replace(options, sessions="balanced", count_moves=False, watch=None, sizes_found=None))
    source = read(other)
    standard = rewrite(other, lift(other, source))
    if is_unchanged := isinstance(standard, str):
        standard = source.clone() if source is other.given else source
    with scratch_folder() as folder:
        copies = RunnableCopies(folder)
        is_verified = job.verification is not None and job.verification.status == "passed"
        # The references are stored first, because `portable` moves the nodes of both models into the branches.
        if not is_verified:
            references = None
        elif job.context.pins:  # a branch takes inputs in pinned formats, for which there is no generator
            references = (copies.of(lifted.model),) * 2
        else:
            references = with_definitions(copies.of(native))[0], copies.of(standard)
        model = portable_model(native, standard, block)
        onnx_io.check(model)
        if references is not None:
            job.progress("verifying the portable model")
            request = Request(job.context.pins, (), lifted.samples, defers_spread=not job.context.pins)
            is_narrow = any(lifted.graph.has_dtype(each) for each in (DType.FLOAT16, DType.BFLOAT16))
            verdict = verify_portable(copies.of(model), *references, request, is_narrow=is_narrow)
            _raise_unless_passed(job, verdict, f"not equivalent to the original {verdict.reason}")
    job.portable = PortableReport(block=block, standard_changed=not is_unchanged)
    model.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(model))
    return model
