"""Runs of the original model on test inputs, at several sizes of symbolic dimensions and within time limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any

import numpy as np
import onnx_ir

from layoutopt import onnx_io
from layoutopt.errors import LayoutoptError
from layoutopt.files import scratch_folder
from layoutopt.ir.types import Array
from layoutopt.runtime.errors import RUNTIME_ERRORS, error_message, is_out_of_memory, raise_if_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs, Style, sizes_text
from layoutopt.verification.runnable import Runnable, Source
from layoutopt.verification.verdict import Verification

RUN_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, LayoutoptError, TimeoutError)
"""Exceptions of a failed run: those of the runtime, of the generation of inputs, and of the time limit."""

RUN_OR_MEMORY_ERRORS: tuple[type[Exception], ...] = (*RUN_ERRORS, MemoryError)
"""Exceptions of a failed run, and of one for which there is too little memory."""

COMPARED_SIZES = 3
"""Number of sizes of symbolic dimensions at which two models are compared."""

RUN_SECONDS = 120.0
"""Time limit of one run of a model."""

SPREAD_SECONDS = 60.0
"""Time limit of the measurement of the rounding spread."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Time limits of a verification.

    Attributes:
        run: seconds for one run; a model that takes longer cannot be verified.
        spread: seconds after which no further perturbation of the original is run.
        start: time at which verification began, on the monotonic clock.
    """

    run: float = RUN_SECONDS
    spread: float = SPREAD_SECONDS
    start: float = field(default_factory=monotonic)

    @property
    def is_exceeded(self) -> bool:
        """Whether the time for measuring the spread is over."""
        return monotonic() - self.start > self.spread


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the original.

    Attributes:
        sizes: of symbolic dimensions.
        feed: the inputs.
        outputs: the outputs, in the order of the session.
    """

    sizes: Mapping[str, int]
    feed: Mapping[str, Array]
    outputs: Sequence[Any]

    @property
    def at_sizes(self) -> str:
        """The sizes as text, such as " at batch=2"; empty without symbolic dimensions."""
        return _at_sizes(self.sizes)


def _at_sizes(sizes: Mapping[str, int]) -> str:
    return f" at {sizes_text(sizes)}" if sizes else ""


def run_original(
    session: Session, inputs: SampleInputs, seed: int, limits: TimeLimits, *, only_once: bool = False
) -> tuple[list[Run], list[str]]:
    """The runs at up to `COMPARED_SIZES` sizes, two at the first; and the errors of the sizes at which the model does not run.

    If the model runs at no size with random values, simpler values are tried. A size for which there is too little memory is
    skipped if the model runs at another one.

    Args:
        session: the original.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
        seed: of the random inputs.
        limits: time limits.
        only_once: stop after the first set of inputs on which the model runs.

    Raises:
        MemoryError: there is too little memory at every size.
    """
    failures: list[str] = []
    too_large: Exception | None = None
    for style in Style:
        runs: list[Run] = []
        done: dict[int, int] = {}
        for sample in inputs.sets(session, seed, style):
            if done.get(sample.group, 0) == COMPARED_SIZES or (runs and limits.is_exceeded):
                continue
            if runs and only_once:
                break
            # Two sets of inputs of one size show whether the outputs depend on the inputs.
            count = 1 if only_once or done.get(sample.group) else 2
            try:
                feeds = islice(sample.feeds, count)
                runs += [Run(sample.sizes, feed, session.run(None, feed, limits.run)) for feed in feeds]
            except RUN_OR_MEMORY_ERRORS as error:
                too_large = error if is_out_of_memory(error) else too_large
                failures.append(f"{_at_sizes(sample.sizes)}: {error_message(error)}")
            else:
                done[sample.group] = done.get(sample.group, 0) + 1
        if runs:
            return runs, failures
        if too_large is not None:
            raise_if_out_of_memory(too_large)
    return [], failures


def load_and_run(
    model: Runnable,
    inputs: SampleInputs,
    seed: int,
    limits: TimeLimits,
    *,
    is_optimised: bool = True,
    only_once: bool = False,
) -> tuple[Session, list[Run]] | str:
    """A session of the original and its runs by `run_original`; or the reason why it cannot be run, in one line."""
    try:
        session = model.session(is_optimised=is_optimised)
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return f"the original cannot be run: {error_message(error)}"
    runs, failures = run_original(session, inputs, seed, limits, only_once=only_once)
    return (session, runs) if runs else f"the original cannot be run{failures[0]}"


def run_model_once(model: onnx_ir.Model, path: str | None, inputs: SampleInputs) -> Verification:
    """Run a model once, without a comparison: "passed" if ONNX Runtime can run it, otherwise "not verified" with the reason.

    Args:
        model: the model.
        path: the file that it was read from; None if it was not a file.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
    """
    if path is not None:
        return run_source_once(path, inputs)
    if sum(tensor.nbytes for _, tensor in onnx_io.weights(model)) <= onnx_io.IN_ONE_FILE:
        return run_source_once(onnx_io.to_bytes(model), inputs)
    with scratch_folder() as folder:
        file = folder / "original.onnx"
        onnx_io.write(model, file)
        return run_source_once(file, inputs)


def run_source_once(source: Source, inputs: SampleInputs) -> Verification:
    """The same as `run_model_once`, for a file or the bytes of a message."""
    loaded = load_and_run(Runnable.of(source), inputs, 0, TimeLimits(), only_once=True)
    if isinstance(loaded, str):
        return Verification("not verified", loaded)
    _, runs = loaded
    return Verification("passed", sizes=tuple(tuple(run.sizes.items()) for run in runs if run.sizes))


def misdeclared_outputs(session: Session, outputs: Sequence[Any]) -> dict[str, str]:
    """The outputs whose shape contradicts the model's declaration, with both shapes as text.

    Either the declaration is wrong or the inputs are invalid: an integer input may be an extent, such as the k of a TopK whose
    output is declared with k = 3. A rewritten model relies on declared shapes.
    """
    found = {}
    for declared, output in zip(session.get_outputs(), outputs, strict=True):
        if not isinstance(output, np.ndarray) or not any(isinstance(dim, int) for dim in declared.shape or ()):
            continue
        pairs = zip(declared.shape, output.shape, strict=False)
        if len(declared.shape) != output.ndim or any(isinstance(dim, int) and dim != size for dim, size in pairs):
            shapes = f"{list(output.shape)}, but declares {list(declared.shape)}"
            found[declared.name] = f"on random inputs the original computes {declared.name} with the shape {shapes}"
    return found


__all__ = [
    "RUN_ERRORS",
    "RUN_OR_MEMORY_ERRORS",
    "Run",
    "TimeLimits",
    "load_and_run",
    "misdeclared_outputs",
    "run_model_once",
    "run_original",
    "run_source_once",
]
