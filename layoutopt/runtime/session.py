"""Sessions of onnxruntime on the CPU, with inputs and outputs of every element type.

onnxruntime's own `run` refuses bfloat16, float8 and integers below a byte, or returns them as another type. `Session` accepts
and returns them as arrays of ml_dtypes, copied from and to the memory of OrtValues.
"""

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, process_time
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from layoutopt.runtime.custom_ops import session_options
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.type_names import type_proto
from layoutopt.runtime.utf8_paths import utf8_path

DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""The configuration entry for the folder of the external data of a model in bytes."""
MAX_BYTES_IN_MEMORY = 64_000_000
"""Bytes of weights above which a model is written to a temporary file, so that sessions can map its weights."""

EXTERNAL_WEIGHTS = {
    "session.optimized_model_external_initializers_file_name": "weights",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}
"""The configuration entries with which a saved model has its constants above 1 KiB in the file `weights` next to it."""
REORDERS = frozenset(["Transpose", "ReorderInput", "ReorderOutput"])
"""Ops of onnxruntime that only change the format of a tensor."""

TRACED_RUN = "model_run"
"""The name of the trace event of a whole run."""

_WALL_FACTOR = 10
_SHORTEST_WAIT = 0.01  # seconds
_NOT_IN_NUMPY = tuple(f"tensor({name}" for name in ("bfloat", "float4", "float8", "int2", "int4", "uint2", "uint4"))


def inference_session(
    model: bytes | str,
    *,
    is_optimised: bool = True,
    threads: int | None = 1,
    disabled: Sequence[str] = (),
    saved: Path | None = None,
    config: Mapping[str, str] = MappingProxyType({}),
    trace: Path | None = None,
    has_arena: bool = True,
) -> onnxruntime.InferenceSession:
    """A session of onnxruntime itself, on the CPU and without log messages.

    Args:
        model: the model, as bytes or a path.
        is_optimised: whether onnxruntime optimises the model at its default level; if not, every op runs unchanged.
        threads: the number of threads per op; None for onnxruntime's default.
        disabled: names of optimisers to disable.
        saved: the file to which onnxruntime writes the optimised model.
        config: further entries of the session's configuration.
        trace: the prefix of the file to which onnxruntime writes a trace of all runs; None for no trace.
        has_arena: whether memory that a run frees is kept for the next one; if not, a session takes less memory.
    """
    options = session_options()
    options.enable_cpu_mem_arena = options.enable_mem_pattern = has_arena
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
    if trace is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled)
    )


def is_kernel_event(event: Mapping[str, Any]) -> bool:
    """Whether an event of a trace is one execution of an op."""
    return event.get("cat") == "Node" and str(event["name"]).endswith("_kernel_time")


class Session:
    """A model in stock onnxruntime, on the CPU.

    Args:
        model: the model, as bytes or a file.
        threads: the number of threads per op; None for onnxruntime's default.
        folder: the folder of the external data of a model in bytes.
        prepacks: whether kernels may keep packed copies of weights.
        polls: whether idle threads poll for work, as by default: that takes a fifth of the processor time of a verification.
        trace: the prefix of the file to which onnxruntime writes a trace of the first run that succeeds; None for no trace.
        options: further arguments of `inference_session`.
    """

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        *,
        threads: int | None = None,
        folder: os.PathLike[str] | None = None,
        prepacks: bool = True,
        polls: bool = False,
        trace: Path | None = None,
        **options: Any,
    ) -> None:
        config = {
            "session.intra_op.allow_spinning": "1" if polls else "0",
            "session.disable_prepacking": "0" if prepacks else "1",
        }
        with utf8_path(model) as source, utf8_path(folder or ".") as data:
            if folder is not None:
                config[DATA_FOLDER] = data
            self._session = inference_session(source, threads=threads, config=config, trace=trace, **options)
        self._types = {each.name: each.type for each in (*self.get_inputs(), *self.get_outputs())}
        self._is_traced = trace is not None

    def get_inputs(self) -> Sequence[Any]:
        """Name, type and shape of every input without an initializer."""
        return list(self._session.get_inputs())

    def get_outputs(self) -> Sequence[Any]:
        """Name, type and shape of every output."""
        return list(self._session.get_outputs())

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], seconds: float | None = None) -> list[Any]:
        """The outputs: arrays, lists for sequences, dicts for maps, None for an empty optional.

        Args:
            names: of the outputs; None for all.
            feeds: the inputs by name.
            seconds: the limit of the processor time of this process during the run; ten times as much wall time ends it, too.

        Raises:
            TimeoutError: the run exceeds the time limit.
        """
        names = [each.name for each in self.get_outputs()] if names is None else names
        given = {name: np.asarray(value) if np.isscalar(value) else value for name, value in feeds.items()}
        with _limited(seconds) as options:
            outputs = self._run(names, given, options)
        if self._is_traced:
            self._session.end_profiling()
            self._is_traced = False
        return outputs

    def run_all(
        self, names: Sequence[str] | None, feeds: Sequence[Mapping[str, Any]], seconds: float | None = None
    ) -> list[list[Any]]:
        """The outputs for each of several feeds, as of `run`."""
        return [self.run(names, feed, seconds) for feed in feeds]

    def _run(self, names: Sequence[str], given: Mapping[str, Any], options: Any) -> list[Any]:
        if not any(needs_ort_value(self._types.get(name, "")) for name in (*names, *given)):
            return list(self._session.run(names, given, options))
        values = {name: _value(value, self._types[name]) for name, value in given.items()}
        return [_array(value) for value in self._session.run_with_ort_values(names, values, options)]


def load_failure(model: bytes | str | os.PathLike[str], *, is_optimised: bool = True, saved: Path | None = None) -> str:
    """The error of loading a model, and with `saved` of writing the loaded model, in one line; empty if there is none."""
    try:
        Session(model, is_optimised=is_optimised, threads=1, saved=saved)
    except Exception as error:  # onnxruntime's exceptions have no common base
        return load_error(error)
    return ""


def load_error(error: Exception) -> str:
    """The message of an exception of onnxruntime without its prefix `[ONNXRuntimeError] : 9 : NAME : `.

    Raises:
        OutOfMemoryError: the exception reports too little memory.
    """
    raise_if_out_of_memory(error)
    text = str(error)
    return error_message(error, text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text)


@contextmanager
def _limited(seconds: float | None) -> Iterator[Any]:
    """The options of a run that onnxruntime terminates after the given seconds."""
    if seconds is None:
        yield None
        return
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    expired, ended = threading.Event(), threading.Event()
    begin, last = process_time(), monotonic() + _WALL_FACTOR * seconds

    def expire() -> None:
        remaining = seconds
        while remaining > 0 and monotonic() < last:
            if ended.wait(max(remaining, _SHORTEST_WAIT)):
                return
            remaining = seconds - (process_time() - begin)
        expired.set()
        options.terminate = True

    threading.Thread(target=expire, daemon=True).start()
    try:
        yield options
    except Exception as error:  # onnxruntime's exceptions have no common base
        if expired.is_set():
            raise TimeoutError(
                f"it did not finish within {seconds:.0f} s of processor time, or {_WALL_FACTOR * seconds:.0f} s in all"
            ) from error
        raise
    finally:
        ended.set()


def needs_ort_value(type: str) -> bool:
    """Whether onnxruntime accepts and returns tensors of a type, such as `tensor(bfloat16)`, only as OrtValues."""
    return type.startswith(_NOT_IN_NUMPY)


def _value(array: Any, type: str) -> Any:
    """The OrtValue of an array."""
    if not needs_ort_value(type):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)))
    if tensor.data_type != type_proto(type).tensor_type.elem_type:
        raise ValueError(f"the input is {type}, the array {array.dtype}")
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(tensor.dims), tensor.data_type)
    ctypes.memmove(value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return value


def _array(value: Any) -> Any:
    """The array of an OrtValue."""
    type = value.data_type()
    if not needs_ort_value(type):
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    element = type_proto(type).tensor_type.elem_type
    return numpy_helper.to_array(onnx.TensorProto(dims=value.shape(), data_type=element, raw_data=raw))
