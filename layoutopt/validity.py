"""Judgement of a model by ONNX Runtime: whether it can be run, and whether an exception of layoutopt is the model's fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.errors import FormatError, InvariantError, LayoutoptError, ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.runtime_errors import is_about_the_model, raise_if_out_of_memory
from layoutopt.sample_inputs import inputs_for
from layoutopt.sizes import Dims
from layoutopt.verification import Verification, verify_models
from layoutopt.verification.runnable import Source
from layoutopt.verification.verify import Request

_HINT = "export the model again"


def run_alone(model: onnx_ir.Model, path: str | None, dims: Dims) -> Verification:
    """Run a model against itself; "not verified" with the reason if ONNX Runtime cannot run it.

    Args:
        model: the model.
        path: the file that it was read from, if it was a file.
        dims: sizes of symbolic dimensions to try.
    """
    if path is not None:
        return _against_itself(path, dims)
    if sum(tensor.nbytes for _, tensor in onnx_io.weights(model)) <= onnx_io.IN_ONE_FILE:
        return _against_itself(onnx_io.to_bytes(model), dims)
    with scratch_folder() as folder:
        file = folder / "original.onnx"
        onnx_io.write(model, file)
        return _against_itself(file, dims)


def _against_itself(source: Source, dims: Dims) -> Verification:
    verdict = verify_models(source, source, request=Request(inputs=inputs_for(source, dims), lazy=True))
    # A model of random numbers differs from itself, and runs.
    return verdict if verdict.status == "not verified" else Verification("passed", sizes=verdict.sizes)


@contextmanager
def blamed_on(model: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model, dims: Dims) -> Iterator[None]:
    """Turn an exception into a ModelError if ONNX Runtime refuses the model, too, because the model is invalid.

    The standard has rules that neither onnx's checker nor its inference looks at, such as the channels of a DepthToSpace. Where
    the runtime accepts the model, or refuses it for another reason, the exception is a bug of layoutopt and goes on.

    Raises:
        ModelError: the model is invalid.
        MemoryError: there is too little memory, whatever the exception was.
    """
    try:
        yield
    except Exception as error:
        raise_if_out_of_memory(error)
        is_deliberate = isinstance(error, LayoutoptError) and not isinstance(error, FormatError | InvariantError)
        if is_deliberate or isinstance(error, OSError):
            raise
        reason = _refusal(model, dims)
        if not reason:
            raise
        name = str(model) if isinstance(model, str | PathLike) else "model"
        raise ModelError(reason, where=name, hint=_HINT) from error


def _refusal(model: str | PathLike[str] | onnx.ModelProto | onnx_ir.Model, dims: Dims) -> str:
    """Why ONNX Runtime refuses a model that is invalid; nothing if it runs, or cannot be judged."""
    try:
        if isinstance(model, onnx_ir.Model):
            verdict = run_alone(model, None, dims)
        else:
            source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
            verdict = verify_models(source, source, request=Request(inputs=inputs_for(source, dims), lazy=True))
    except Exception as error:
        raise_if_out_of_memory(error)
        return ""
    is_invalid = verdict.status == "not verified" and is_about_the_model(verdict.reason)
    return verdict.reason.removeprefix("the original ") if is_invalid else ""
