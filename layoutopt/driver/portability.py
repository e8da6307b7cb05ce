"""The stage `portable`: one file with the native model and a model of standard operators, of which every machine runs one."""

from dataclasses import replace

import onnx_ir

from layoutopt import onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import lift, read
from layoutopt.driver.rewriting import UNVERIFIED, rewrite
from layoutopt.errors import UnverifiedError, VerificationError
from layoutopt.files import scratch_folder
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.report.schema import PortableReport
from layoutopt.report.stamp import KEY
from layoutopt.runtime.portable import portable_model
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification import Verification
from layoutopt.verification.gate import verify_portable
from layoutopt.verification.runnable import Runnable, as_runnable, with_definitions
from layoutopt.verification.runs import Request

_STANDARD_RUNTIME = "any"


def make_portable(
    job: Job, source: onnx_ir.Model, graph: Graph, samples: SampleInputs, native: onnx_ir.Model
) -> onnx_ir.Model:
    """The portable model of a native model and a model of standard operators; the native model itself if it has no blocks.

    Args:
        job: the call of `optimize`.
        source: the original.
        graph: its planned graph.
        samples: the generator of the inputs for verification.
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
    standard = _standard(other)
    has_float16 = graph.has_dtype(DType.FLOAT16)
    with scratch_folder() as folder:

        def stored(model: onnx_ir.Model, name: str) -> Runnable:
            return as_runnable(model, folder / f"{name}.onnx", has_float16)

        is_verified = job.verification is not None and job.verification.status == "passed"
        # The references are stored first, because `portable` moves the nodes of both models into the branches.
        if not is_verified:
            references = None
        elif job.context.pins:  # a branch takes inputs in pinned formats, for which there is no generator
            references = (stored(source, "original"),) * 2
        else:
            references = with_definitions(stored(native, "native"))[0], stored(standard, "standard")
        model = portable_model(native, standard, block)
        onnx_io.check(model)
        if references is not None:
            job.progress("verifying the portable model")
            request = Request(job.context.pins, (), samples, defers_spread=not job.context.pins)
            is_narrow = has_float16 or graph.has_dtype(DType.BFLOAT16)
            _check(job, verify_portable(stored(model, "portable"), *references, request, is_narrow=is_narrow))
    job.portable = PortableReport(block=block, standard_changed=not other.context.reason_to_keep)
    model.metadata_props[KEY] = job.stamp.text(onnx_io.fingerprint(model))
    return model


def _check(job: Job, verdict: Verification) -> None:
    if verdict.status == "failed":
        hint = "nothing was written; please report it with the model"
        raise VerificationError(f"not equivalent to the original {verdict.reason}", where=job.name, hint=hint)
    if verdict.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)


def _standard(job: Job) -> onnx_ir.Model:
    """The model for machines without the blocks; a copy of the original if no plan is faster there."""
    source = read(job)
    graph, samples = lift(job, source)
    rewritten = rewrite(job, source, graph, samples)
    if rewritten is not None:
        return rewritten
    return source.clone() if source is job.given else source


__all__ = ["make_portable"]
