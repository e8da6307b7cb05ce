"""Inputs for a file or message: onnxruntime is asked at which sizes the model runs, for a limited time."""

from collections.abc import Mapping
from os import PathLike
from typing import TypeAlias

from layoutopt import onnx_io
from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Sizes
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs.draw import Style
from layoutopt.sample_inputs.given import Given
from layoutopt.sample_inputs.inputs import SampleInputs
from layoutopt.sample_inputs.plausible import Refusal, Try, plausible_sizes

SECONDS = 20.0  # for one run; nobody plans for a size at which a model takes longer without being asked
_REASON = 200  # characters
_STYLES = (Style.RANDOM, Style.ONES)

Source: TypeAlias = bytes | str | PathLike[str]


def prepared(
    model: Source, graph: Graph, dims: Dims | None = None, given: Given | None = None, *, may_run: bool = True
) -> tuple[SampleInputs, Sizes]:
    """How inputs for a model are made, and the sizes of its symbolic dimensions, given or plausible.

    Args:
        model: a file, or its bytes, which is run if there are symbolic dimensions.
        graph: the graph of the model, in which nothing is rewritten yet.
        dims: sizes that callers have given, or ranges of them.
        given: arrays that callers have given.
        may_run: whether the model may be loaded and run.

    Raises:
        DimensionError: a name is that of no dimension, or a size is none.
        InputError: an array fits no input.
    """
    inputs = SampleInputs.of(graph, dims, given)
    sizes = plausible_sizes(inputs.dimensions, tried_on(model, inputs) if may_run else None)
    return inputs.with_sizes(sizes), sizes


def inputs_for(model: Source, dims: Dims | None = None, given: Given | None = None) -> SampleInputs:
    """How inputs for a file or message are made; without regard to its graph if layoutopt cannot read it.

    Raises:
        DimensionError, InputError: as for `prepared`.
    """
    try:
        graph = _lifted(model)
    except ModelError:
        return SampleInputs.of(None, dims, given)
    return prepared(model, graph, dims, given)[0]


def _lifted(model: Source) -> Graph:
    if isinstance(model, bytes):
        return onnx_io.lift(onnx_io.from_message(onnx_io.parse_message(model)))
    return onnx_io.lift(onnx_io.read(model))


def tried_on(model: Source, inputs: SampleInputs) -> Try:
    """A function that runs a model at some sizes; the model is loaded at its first call.

    Args:
        model: a file, or its bytes.
        inputs: how inputs are made.
    """
    sessions: list[Session | Exception] = []

    def run(sizes: Mapping[str, int]) -> Refusal:
        if not sessions:
            sessions.append(_opened(model))
        session = sessions[0]
        return _reason(session) if isinstance(session, Exception) else _refusal(session, inputs, sizes)

    return run


def _opened(model: Source) -> Session | Exception:
    try:
        return Session(model, optimised=False)
    except Exception as error:  # onnxruntime's exceptions have no common base
        return error


def _refusal(session: Session, inputs: SampleInputs, sizes: Mapping[str, int]) -> Refusal:
    """Why a model does not run at some sizes, with random inputs and with plain ones; empty if it does."""
    reason = ""
    for style in _STYLES:
        try:
            session.run(None, inputs.feed(session, sizes, style), SECONDS)
        except Exception as error:
            reason = reason or _reason(error)
        else:
            return ""
    return reason


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON else f"{text[: _REASON - 3]}..."


__all__ = ["inputs_for", "prepared", "tried_on"]
