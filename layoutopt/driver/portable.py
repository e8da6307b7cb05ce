"""The option `portable`: the rewritten model and a model of standard operators as branches of one file."""

from dataclasses import replace

import onnx_ir

from layoutopt import onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted, lift, read
from layoutopt.driver.stages import raise_unless_passed, rewrite
from layoutopt.files import scratch_folder
from layoutopt.ir.types import DType
from layoutopt.report.schema import PortableReport
from layoutopt.report.stamp import KEY, stamp
from layoutopt.runtime.portable import portable_model
from layoutopt.verification import RunnableCopies
from layoutopt.verification.gate import verify_portable
from layoutopt.verification.runnable import with_definitions
from layoutopt.verification.runs import Request


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
    options = replace(job.options, model=job.given, runtime="any", dialect=None, portable=False, sessions="balanced")
    other = Job.of(replace(options, watch=None, sizes_found=None))
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
            raise_unless_passed(job, verdict, f"not equivalent to the original {verdict.reason}")
    job.portable = PortableReport(block=block, standard_changed=not is_unchanged)
    model.metadata_props[KEY] = stamp(job.stamp, onnx_io.fingerprint(model))
    return model
