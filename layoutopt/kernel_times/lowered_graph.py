"""A lowered graph as a model to time: one kernel, or several that compute the same as one."""

from functools import cached_property
from hashlib import sha256

import numpy as np

from layoutopt import onnx_io
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, TensorType, Value
from layoutopt.kernel_times.random_arrays import random_inputs
from layoutopt.version import VERSION


class LoweredGraph:
    """A lowered graph with float32 inputs of known extents.

    Args:
        graph: the graph.
    """

    is_optimised = True
    is_view = False

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def key(self) -> str:
        """The number of ops, the inputs, and a digest of all ops, without the elements of constants."""
        numbers = {value: number for number, value in enumerate(self._graph.values)}
        lines = []
        for op in self._graph.ops:
            operands = [_text(each, numbers) for each in (*op.inputs, *op.outputs)]
            fields = sorted(f"{name}={value}" for name, value in op.attributes.items())
            lines.append(f"{op.kind}-{op.version} {operands} {fields}")
        digest = sha256("\n".join(lines).encode()).hexdigest()[:16]
        inputs = ", ".join(str(each.type) for each in self._graph.inputs)
        return f"layoutopt {VERSION}: {len(lines)} lowered ops ({inputs}) {digest}"

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The ONNX model."""
        del generator  # constants have their elements
        return onnx_io.to_bytes(onnx_io.emit(self._graph))

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs.

        Raises:
            TypeError: an input is not float32.
        """
        return random_inputs(generator, self._graph.inputs)


def _text(value: Value | None, numbers: dict[Value, int]) -> str:
    if value is None:
        return "-"
    type = str(value.type) if isinstance(value.type, TensorType) else "?"
    return f"{'constant ' if value.is_constant else ''}{numbers[value]}: {type}"


__all__ = ["LoweredGraph"]
