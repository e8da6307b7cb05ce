"""Runs of models on test inputs: at several sizes of symbolic dimensions and within time limits, or once."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
import onnx_ir
from msgspec import field
from msgspec.structs import replace

from layoutopt.files import scratch_folder
from layoutopt.files.staging import output_errors
from layoutopt.formats import Format
from layoutopt.ir.types import Array
from layoutopt.onnx_io import weights
from layoutopt.onnx_io.serialize import to_proto
from layoutopt.record import Record
from layoutopt.runtime.errors import (
    RUN_ERRORS,
    RUN_OR_MEMORY_ERRORS,
    error_message,
    is_about_the_model,
    is_memory_message,
    is_out_of_memory,
    raise_if_out_of_memory,
)
from layoutopt.sample_inputs import SampleInputs, Style, sizes_text
from layoutopt.verification.cuts import ObservedValue
from layoutopt.verification.parts import is_too_large
from layoutopt.verification.runnable import AnySession, Runnable, as_runnable, mappable, with_definitions
from layoutopt.verification.verdict import Verification

COMPARED_SIZES = 3
"""Number of sizes of symbolic dimensions at which two models are compared."""

RUN_SECONDS = 120.0
"""Time limit of one run of a model; one that takes longer cannot be verified."""

SPREAD_SECONDS = 60.0
"""Time after which no further perturbation of a whole model is run."""

_EXTERNAL_FROM = 1024  # bytes; smaller tensors of a model without weights are in the message

_UNVERIFIED_SECONDS = 10.0
"""Time limit of the one run of a model that is not verified."""

Values: TypeAlias = Mapping[str, Any]
"""The values of a run, by name."""


class Request(Record):
    """The conditions of a comparison.

    Attributes:
        pins: formats of the rewritten model's inputs and outputs, where these are not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten model.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
        seed: of the random inputs.
        start: the time at which verification began, on the monotonic clock.
        defers_spread: whether the rounding spread is measured only after a comparison without tolerance has failed.
    """

    pins: Mapping[str, Format] = field(default_factory=dict)
    observed: Sequence[ObservedValue] = ()
    inputs: SampleInputs = field(default_factory=SampleInputs)
    seed: int = 0
    start: float = field(default_factory=monotonic)
    defers_spread: bool = False

    @property
    def is_late(self) -> bool:
        """Whether the time for measuring the spread of a whole model is over."""
        return monotonic() - self.start > SPREAD_SECONDS

    def counterparts(self, values: Iterable[ObservedValue] = ()) -> dict[str, ObservedValue]:
        """The pinned and the observed values, and some more, by their names in the original."""
        pinned = [ObservedValue(name, name, format) for name, format in self.pins.items()]
        return {each.original: each for each in (*values, *self.observed, *pinned)}


class Run(Record):
    """One run of the original.

    Attributes:
        sizes: of symbolic dimensions.
        feed: the inputs.
        values: the outputs by name, and the values at cuts.
    """

    sizes: Mapping[str, int]
    feed: Mapping[str, Array]
    values: Values

    @property
    def at_sizes(self) -> str:
        """The sizes as text, such as " at batch=2"; empty without symbolic dimensions."""
        return _at_sizes(self.sizes)


def _at_sizes(sizes: Mapping[str, int]) -> str:
    return f" at {sizes_text(sizes)}" if sizes else ""


def run_original(session: AnySession, request: Request, *, only_once: bool = False) -> tuple[list[Run], list[str]]:
    """The runs at up to `COMPARED_SIZES` sizes, two at the first; and the errors of the sizes at which the model does not run.

    If the model runs at no size with random values, simpler values are tried. A size for which there is too little memory is
    skipped if the model runs at another one.

    Args:
        session: the original.
        request: the test inputs and the seed.
        only_once: stop after the first set of inputs on which the model runs.

    Raises:
        MemoryError: there is too little memory at every size.
    """
    names = [each.name for each in session.get_outputs()]
    failures: list[str] = []
    too_large: Exception | None = None
    for style in Style:
        runs: list[Run] = []
        done: dict[int, int] = {}
        for sample in request.inputs.sets(session, request.seed, style):
            if done.get(sample.group, 0) == COMPARED_SIZES or (runs and request.is_late):
                continue
            if runs and only_once:
                break
            # Two sets of inputs of one size show whether the outputs depend on the inputs.
            count = 1 if only_once or done.get(sample.group) else 2
            try:
                feeds = list(islice(sample.feeds, count))
                outputs = session.run_all(None, feeds, RUN_SECONDS)
            except RUN_OR_MEMORY_ERRORS as error:
                too_large = error if is_out_of_memory(error) else too_large
                failures.append(f"{_at_sizes(sample.sizes)}: {error_message(error)}")
            else:
                values = (dict(zip(names, each, strict=True)) for each in outputs)
                runs += [Run(sample.sizes, feed, each) for feed, each in zip(feeds, values, strict=True)]
                done[sample.group] = done.get(sample.group, 0) + 1
        if runs:
            return runs, failures
        if too_large is not None:
            raise_if_out_of_memory(too_large)
    return [], failures


def load_and_run(
    model: Runnable, request: Request, *, is_optimised: bool = True, only_once: bool = False
) -> tuple[AnySession, list[Run]] | str:
    """A session of the original and its runs by `run_original`; or the reason why it cannot be run, in one line."""
    try:
        session = model.session(is_optimised=is_optimised)
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return f"the original cannot be run: {error_message(error)}"
    runs, failures = run_original(session, request, only_once=only_once)
    return (session, runs) if runs else f"the original cannot be run{failures[0]}"


def run_once(model: Runnable, inputs: SampleInputs) -> Verification:
    """Run a model once, without a comparison: "passed" if onnxruntime can run it, otherwise "not verified" with the reason."""
    loaded = load_and_run(model, Request(inputs=inputs), only_once=True)
    if isinstance(loaded, str):
        return Verification("not verified", loaded)
    return Verification("passed", sizes=sizes_of(loaded[1]))


def run_model_once(model: onnx_ir.Model, path: str | None, inputs: SampleInputs) -> Verification:
    """Run a model once, as `run_once`; part by part if it is larger than the available memory.

    Args:
        model: the model.
        path: the file that it was read from; None if it was not a file.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
    """
    with scratch_folder() as folder:
        is_parted = is_too_large(model)
        runnable = as_runnable(model, folder / "original.onnx", mappable(path) if is_parted else path)
        return run_once(replace(runnable, is_parted=is_parted), inputs)


def failure_without_weights(model: onnx_ir.Model, inputs: SampleInputs) -> str:
    """The error of one run of a model with zeros in the place of its weights; empty if it succeeds or takes long.

    It is empty, too, if a run with random integers fails, which may be shapes or axes, unless there is too little memory.

    All weights are mapped to one file without blocks, so that they take neither time to read nor memory.
    """
    large = [
        (value, each)
        for value, each in weights(model)
        if each.nbytes >= _EXTERNAL_FROM and each.dtype != onnx_ir.DataType.STRING
    ]
    zeros = {
        value: onnx_ir.ExternalTensor(
            "zeros", 0, each.nbytes, each.dtype, shape=onnx_ir.Shape(each.shape.numpy()), name=value.name or ""
        )
        for value, each in large
    }
    with scratch_folder() as folder:
        with output_errors(folder / "zeros"), (folder / "zeros").open("wb") as file:
            file.truncate(max((each.nbytes for _, each in large), default=0))
        message = to_proto(model, zeros)
        runnable, _ = with_definitions(Runnable(bytes(message.SerializeToString()), folder, is_large=True))
        session = None
        try:
            session = runnable.session(is_optimised=False)
            sample = next(inputs.sets(session, 0))
            session.run(None, next(sample.feeds), _UNVERIFIED_SECONDS)
        except TimeoutError:
            return ""
        except RUN_OR_MEMORY_ERRORS as error:
            reason = error_message(error)
            is_by_integers = session is not None and inputs.has_random_integers_or_scalars(session)
            return reason if is_memory_message(reason) or not is_by_integers else ""
    return ""


def run_failure(path: Path, model: onnx_ir.Model, inputs: SampleInputs) -> str:
    """The error of running a model once; empty if onnxruntime runs it, or lacks a kernel or values for it."""
    error = failure_without_weights(model, inputs)
    if is_memory_message(error):
        return error
    return run_once(Runnable.of(path), inputs).refusal if error and is_about_the_model(error) else ""


def sizes_of(runs: Iterable[Run]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The sizes of symbolic dimensions of some runs, each once."""
    return tuple(dict.fromkeys(tuple(run.sizes.items()) for run in runs if run.sizes))


def misdeclared_outputs(session: AnySession, values: Values) -> dict[str, str]:
    """The outputs whose shape contradicts the model's declaration, with both shapes as text.

    Either the declaration is wrong or the inputs are invalid: an integer input may be an extent, such as the k of a TopK whose
    output is declared with k = 3. A rewritten model relies on declared shapes.
    """
    found = {}
    for declared in session.get_outputs():
        output, shape = values[declared.name], tuple(declared.shape or ())
        if not isinstance(output, np.ndarray) or not any(isinstance(dim, int) for dim in shape):
            continue
        pairs = zip(shape, output.shape, strict=False)
        if len(shape) != output.ndim or any(isinstance(dim, int) and dim != size for dim, size in pairs):
            shapes = f"{list(output.shape)}, but declares {list(shape)}"
            found[declared.name] = f"on random inputs the original computes {declared.name} with the shape {shapes}"
    return found
