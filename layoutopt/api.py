"""The function `optimize`, which rewrites a model for a target.

read -> lift -> rewrite: pipeline (simplify, plan, cast, pack, lower), emit, bake, verify, measure -> finish: report
With `portable`, make_portable comes before finish: it adds a branch of standard operators.
"""

from collections.abc import Callable, Mapping
from os import PathLike

from layoutopt.cost.size_growth import MAX_GROWTH
from layoutopt.driver.arguments import Model, Target
from layoutopt.driver.finish import finish
from layoutopt.driver.garbage_collection import reduced_garbage_collection
from layoutopt.driver.job import Job, Options, Progress
from layoutopt.driver.lifting import read
from layoutopt.driver.model_faults import reporting_invalid_model
from layoutopt.driver.portability import make_portable
from layoutopt.driver.result import Result
from layoutopt.driver.rewriting import rewrite_source
from layoutopt.formats import Format
from layoutopt.ir.sizes import Dims, Sizes
from layoutopt.passes.base import Mode, Pipeline, Sessions, Watch
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.sample_inputs import Given


def optimize(
    model: Model,
    target: Target = "cpu",
    *,
    runtime: str | None = None,
    dialect: str | None = None,
    mode: Mode = "inference",
    pins: Mapping[str, Format | str] | None = None,
    dims: Dims | None = None,
    inputs: Given | None = None,
    verify: bool = True,
    allow_unverified: bool = False,
    time_limit: float | None = None,
    max_growth: float = MAX_GROWTH,
    sessions: Sessions = "balanced",
    count_moves: bool = False,
    portable: bool = False,
    measure: bool = True,
    threads: int = 1,
    calibrate: bool = True,
    profile: str | PathLike[str] | None = None,
    strict: bool = False,
    custom_ops: Libraries = (),
    pipeline: Pipeline | None = None,
    watch: Watch | None = None,
    progress: Progress | None = None,
    sizes_found: Callable[[Sizes], None] | None = None,
) -> Result:
    """Choose a memory format for every tensor of a model and rewrite it.

    Args:
        model: a path, the bytes of a file, a binary file object, or a model of onnx or onnx_ir, which is not changed.
        target: a target's name ("gpu-hopper"; "cpu" for this machine), the path of a target file, or a cost model. Several
            names separated by commas ("gpu-hopper,ascend-910b"), or a list of names and cost models, get one plan with the
            smallest worst regret: `report.plan.targets`.
        runtime: the program that runs the result: "onnxruntime", "any" (standard operators alone) or "compiler" (one that reads
            formats); None for the target's own. The plan has the kernels that both the target and the runtime have.
        dialect: the form of the result, "functions", "ascend", "onnxruntime", "standard" or "ops"; None for
            the runtime's own.
        mode: "inference" packs weights ahead of time; "training" leaves them and their casts in the graph.
        pins: formats that graph inputs, outputs or other values must have, by name: a Format or a name like "NHWC", with the
            letters of the value's axes as reports print them.
        dims: sizes of symbolic dimensions to plan for and to verify at, or ranges of them, by name, or by `input[axis]` where
            they have none: {"batch": 1, "height": (256, 1024)}. They stay symbolic, and the result is right at every size.
        inputs: arrays by the name of the input, or several sets of them: the result is compared with the original on these
            arrays and on small perturbations of them, instead of random inputs. Symbolic dimensions get their sizes.
        verify: compare the result with the original, on random inputs unless some are given.
        allow_unverified: return a result that could not be compared with the original; by default that is an error.
        time_limit: seconds for planning, candidates to solver, after which the best plan so far is used, with its gap.
        max_growth: the largest ratio of the sizes of all constants after and before, beyond a growth of 1 MiB, which is always
            permitted. Rewrites that enlarge constants are selected by estimated gain per byte: `report.growth`.
        sessions: "balanced", or "fast" for faster session creation in onnxruntime at the cost of runs: constants of matrix
            products are not prepacked. Only in the dialect "onnxruntime"; best with external data, which is then mapped.
        count_moves: also compute the minimum of casts and transposes over all plans, `report.plan.least_moves`; always computed
            for the runtime "any".
        portable: write a model for all machines: its native kernels run where blocks have the size of the target, and standard
            operators, planned for the runtime "any", on all other machines. Weights of convolutions are in the file twice.
        measure: run the original and the result in turns, for one to three seconds, if this machine's onnxruntime has the
            kernels of the result. The original stays unchanged if the result is slower: `report.measurement`.
        threads: threads of the sessions that are measured and of the kernels that are timed; with one, the process is pinned to
            one CPU.
        calibrate: plan for this machine with kernels that are timed on it, for up to five seconds, and kept in the user's cache
            folder: `report.calibration`. Otherwise the plan has the prices of the target.
        profile: a file of kernel times to plan with, of this machine or another one: none is timed then, so that a model gets
            the same plan everywhere.
        strict: refuse a model with a fault that onnxruntime tolerates, such as a wrong declared shape. Otherwise the fault is
            repaired, and a note of the report with the source "read" names it.
        custom_ops: the path of a shared library with kernels of custom operators, or several; onnxruntime uses them to fold
            constants and to verify.
        pipeline: passes to run in place of the default ones. If it has no `layoutopt.dialects.Lower`, `lower` and the
            passes of the dialect follow.
        watch: called before and after every pass, with the graph.
        progress: called with the name of every step as it begins.
        sizes_found: called with the sizes that the model is planned for, before the first pass.

    Raises:
        ArgumentError, TargetError, FormatError, DimensionError: if an argument is wrong; before the model is read.
        ExtensionError: if a library of kernels, or an extension of an installed package, cannot be loaded.
        ModelError, PinError, DimensionError, InputError: if the model is not valid, has no such tensor or dimension, or does
            not take the inputs.
        VerificationError: if the result is not equivalent to the model; there is no result then.
        UnverifiedError: if the result could not be compared with the original; there is no result then.
        LayoutoptError: if there is too little memory; this error is a MemoryError, too.
    """
    options = Options(
        model=model,
        target=target,
        runtime=runtime,
        dialect=dialect,
        mode=mode,
        pins=pins,
        dims=dims,
        inputs=inputs,
        verify=verify,
        allow_unverified=allow_unverified,
        time_limit=time_limit,
        max_growth=max_growth,
        sessions=sessions,
        count_moves=count_moves,
        portable=portable,
        measure=measure,
        threads=threads,
        calibrate=calibrate,
        profile=profile,
        strict=strict,
        pipeline=pipeline,
        watch=watch,
        progress=progress,
        sizes_found=sizes_found,
    )
    job = Job.of(options)
    with reduced_garbage_collection(), kernel_libraries(custom_ops), reporting_invalid_model(job.given, job.dims):
        return _run(job)


def _run(job: Job) -> Result:
    """The result of a call whose arguments are checked."""
    source = read(job)
    job, graph, samples, rewritten = rewrite_source(job, source)
    if job.options.portable and rewritten is not None:
        rewritten = make_portable(job, source, graph, samples, rewritten)
    return finish(job, source, graph, samples, rewritten)
