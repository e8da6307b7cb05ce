"""Diagnosis of models with ONNX Runtime: whether a model can be run, and whether it is the cause of an exception."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TypeAlias

import onnx
import onnx_ir

from layoutopt import inference, onnx_io
from layoutopt.errors import FormatError, InvariantError, LayoutoptError, ModelError
from layoutopt.ir.sizes import Dims
from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.runtime.session import load_failure
from layoutopt.sample_inputs import SampleInputs, sample_inputs_for
from layoutopt.verification.runnable import Runnable, Source
from layoutopt.verification.runs import run_once

Model: TypeAlias = str | PathLike[str] | onnx.ModelProto | onnx_ir.Model

_HINT = "export the model again"


def is_loadable(model: Model, *, is_optimised: bool = False) -> bool:
    """Whether ONNX Runtime loads a model, without optimisations or at its default level."""
    return not load_failure(_source(model), is_optimised=is_optimised)


def _source(model: Model) -> Source:
    """The file or the bytes of a model."""
    if isinstance(model, onnx_ir.Model):
        return onnx_io.to_bytes(model)
    return model.SerializeToString() if isinstance(model, onnx.ModelProto) else model


@contextmanager
def reporting_invalid_model(model: Model, dims: Dims) -> Iterator[None]:
    """Context manager that turns an exception into a ModelError if ONNX Runtime also refuses the model as invalid.

    The standard has rules that neither onnx's checker nor its inference checks, such as the channels of a DepthToSpace. If the
    runtime accepts the model, or refuses it for another reason, the exception is a bug of layoutopt and propagates.

    Raises:
        ModelError: the model is invalid.
        OutOfMemoryError: there is too little memory, whatever the exception was.
    """
    name = str(model) if isinstance(model, str | PathLike) else "model"
    try:
        yield
    except Exception as error:
        raise_if_out_of_memory(error, name)
        is_deliberate = isinstance(error, LayoutoptError) and not isinstance(error, FormatError | InvariantError)
        if is_deliberate or isinstance(error, OSError):
            raise
        reason = _refusal(model, dims)
        if not reason:
            raise
        raise ModelError(reason, where=name, hint=_HINT) from error


def raise_if_refused(model: Model, dims: Dims, fault: ModelError) -> None:
    """Raise a ModelError for a fault that cannot be repaired, unless ONNX Runtime runs the model.

    The op may be in a branch that is never taken, or its kernel may accept operands that the standard forbids.

    Args:
        model: the model.
        dims: sizes of symbolic dimensions.
        fault: the fault, and the op.

    Raises:
        ModelError: ONNX Runtime refuses the model as well.
    """
    if _refusal(model, dims):
        raise ModelError(fault.what, where=fault.where, hint=fault.hint or _HINT) from fault


def has_fault(source: onnx_ir.Model) -> bool:
    """Whether onnx's checker refuses the repaired original as well."""
    try:
        model, _ = onnx_io.inline_functions(source, lambda kind: True)
        onnx_io.check(onnx_io.emit(inference.lift(model)))
    except ModelError:
        return True
    return False


def _refusal(model: Model, dims: Dims) -> str:
    """The reason why ONNX Runtime refuses an invalid model; empty if it runs the model or fails for another reason."""
    try:
        source = _source(model)
        try:
            inputs = sample_inputs_for(source, dims)
        except Exception as error:  # inputs that ignore the graph
            raise_if_out_of_memory(error)
            inputs = SampleInputs.of(None, dims)
        return run_once(Runnable.of(source), inputs).refusal
    except Exception as error:
        raise_if_out_of_memory(error)
        return ""
