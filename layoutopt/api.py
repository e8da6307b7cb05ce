"""The function `optimize`, which rewrites a model for a target.

Its stages are functions of `driver.lifting`, `driver.stages` and `driver.finish`, from a value to a value.
"""

from layoutopt.driver.finish import finish
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import read
from layoutopt.driver.options import Options, takes
from layoutopt.driver.portable import make_portable
from layoutopt.driver.result import Result
from layoutopt.driver.stages import rewrite_exactly


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
        job, lifted, outcome = rewrite_exactly(job, read(job))
        if options.portable and not isinstance(outcome, str):
            outcome = make_portable(job, lifted, outcome)
        return finish(job, lifted, outcome)
