"""One call of `layoutopt.optimize`: its checked arguments, and what its steps find out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from time import perf_counter
from typing import TypeAlias

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.dialects import DIALECTS, Dialect
from layoutopt.driver import arguments
from layoutopt.driver.arguments import Model, Target
from layoutopt.driver.pipeline import with_lowering
from layoutopt.files import path_text
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Sizes, as_range, symbols
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Moment, Pass, PassContext, PassResult, Pipeline, Watch
from layoutopt.report.builder import counts
from layoutopt.report.schema import Counts
from layoutopt.report.stamp import KEY, Stamp
from layoutopt.runtime.evaluate import defer, evaluate, is_foldable
from layoutopt.sample_inputs import Given, InputSet, SampleInputs, given_ranges, input_sets, prepare_inputs
from layoutopt.verification import Verification

Progress: TypeAlias = Callable[[str], None]

_RUN_TO_VERIFY = 1_900_000_000
"""Bytes of weights up to which a model with symbolic dimensions is run to find sizes; a larger one is no single message."""

_RUN_TO_PLAN = 100_000_000
"""The same without verification, which must not need the memory for the weights."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `optimize` that passes do not read; `optimize` describes each."""

    verify: bool
    allow_unverified: bool
    strict: bool
    watch: Watch | None
    progress: Progress | None
    sizes_found: Callable[[Sizes], None] | None


@dataclass(slots=True)
class Job:
    """One call of `optimize`.

    Attributes:
        name: the model's path, or "model".
        given: the model as it was handed in.
        given_inputs: arrays to verify with; empty for random ones.
        dims: sizes of symbolic dimensions.
        stamp: what the result is optimised for.
        dialect: the dialect to write.
        pipeline: all passes, lowering among them.
        context: what the passes share.
        settings: the other arguments.
        start: when the call began, in seconds.
        before: casts and transposes of the model that was read.
        passes: what each pass did.
        verification: the verdict, once there is one.
    """

    name: str
    given: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model
    given_inputs: tuple[InputSet, ...]
    dims: Dims
    stamp: Stamp
    dialect: Dialect
    pipeline: Pipeline
    context: PassContext
    settings: Settings
    start: float = field(default_factory=perf_counter)
    before: Counts = field(default_factory=lambda: Counts(casts=0, transposes=0, weight_casts=0))
    passes: list[PassResult] = field(default_factory=list)
    verification: Verification | None = None

    @classmethod
    def make(
        cls,
        model: Model,
        target: Target,
        dialect: str | None,
        mode: Mode,
        pins: Mapping[str, Format | str] | None,
        dims: Dims | None,
        inputs: Given | None,
        time_limit: float | None,
        max_growth: float,
        count_moves: bool,
        pipeline: Pipeline | None,
        settings: Settings,
    ) -> "Job":
        """Check the arguments of `optimize`, which has the same ones."""
        arguments.check_time_limit(time_limit)
        arguments.check_pipeline(pipeline)
        arguments.check_callbacks(watch=settings.watch, progress=settings.progress)
        arguments.check_model(model)
        arguments.check_mode(mode)
        arguments.check_max_growth(max_growth)
        formats, sizes = arguments.checked_pins(pins), arguments.checked_dims(dims)
        cost_model = arguments.cost_model_of(target)
        written = DIALECTS[arguments.checked_dialect(dialect, cost_model)]
        stamp = Stamp(
            cost_model.name,
            written.name,
            mode,
            tuple((name, str(format)) for name, format in sorted(formats.items())),
            tuple((name, as_range(given)) for name, given in sorted(sizes.items())),
            max_growth,
        )
        context = PassContext(
            cost_model,
            mode,
            formats,
            time_limit,
            is_foldable=is_foldable,
            evaluate=evaluate,
            defer=defer,
            infer=onnx_io.infer_again,
            kernels=written.kernels,
            counts_moves=count_moves,
            measure=onnx_io.measure,
            keeps_qdq_groups=written.keeps_qdq_groups,
        )
        return cls(
            path_text(model) if isinstance(model, str | PathLike) else "model",
            arguments.as_message(model),
            input_sets(inputs),
            sizes,
            stamp,
            written,
            with_lowering(pipeline or default_pipeline(mode), written),
            context,
            settings,
        )

    @property
    def path(self) -> str | None:
        """The file that the model came from."""
        return str(self.given) if isinstance(self.given, str | PathLike) else None

    @property
    def source(self) -> str | onnx.ModelProto | None:
        """What to fall back on, byte for byte, where the model is left alone."""
        return self.given if isinstance(self.given, onnx.ModelProto) else self.path

    def progress(self, step: str) -> None:
        """Report the name of a step that begins."""
        if self.settings.progress is not None:
            self.settings.progress(step)

    def watch(self, moment: Moment, step: Pass, graph: Graph) -> None:
        """Report a pass that begins, and call the caller's `watch`."""
        if moment == "before":
            self.progress(step.name)
        if self.settings.watch is not None:
            self.settings.watch(moment, step, graph)

    def take_sizes_of_inputs(self, model: onnx_ir.Model) -> None:
        """Give symbolic dimensions the sizes that given inputs have.

        Raises:
            InputError: the model does not take the inputs.
        """
        if self.given_inputs:
            said = {name: as_range(given) for name, given in self.dims.items()}
            ranges = given_ranges(onnx_io.declared_inputs(model), self.given_inputs, said)
            self.dims, self.stamp = ranges, replace(self.stamp, dims=tuple(sorted(ranges.items())))

    def reason_to_keep(self, model: onnx_ir.Model) -> str:
        """The reason for which a model that was read stays as it is, whatever a plan would gain; empty if there is none."""
        if KEY in model.metadata_props and self.stamp.matches(model.metadata_props, onnx_io.fingerprint(model)):
            return "it has been optimised like this before"
        if self.context.mode == "inference" and onnx_io.has_training(model):
            return "its training information binds its weights by name"
        return ""

    def infer_sizes(self, model: onnx_ir.Model, graph: Graph) -> SampleInputs:
        """Find the sizes to plan for, and how inputs are made for verification; the model is run unless it is large."""
        size = sum(tensor.nbytes for _, tensor in onnx_io.weights(model))
        may_run = bool(symbols(graph.inputs)) and size <= (_RUN_TO_VERIFY if self.settings.verify else _RUN_TO_PLAN)
        source = self.path or (onnx_io.to_bytes(model) if may_run else b"")
        samples, self.context.sizes = prepare_inputs(source, graph, self.dims, self.given_inputs, may_run=may_run)
        return samples

    def count_before(self, graph: Graph) -> None:
        """Count casts and transposes of the model as it was lifted."""
        self.before = counts(graph)


__all__ = ["Job", "Progress", "Settings"]
