"""The function `optimize`, which rewrites a model in the stages of `driver.lifting`, `driver.stages` and `driver.result`."""

import onnx_ir

from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted, lift, read
from layoutopt.driver.options import Options, takes
from layoutopt.driver.portable import make_portable
from layoutopt.driver.result import Result, finish
from layoutopt.driver.stages import Outcome, rewrite
from layoutopt.errors import VerificationError
from layoutopt.passes.base import Note
from layoutopt.report.facts import LEFT_OUT


@takes(Options)
def optimize(options: Options) -> Result:
    """Choose a memory format for every tensor of a model and rewrite it.

    Args:
        options: the arguments are the fields of `layoutopt.driver.options.Options`.

    Raises:
        ArgumentError, TargetError, FormatError, DimensionError: if an argument is wrong; before the model is read.
        ExtensionError: if a library of kernels, or an extension of an installed package, cannot be loaded.
        ModelError, PinError, DimensionError, InputError: if the model is not valid, has no such tensor or dimension, or does
            not take the inputs.
        VerificationError: if the result is not equivalent to the model; there is no result then.
        UnverifiedError: if the result could not be compared with the original; there is no result then.
        LayoutoptError: if there is too little memory; this error is a MemoryError, too.
    """
    job = Job.of(options)
    with job.running():
        job, lifted, outcome = _rewrite_exactly(job, read(job))
        if options.portable and not isinstance(outcome, str):
            outcome = make_portable(job, lifted, outcome)
        return finish(job, lifted, outcome)


def _rewrite_exactly(job: Job, source: onnx_ir.Model) -> tuple[Job, Lifted, Outcome]:
    """Lift and rewrite a model, without rewrites that change the rounding where it differs: then the job is another one.

    Those of the last pass are left out first: in the segments that differ, and if the result then differs again, everywhere.

    Raises:
        ModelError, VerificationError, UnverifiedError: as for `rewrite`; the result differs without these rewrites, too.
    """
    notes: list[Note] = []
    while True:
        lifted = lift(job, source)
        try:
            outcome = rewrite(job, lifted)
        except VerificationError as error:
            exact, made = job.context.exact, dict.fromkeys(job.context.inexact)
            left_out = {name for name, _ in exact}
            found = [(name, at) for name, at in made if name not in left_out and at in error.tensors] or [*made]
            if not found:
                raise
            last = found[-1][0]
            found = [each for each in found if each[0] == last]
            what = f"left out at {', '.join(at for _, at in found)}, because with it {error.what}"
            notes.append(Note(LEFT_OUT, last, what))
            job = job.again(exact.union(found))
        else:
            job.context.notes += notes
            return job, lifted, outcome
