"""Test inputs of a model file or message, with trial runs in onnxruntime to infer sizes, within a time limit."""

from collections.abc import Mapping
from os import PathLike
from typing import TypeAlias

from layoutopt import inference, onnx_io
from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Sizes
from layoutopt.runtime.errors import error_message
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs.generator import SampleInputs
from layoutopt.sample_inputs.given_inputs import Given
from layoutopt.sample_inputs.random_inputs import Style
from layoutopt.sample_inputs.symbolic_dimensions import RunError, TrialRunner, plausible_sizes

RUN_SECONDS = 20.0  # time limit of one run; sizes at which a model takes longer have to be given
_STYLES = (Style.RANDOM, Style.ONES)

Source: TypeAlias = bytes | str | PathLike[str]


def prepare_inputs(
    model: Source, graph: Graph | None, dims: Dims | None = None, given: Given | None = None, *, may_run: bool = True
) -> tuple[SampleInputs, Sizes]:
    """The generator of test inputs of a model, and the given or inferred sizes of its symbolic dimensions.

    Args:
        model: a file, or its bytes, which is run if there are symbolic dimensions.
        graph: the graph of the model, before any rewrite; None if layoutopt cannot read it.
        dims: sizes that the caller has given, or ranges of them.
        given: arrays that the caller has given.
        may_run: whether the model may be loaded and run.

    Raises:
        DimensionError: there is no dimension of a given name, or a size is invalid.
        InputError: an array fits no input.
    """
    inputs = SampleInputs.of(graph, dims, given)
    sizes = plausible_sizes(inputs.dimensions, trial_runner(model, inputs) if may_run else None)
    return inputs.with_sizes(sizes), sizes


def sample_inputs_for(model: Source, dims: Dims | None = None, given: Given | None = None) -> SampleInputs:
    """The generator of test inputs of a file or message; without its graph if layoutopt cannot read it.

    Raises:
        DimensionError, InputError: as for `prepare_inputs`.
    """
    return prepare_inputs(model, lift_source(model), dims, given)[0]


def lift_source(model: Source) -> Graph | None:
    """The graph of a file or message; None if layoutopt cannot read it."""
    try:
        if isinstance(model, bytes):
            return inference.lift(onnx_io.from_message(onnx_io.parse_message(model)))
        return inference.lift(onnx_io.read(model))
    except ModelError:
        return None


def trial_runner(model: Source, inputs: SampleInputs) -> TrialRunner:
    """A function that runs a model at given sizes; its first call loads the model.

    Args:
        model: a file, or its bytes.
        inputs: the generator of inputs.
    """
    sessions: list[Session | Exception] = []

    def run(sizes: Mapping[str, int]) -> RunError:
        if not sessions:
            sessions.append(_opened(model))
        session = sessions[0]
        return error_message(session) if isinstance(session, Exception) else _run_error(session, inputs, sizes)

    return run


def _opened(model: Source) -> Session | Exception:
    try:
        return Session(model, is_optimised=False)
    except Exception as error:  # onnxruntime's exceptions have no common base
        return error


def _run_error(session: Session, inputs: SampleInputs, sizes: Mapping[str, int]) -> RunError:
    """The error of a model at given sizes with random inputs, if it does not run with simpler inputs either; else empty."""
    reason = ""
    for style in _STYLES:
        try:
            session.run(None, inputs.feed(session, sizes, style), RUN_SECONDS)
        except Exception as error:
            reason = reason or error_message(error)
        else:
            return ""
    return reason


__all__ = ["lift_source", "prepare_inputs", "sample_inputs_for", "trial_runner"]
