"""Adds Reshapes and Transposes to lowered graphs, under names derived from those of their inputs."""

from collections.abc import Sequence

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value


def add_reshape(graph: Graph, x: Value, shape: tuple[int, ...], near: Op | None) -> Value:
    """Add a Reshape of `x` to `shape` right behind the op `near`; returns its output."""
    assert isinstance(x.type, TensorType)
    target = graph.new_constant(np.asarray(shape, dtype=np.int64), f"{x.name}/shape")
    return graph.new_result("Reshape", (x, target), TensorType(x.type.dtype, shape), f"{x.name}/reshaped", near)


def add_transpose(graph: Graph, x: Value, perm: Sequence[int], near: Op | None) -> Value:
    """Add a Transpose of `x` right behind the op `near`; returns its output."""
    assert isinstance(x.type, TensorType) and x.shape is not None
    type = TensorType(x.type.dtype, tuple(x.shape[axis] for axis in perm))
    return graph.new_result("Transpose", (x,), type, f"{x.name}/transposed", near, attributes={"perm": tuple(perm)})


__all__ = ["add_reshape", "add_transpose"]
