"""The stages `read` and `lift`: the model, its graph, its sample inputs, and the sizes to plan for."""

from os import PathLike

import onnx
import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.driver.job import Job, pinned_format
from layoutopt.driver.model_faults import raise_if_refused
from layoutopt.errors import ArgumentError, ModelError, PinError
from layoutopt.inference.axis_letters import infer_axis_letters
from layoutopt.ir.constants import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import as_range, symbols
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.ops import rules
from layoutopt.passes.base import Note
from layoutopt.passes.planning import unmatched
from layoutopt.record import Record
from layoutopt.report.builder import counts
from layoutopt.report.stamp import KEY, has_stamp
from layoutopt.runtime.errors import is_about_the_model, is_memory_message
from layoutopt.runtime.portable import portable_block
from layoutopt.sample_inputs import SampleInputs, given_ranges, prepare_inputs
from layoutopt.verification.runs import failure_without_weights

OPTIMISED_BEFORE = "it has been optimised like this before"
"""The reason why a result of the same options stays unchanged."""

_MAX_RUN_BYTES = 1_900_000_000
"""The largest size of the weights at which a model is run to infer sizes; a larger model does not fit in one message."""

_MAX_RUN_BYTES_UNVERIFIED = 100_000_000
"""The same limit without verification, so that `optimize` does not need memory for all weights."""


class Lifted(Record):
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
        job.dims = job.stamp["dims"] = ranges
    return model


def lift(job: Job, model: onnx_ir.Model) -> Lifted:
    """The graph of a model, and the generator of its sample inputs; the context has the sizes to plan for.

    Raises:
        ModelError: the model is not valid, or its shapes contradict each other and ONNX Runtime does not run it either.
        ArgumentError: a device is requested for a type or name that no op has.
        PinError: there is no tensor of a pinned name.
        FormatError: a pin has neither the letters of its value's axes nor letters with a default meaning.
    """
    job.progress("lifting")
    reason = _reason_to_keep(job, model)
    graph = _graph(job, model, is_planned=not reason)
    if not reason and (unknown := unmatched(graph, job.context.devices)):
        raise ArgumentError("no op has this type or a name that begins with it", where=f"device {min(unknown)}")
    if graph.contradiction is not None and not reason:
        where, what = graph.contradiction
        raise_if_refused(job.given, job.dims, ModelError(what, where=where))
        reason = "its shapes contradict each other"
    job.progress("inferring sizes")
    limit = _MAX_RUN_BYTES if job.options.verify else _MAX_RUN_BYTES_UNVERIFIED
    may_run = bool(symbols(graph.inputs)) and weight_bytes(model) <= limit
    source = job.path or (onnx_io.to_bytes(model) if may_run else b"")
    samples, job.context.sizes = prepare_inputs(source, graph, job.dims, job.given_inputs, may_run=may_run)
    if job.options.sizes_found is not None:
        job.options.sizes_found(job.context.sizes)
    sizes = inference.evaluate_extents(graph, job.context.sizes)
    job.counts = counts(graph, sizes)
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
        hint = "give sizes with --dim NAME=SIZE" if job.context.sizes.assumed else ""
        raise_if_refused(job.given, job.dims, ModelError(f"cannot be run: {reason}", where=job.name, hint=hint))


def _reason_to_keep(job: Job, model: onnx_ir.Model) -> str:
    """The reason why the model stays unchanged without planning; empty if there is none."""
    if KEY in model.metadata_props and has_stamp(model.metadata_props, job.stamp, onnx_io.fingerprint(model)):
        return OPTIMISED_BEFORE
    if portable_block(node.name or "" for node in model.graph) is not None:
        return "it is a portable result; optimise its original"
    return ""


def _graph(job: Job, model: onnx_ir.Model, *, is_planned: bool) -> Graph:
    """The graph of a model; the functions of an earlier run and, to plan it, those without a layout rule are inlined."""
    model, kept = onnx_io.inline_functions(model, lambda kind: not is_planned or kind in rules())
    graph = inference.lift(model, strict=job.options.strict)
    infer_axis_letters(graph)
    if is_planned:
        job.context.notes += [Note("inline", name, reason) for name, reason in kept.items()]
        job.context.growth = Growth(job.options.max_growth, stored_bytes(graph.regions()))
        _pin(job, graph)
    return graph


def _pin(job: Job, graph: Graph) -> None:
    """Resolve the pins to formats, by the letters of the axes of the values of the lifted graph."""
    formats = {}
    for name, text in sorted(job.stamp["pins"].items()):
        value = graph.find(name)
        if value is None:
            raise PinError("there is no such tensor to pin", where=name, hint="name a tensor of the model")
        formats[name], letters = pinned_format(text, value)
        if letters:
            job.stamp.setdefault("pin_axes", {})[name] = letters
    job.context.pins = formats
