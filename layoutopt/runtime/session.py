"""A session of onnxruntime that takes and gives every type of tensor, also those that numpy has no name for.

onnxruntime's own `run` refuses bfloat16, float8 and integers below a byte, or hands them out as something else. Here
they are arrays of ml_dtypes, which go in and out through the memory of onnxruntime's values.
"""

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from layoutopt.runtime.type_names import named_type
from layoutopt.runtime.utf8_path import utf8_folder, utf8_path

_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
_FOREIGN = tuple(f"tensor({name}" for name in ("bfloat", "float4", "float8", "int2", "int4", "uint2", "uint4"))


class Session:
    """A model in stock onnxruntime, on the processor.

    Args:
        model: the model, as bytes or a file.
        optimised: whether onnxruntime rewrites it as it does by default; if not, ops run one by one as they are.
        threads: how many an op may use; None for onnxruntime's own choice.
        without: names of its rewriting steps to leave out.
        folder: where the external data of a model in bytes is.
        prepacks: whether kernels may keep packed copies of weights.
    """

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        *,
        optimised: bool = True,
        threads: int | None = None,
        without: Sequence[str] = (),
        folder: os.PathLike[str] | None = None,
        prepacks: bool = True,
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Idle threads of a pool poll for work, which takes a fifth of the processor time of a verification.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if threads is not None:
            options.intra_op_num_threads = threads
        if not prepacks:
            options.add_session_config_entry("session.disable_prepacking", "1")
        with (
            nullcontext(model) if isinstance(model, bytes) else utf8_path(model) as source,
            utf8_folder(folder or ".") as data,
        ):
            if folder is not None:
                options.add_session_config_entry(_DATA_FOLDER, data)
            self._session = onnxruntime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(without)
            )
        self._types = {each.name: each.type for each in (*self.get_inputs(), *self.get_outputs())}

    def get_inputs(self) -> Sequence[Any]:
        """Name, type and shape of every input that has no value of its own."""
        return list(self._session.get_inputs())

    def get_outputs(self) -> Sequence[Any]:
        """Name, type and shape of every output."""
        return list(self._session.get_outputs())

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], seconds: float | None = None) -> list[Any]:
        """The outputs of these names, or all: arrays, lists for sequences, dicts for maps, None for an empty optional.

        Args:
            names: of outputs.
            feeds: the inputs.
            seconds: how long it may take at most.

        Raises:
            TimeoutError: it takes longer.
        """
        names = [each.name for each in self.get_outputs()] if names is None else names
        given = {name: np.asarray(value) if np.isscalar(value) else value for name, value in feeds.items()}
        with _limited(seconds) as options:
            if not any(is_foreign(self._types.get(name, "")) for name in (*names, *given)):
                return list(self._session.run(names, given, options))
            values = {name: _value(value, self._types[name]) for name, value in given.items()}
            return [_array(value) for value in self._session.run_with_ort_values(names, values, options)]


@contextmanager
def _limited(seconds: float | None) -> Iterator[Any]:
    """The options of a run that onnxruntime gives up after some seconds."""
    if seconds is None:
        yield None
        return
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        options.terminate = True

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield options
    except Exception as error:  # onnxruntime's exceptions have no common base
        if expired.is_set():
            raise TimeoutError(f"it did not finish within {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()


def is_foreign(type: str) -> bool:
    """Whether onnxruntime takes and gives tensors of a type, `tensor(bfloat16)`, only as values of its own."""
    return type.startswith(_FOREIGN)


def _value(array: Any, type: str) -> Any:
    """The value of onnxruntime for an array."""
    if not is_foreign(type):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)))
    if tensor.data_type != named_type(type).tensor_type.elem_type:
        raise ValueError(f"the input is {type}, the array {array.dtype}")
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(tensor.dims), tensor.data_type)
    ctypes.memmove(value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return value


def _array(value: Any) -> Any:
    """The array for a value of onnxruntime."""
    type = value.data_type()
    if not is_foreign(type):
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    element = named_type(type).tensor_type.elem_type
    return numpy_helper.to_array(onnx.TensorProto(dims=value.shape(), data_type=element, raw_data=raw))
