"""The stage `verify`: the comparison of the rewritten model with the original."""

from functools import partial

import onnx_ir

from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted
from layoutopt.errors import UnverifiedError, VerificationError
from layoutopt.verification import CutCandidates, RunnableCopies, Verification, verify_rewrite
from layoutopt.verification.cuts import locate_values
from layoutopt.verification.runs import Request

UNVERIFIED = "add --allow-unverified to write it all the same, or --inputs FILE.npz to give inputs that run"


def verdict_on(
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
        raise VerificationError(difference, where=job.name, hint=hint)
    if verdict.status == "not verified" and not job.options.allow_unverified:
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)
