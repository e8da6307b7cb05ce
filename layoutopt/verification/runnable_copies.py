"""Models in memory as models that onnxruntime can load, with one copy on disk of each model that is large."""

from pathlib import Path

import onnx_ir

from layoutopt import onnx_io
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.runtime.session import MAX_BYTES_IN_MEMORY
from layoutopt.verification.runnable import Runnable


def as_runnable(model: onnx_ir.Model, path: Path, has_float16: bool) -> Runnable:
    """A model as bytes, or as a file whose weights can be mapped if they exceed `MAX_BYTES_IN_MEMORY`."""
    if weight_bytes(model) <= MAX_BYTES_IN_MEMORY:
        return Runnable.of(onnx_io.to_bytes(model), has_float16)
    onnx_io.write(model, path, external_data=f"{path.name}.data")
    return Runnable.of(str(path), has_float16)


class RunnableCopies:
    """The models of one rewrite as Runnables, each of which is serialised once.

    Args:
        folder: the folder for the files of large models, which has to exist as long as the Runnables are used.
        has_float16: whether a tensor of the models has the type float16.
    """

    def __init__(self, folder: Path, has_float16: bool) -> None:
        self._folder, self._has_float16 = folder, has_float16
        self._copies: dict[int, tuple[onnx_ir.Model, Runnable]] = {}  # by `id`: models are not hashable by content
        self._num_files = 0

    def of(self, model: onnx_ir.Model) -> Runnable:
        """A model as a Runnable; if it changes afterwards, `forget` it."""
        if id(model) not in self._copies:
            self._num_files += 1
            path = self._folder / f"copy{self._num_files}.onnx"
            self._copies[id(model)] = (model, as_runnable(model, path, self._has_float16))
        return self._copies[id(model)][1]

    def forget(self, model: onnx_ir.Model) -> None:
        """Forget the copy of a model that has changed."""
        self._copies.pop(id(model), None)


__all__ = ["RunnableCopies", "as_runnable"]
