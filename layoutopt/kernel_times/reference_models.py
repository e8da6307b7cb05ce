"""Models whose times are compared with those of kernels: tiny ops for the overhead of a run, a reference for the speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from layoutopt.ir.types import Array
from layoutopt.kernel_times.random_arrays import small_numbers

TINY: Mapping[str, Array] = {"x": np.ones((1, 16, 1, 1), np.float32)}
TINY_SUM: Mapping[str, Array] = {**TINY, "z": TINY["x"]}


def chain_of_tiny_ops(length: int) -> bytes:
    """A model of `length` tiny ops, each on the result of the one before it."""
    names = ["x", *(f"v{number}" for number in range(1, length)), "y"]
    nodes = [helper.make_node(("Relu", "Neg")[at % 2], [names[at]], [names[at + 1]]) for at in range(length)]
    return _model(nodes, TINY["x"].shape)


def tiny_sum() -> bytes:
    """A model of one tiny op with two inputs."""
    return _model([helper.make_node("Add", ["x", "z"], ["y"])], TINY["x"].shape, inputs=("x", "z"))


@dataclass(frozen=True, slots=True)
class ReferenceKernel:
    """A MatMul between two Relus, of which every batch of kernels has some.

    Kernels are timed at different moments, between which a shared machine changes its speed. Times are scaled by the mean time
    of these kernels in the same batch.

    Attributes:
        number: its number in the batch.
    """

    NAME: ClassVar[str] = "reference: float 256x384, Relu, MatMul with constant float 384x384, Relu"
    is_optimised: ClassVar[bool] = True
    is_view: ClassVar[bool] = False
    _rows: ClassVar[int] = 256
    _columns: ClassVar[int] = 384

    number: int = 0

    @property
    def key(self) -> str:
        """The name with the number."""
        return f"{self.NAME} {self.number}"

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The ONNX model."""
        weights = small_numbers(generator, (self._columns, self._columns))
        nodes = [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("MatMul", ["a", "w"], ["b"]),
            helper.make_node("Relu", ["b"], ["y"]),
        ]
        shape = (self._rows, self._columns)
        return _model(nodes, shape, [numpy_helper.from_array(weights, "w")])

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of the model."""
        return {"x": small_numbers(generator, (self._rows, self._columns))}


def _model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: Sequence[onnx.TensorProto] = (),
    inputs: Sequence[str] = ("x",),
) -> bytes:
    """A model from its inputs to y, all of one shape."""
    *xs, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in (*inputs, "y"))
    graph = helper.make_graph(nodes, "reference", xs, [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


__all__ = ["TINY", "TINY_SUM", "ReferenceKernel", "chain_of_tiny_ops", "tiny_sum"]
