"""One call of `layoutopt.optimize`: its checked arguments, and the results of its stages."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from time import perf_counter

import onnx
import onnx_ir

from layoutopt import inference
from layoutopt.cost import CostModel
from layoutopt.cost_models import RuntimeSpec
from layoutopt.dialects import Dialect
from layoutopt.driver import arguments
from layoutopt.driver.options import Options, check
from layoutopt.driver.pipeline import with_lowering
from layoutopt.files import path_text
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, as_range
from layoutopt.ir.types import Op, Signature
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Moment, Pass, PassContext, PassResult, Pipeline
from layoutopt.report.schema import Counts, GainReport, MeasurementReport, PortableReport, PricesReport, RemainingMove
from layoutopt.report.stamp import Stamp
from layoutopt.runtime.evaluate import defer, evaluate, is_foldable
from layoutopt.sample_inputs import InputSet, input_sets
from layoutopt.verification import Runnable, Verification, as_runnable

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
        before: the numbers of casts and transposes of the lifted model.
        moves: these casts and transposes.
        passes: the result of each pass.
        verification: the verdict; None before verification.
        gain: the estimated gain of the plan, by cause; None before planning, and for several targets.
        calibration: the kernels that were timed for the plan; None before planning.
        has_times: whether the price of an op under a signature consists of times of kernels.
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
    before: Counts = field(default_factory=lambda: Counts(casts=0, transposes=0, weight_casts=0))
    moves: list[RemainingMove] = field(default_factory=list)
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None
    gain: GainReport | None = None
    calibration: PricesReport | None = None
    has_times: Callable[[Op, Signature], bool] = lambda op, signature: False
    measurement: MeasurementReport | None = None
    portable: PortableReport | None = None

    @classmethod
    def of(cls, options: Options) -> "Job":
        """Check the arguments of a call.

        Raises:
            ArgumentError, TargetError, FormatError, DimensionError: an argument is wrong.
        """
        check(options)
        arguments.check_pipeline(options.pipeline)
        arguments.check_callbacks(watch=options.watch, progress=options.progress)
        arguments.check_model(options.model)
        texts, sizes = arguments.checked_pins(options.pins), arguments.checked_dims(options.dims)
        target_model = arguments.cost_model_of(options.target)
        runtime, dialect = arguments.runtime_and_dialect(options.runtime, options.dialect, target_model)
        arguments.check_portable(options.portable, dialect, options.mode, options.pipeline)
        arguments.check_sessions(options.sessions, dialect)
        arguments.check_profile(options.profile, dialect)
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
            is_foldable=is_foldable,
            evaluate=evaluate,
            defer=defer,
            infer=inference.infer_again,
            kernels=dialect.kernels,
            counts_moves=options.count_moves or runtime.kernels == "standard",
            evaluate_extents=inference.evaluate_extents,
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
        job.pipeline = replace(self.pipeline, passes=tuple(passes))
        job.context.exact = exact
        return job

    @property
    def path(self) -> str | None:
        """The file of the model; None if the model was passed in memory."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """The original, which is returned byte for byte if the model stays unchanged; None if it has no serialized form."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def runnable_original(self, source: onnx_ir.Model, has_float16: bool, folder: Path) -> Runnable:
        """The original as a model to run.

        Args:
            source: the original as it was read.
            has_float16: whether a tensor has the type float16.
            folder: for the file of a model that was passed in memory and is too large for a session from memory.
        """
        path = self.path
        return Runnable.of(path, has_float16) if path else as_runnable(source, folder / "original.onnx", has_float16)

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


__all__ = ["Job"]
