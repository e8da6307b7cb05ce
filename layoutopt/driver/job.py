"""The pipeline of `layoutopt.optimize`: the passes before lowering, lowering, and the passes of the dialect.

One call of `layoutopt.optimize`: its checked arguments, and the results of its stages.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from time import perf_counter

import onnx
import onnx_ir

from layoutopt.cost import CostModel
from layoutopt.cost_models import RuntimeSpec
from layoutopt.dialects import DIALECTS, Dialect, Lower
from layoutopt.driver import arguments
from layoutopt.driver.arguments import Target
from layoutopt.driver.garbage_collection import reduced_garbage_collection
from layoutopt.driver.model_faults import reporting_invalid_model
from layoutopt.driver.options import Options, check
from layoutopt.errors import ExtensionError
from layoutopt.files import path_text
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, as_range
from layoutopt.passes import EXTENSIONS, CheckGain, default_pipeline, extensions_behind_lowering
from layoutopt.passes.base import Mode, Moment, Pass, PassContext, PassResult, Pipeline
from layoutopt.registry import package_of
from layoutopt.report.schema import Counts, GainReport, MeasurementReport, PortableReport, PricesReport
from layoutopt.report.stamp import Stamp
from layoutopt.runtime.custom_ops import kernel_libraries
from layoutopt.sample_inputs import InputSet, input_sets
from layoutopt.verification import Verification


def pipeline_for(mode: Mode, target: Target, runtime: str | None, dialect: str | None) -> Pipeline:
    """All passes of a mode for a target, a runtime and a dialect; None for the target's own.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    _, written = arguments.runtime_and_dialect(runtime, dialect, arguments.cost_model_of(target))
    return with_lowering(default_pipeline(mode), written)


def with_lowering(pipeline: Pipeline, dialect: Dialect) -> Pipeline:
    """The pipeline followed by the passes from lowering on; as it is if it has a `Lower` of its own.

    Raises:
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    if any(isinstance(step, Lower) for step in pipeline.passes):
        return pipeline
    return Pipeline((*pipeline.passes, *lowering_passes(dialect)))


def lowering_passes(dialect: Dialect) -> tuple[Pass, ...]:
    """`check-gain`, `lower` and the passes of the dialect, with the passes of installed packages that name one of them.

    Raises:
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    added = extensions_behind_lowering()
    known = {step.name for each in DIALECTS.values() for step in _passes_of(each)} if added else set()
    known |= {each.name for each in added.values()}
    for name, each in added.items():
        if (neighbour := each.before or each.after) not in known:
            where = f"package {package_of(EXTENSIONS.found[name])}: pass {each.name}"
            raise ExtensionError(f"no pass '{neighbour}' to run next to", where=where, hint="see layoutopt list passes")
    return Pipeline(_passes_of(dialect)).extended(list(added.values())).passes


def _passes_of(dialect: Dialect) -> tuple[Pass, ...]:
    return (CheckGain(), Lower(dialect), *dialect.passes)


_LOGGER = logging.getLogger("layoutopt")


@dataclass(slots=True)
class Job:
    """One call of `optimize`.

    Attributes:
        name: the model's path, or "model".
        options: the arguments of the call.
        given: the model as the caller passed it; bytes and files are parsed.
        given_inputs: the arrays for verification; empty for random arrays.
        dims: the sizes of symbolic dimensions.
        stamp: the metadata that identifies the result.
        target_model: the cost model of the target with all its kernels, also those that the runtime lacks.
        runtime: the program that runs the result.
        dialect: the output dialect.
        pipeline: all passes, including lowering.
        context: the state that passes share.
        start: the time at which the call began, in seconds.
        counts: the numbers of casts and transposes of the lifted model.
        passes: the result of each pass.
        verification: the verdict; None before verification.
        gain: the estimated gain of the plan; None before planning, and for several targets.
        calibration: the kernels that were timed for the plan; None before planning.
        measurement: the measured speed-up; None before it.
        portable: the branches of a portable result; None for any other one.
    """

    name: str
    options: Options
    given: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model
    given_inputs: tuple[InputSet, ...]
    dims: Dims
    stamp: Stamp
    target_model: CostModel
    runtime: RuntimeSpec
    dialect: Dialect
    pipeline: Pipeline
    context: PassContext
    start: float = field(default_factory=perf_counter)
    counts: Counts = field(default_factory=Counts)
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None
    gain: GainReport | None = None
    calibration: PricesReport | None = None
    measurement: MeasurementReport | None = None
    portable: PortableReport | None = None

    @classmethod
    def of(cls, options: Options) -> "Job":
        """Check the arguments of a call.

        Raises:
            ArgumentError, TargetError, FormatError, DimensionError: an argument is wrong.
        """
        check(options)
        arguments.check_types(options)
        texts, sizes = arguments.checked_pins(options.pins), arguments.checked_dims(options.dims)
        target_model = arguments.cost_model_of(options.target)
        runtime, dialect = arguments.runtime_and_dialect(options.runtime, options.dialect, target_model)
        arguments.check_dialect(options, dialect)
        stamp = Stamp(
            target_model.name,
            runtime.name,
            dialect.name,
            options.mode,
            tuple(sorted(texts.items())),
            tuple((name, as_range(given)) for name, given in sorted(sizes.items())),
            options.max_growth,
            options.portable,
            options.sessions,
        )
        context = PassContext(
            runtime.restricted(target_model),
            options.mode,
            time_limit=options.time_limit,
            kernels=dialect.kernels,
            keeps_qdq_groups=dialect.keeps_qdq_groups,
            sessions=options.sessions,
            has_baked_passes=bool(dialect.baked_passes),
            find_epilogues=runtime.epilogues,
        )
        return cls(
            path_text(options.model) if isinstance(options.model, str | PathLike) else "model",
            options,
            arguments.as_message(options.model),
            input_sets(options.inputs),
            sizes,
            stamp,
            target_model,
            runtime,
            dialect,
            with_lowering(options.pipeline or default_pipeline(options.mode), dialect),
            context,
        )

    def again(self, passes: Iterable[Pass], exact: Mapping[str, frozenset[str]]) -> "Job":
        """The same call from its start with other passes, some of which leave tensors alone: `PassContext.exact`."""
        job = Job.of(replace(self.options, model=self.given))
        job.name, job.start = self.name, self.start
        job.pipeline = Pipeline(tuple(passes))
        job.context.exact = exact
        return job

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager of the stages: an exception counts as caused by the model if onnxruntime refuses it as well."""
        libraries = kernel_libraries(self.options.custom_ops)
        with reduced_garbage_collection(), libraries, reporting_invalid_model(self.given, self.dims):
            yield

    @property
    def path(self) -> str | None:
        """The file of the model; None if the model was passed in memory."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """The original, which is returned byte for byte if the model stays unchanged; None if it has no serialized form."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def progress(self, step: str) -> None:
        """Log the start of a stage, and report it to the caller."""
        _LOGGER.info("%s: %s", self.name, step)
        if self.options.progress is not None:
            self.options.progress(step)

    def watch(self, moment: Moment, step: Pass, graph: Graph) -> None:
        """Report the start of a pass, and call the caller's `watch`."""
        if moment == "before":
            self.progress(step.name)
        if self.options.watch is not None:
            self.options.watch(moment, step, graph)
