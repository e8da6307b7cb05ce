"""Runs a planned graph in PyTorch: every tensor has the strides of its planned format.

A tensor keeps its logical shape; NHWC is `torch.channels_last`, and any other plain format is a permutation of strides as well.
So ops are called as usual, and PyTorch selects its kernels by the strides. A result with other strides than planned is copied
into the planned strides and counted: PyTorch then has no kernel with this signature.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch_ops import RUNS, UnsupportedError

from layoutopt.formats import Format
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Value


class TorchGraph:
    """A planned graph on a device.

    Args:
        graph: with signatures and casts, all of whose formats are plain.
        device: of PyTorch, `cuda` for example.

    Attributes:
        restrided: the number of results of the last run whose strides were not those of the plan.
    """

    def __init__(self, graph: Graph, device: str) -> None:
        self.graph = graph
        self.device = device
        self.restrided = 0
        self.constants = {}
        for value in graph.values:
            if value.storage is not None and not value.storage.format.is_plain:
                raise UnsupportedError(
                    f"{value.name} is stored as {value.storage.format}, and PyTorch has strides only"
                )
            if value.data is not None:
                self.constants[value] = self._put(value, value.data.numpy())
        unknown = sorted({op.kind for op in graph.ops if not is_cast(op) and op.kind not in RUNS})
        if unknown:
            raise UnsupportedError(f"no way to run {', '.join(unknown)}")

    def inputs(self, feed: Mapping[str, np.ndarray]) -> dict[Value, Tensor]:
        """The graph's inputs on the device, in their formats."""
        return {value: self._put(value, feed[value.tensor]) for value in self.graph.inputs}

    def run(self, inputs: Mapping[Value, Tensor]) -> list[Tensor]:
        """The graph's outputs."""
        self.restrided = 0
        known = {**self.constants, **inputs}
        for op in self.graph.ops:
            known.update(zip(op.outputs, self.call(op, known), strict=False))  # the mask of a Dropout is not computed
        return [known[value] for value in self.graph.outputs]

    def call(self, op: Op, known: Mapping[Value, Tensor]) -> list[Tensor]:
        """The results of an op, with the strides of their planned formats."""
        operands = [None if value is None else known[value] for value in op.inputs]
        found = operands[0] if is_cast(op) else RUNS[op.kind](op, operands)
        assert found is not None
        results = []
        for y, result in zip(op.outputs, [found] if isinstance(found, Tensor) else found, strict=False):
            assert y is not None
            is_as_planned = y.storage is None or is_in(result, y.storage.format)
            self.restrided += not is_as_planned and not is_cast(op)
            results.append(result if is_as_planned or y.storage is None else stored_in(result, y.storage.format))
        return results

    def _put(self, value: Value, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.array(array)).to(self.device)
        return tensor if value.storage is None else stored_in(tensor, value.storage.format)


def stored_in(tensor: Tensor, format: Format) -> Tensor:
    """The tensor with the strides of a plain format."""
    order = format.order
    return tensor.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])


def is_in(tensor: Tensor, format: Format) -> bool:
    """Whether a tensor is stored in a plain format; strides of axes with one element are ignored."""
    step = 1
    for axis in reversed(format.order):
        if tensor.shape[axis] != 1 and tensor.stride(axis) != step:
            return False
        step *= tensor.shape[axis]
    return True


__all__ = ["TorchGraph", "UnsupportedError", "is_in", "stored_in"]
