"""The function `optimize`, which rewrites a model for a target.

read -> lift -> rewrite: pipeline (simplify, plan, cast, pack, lower), emit, bake, verify, measure -> finish: report
With `portable`, make_portable comes before finish: it adds a branch of standard operators.
"""

from layoutopt.driver.finish import finish
from layoutopt.driver.garbage_collection import reduced_garbage_collection
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import read
from layoutopt.driver.model_faults import reporting_invalid_model
from layoutopt.driver.options import Options, takes
from layoutopt.driver.portability import make_portable
from layoutopt.driver.result import Result
from layoutopt.driver.rewriting import rewrite_source
from layoutopt.runtime.custom_ops import kernel_libraries


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
    with (
        reduced_garbage_collection(),
        kernel_libraries(options.custom_ops),
        reporting_invalid_model(job.given, job.dims),
    ):
        source = read(job)
        job, graph, samples, rewritten = rewrite_source(job, source)
        if options.portable and rewritten is not None:
            rewritten = make_portable(job, source, graph, samples, rewritten)
        return finish(job, source, graph, samples, rewritten)
