"""Runs a planned graph in PyTorch: every tensor has the strides of its planned format.

A tensor keeps its logical shape; NHWC is `torch.channels_last`, and any other plain format is a permutation of strides as well.
So ops are called as usual, and PyTorch selects its kernels by the strides. A result with other strides than planned is copied
into the planned strides and counted: PyTorch then has no kernel with this signature.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  -- its usual name

from layoutopt.formats import Format
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value

Run: TypeAlias = Callable[[Op, list[Tensor | None]], Tensor]


class UnsupportedError(Exception):
    """The graph has an op or a format that PyTorch cannot run here."""


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
            operands = [None if value is None else known[value] for value in op.inputs]
            y = op.outputs[0]
            assert y is not None
            result = operands[0] if is_cast(op) else RUNS[op.kind](op, operands)
            assert result is not None
            is_as_planned = y.storage is None or is_in(result, y.storage.format)
            self.restrided += not is_as_planned and not is_cast(op)
            known[y] = result if is_as_planned or y.storage is None else stored_in(result, y.storage.format)
        return [known[value] for value in self.graph.outputs]

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


def _padded(op: Op, x: Tensor, window: list[int], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """The padded input and the pads of the kernel; asymmetric pads, which kernels do not accept, are added to the input."""
    rank = len(window)
    pads = op.integers("pads") or (0,) * (2 * rank)
    if op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnsupportedError(f"{op.name}: auto_pad")
    begins, ends = list(pads[:rank]), list(pads[rank:])
    if begins == ends:
        return x, begins
    flat = [number for pair in zip(reversed(begins), reversed(ends), strict=True) for number in pair]
    return F.pad(x, flat, value=value), [0] * rank


def _conv(op: Op, operands: list[Tensor | None]) -> Tensor:
    x, w, *rest = operands
    assert x is not None and w is not None
    rank = x.dim() - 2
    x, pads = _padded(op, x, list(w.shape[2:]))
    call: Any = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    strides, dilations = op.integers("strides") or (1,) * rank, op.integers("dilations") or (1,) * rank
    return call(x, w, rest[0] if rest else None, strides, tuple(pads), dilations, op.integer("group", 1))  # type: ignore[no-any-return]


def _pool(op: Op, operands: list[Tensor | None]) -> Tensor:
    (x, *_) = operands
    assert x is not None
    kernel = list(op.integers("kernel_shape") or ())
    strides = op.integers("strides") or (1,) * len(kernel)
    if op.integer("ceil_mode", 0):
        raise UnsupportedError(f"{op.name}: ceil_mode")
    if op.kind == "MaxPool":
        x, pads = _padded(op, x, kernel, float("-inf"))
        return F.max_pool2d(x, kernel, strides, pads)
    x, pads = _padded(op, x, kernel)
    return F.avg_pool2d(x, kernel, strides, pads, count_include_pad=bool(op.integer("count_include_pad", 0)))


def _batch_norm(op: Op, operands: list[Tensor | None]) -> Tensor:
    x, scale, bias, mean, variance = operands
    assert x is not None
    return F.batch_norm(x, mean, variance, scale, bias, eps=float(op.attributes.get("epsilon", 1e-5)))


def _reshape(op: Op, operands: list[Tensor | None]) -> Tensor:
    x, y = operands[0], op.outputs[0]
    assert x is not None and y is not None
    if y.static_shape is None:
        raise UnsupportedError(f"{op.name}: a shape that is computed")
    return x.reshape(y.static_shape)


def _gemm(op: Op, operands: list[Tensor | None]) -> Tensor:
    a, b, *rest = operands
    assert a is not None and b is not None
    a, b = (a.T if op.integer("transA", 0) else a), (b.T if op.integer("transB", 0) else b)
    y = float(op.attributes.get("alpha", 1.0)) * (a @ b)
    return y if not rest or rest[0] is None else y + float(op.attributes.get("beta", 1.0)) * rest[0]


def _clip(op: Op, operands: list[Tensor | None]) -> Tensor:
    x, low, high = (*operands, None, None)[:3]
    assert x is not None
    least, most = op.attributes.get("min"), op.attributes.get("max")
    return torch.clamp(
        x,
        low.item() if low is not None else least,
        high.item() if high is not None else most,  # type: ignore[arg-type]
    )


def _mean(op: Op, operands: list[Tensor | None]) -> Tensor:
    x = operands[0]
    assert x is not None
    axes = tuple(range(2, x.dim())) if op.kind == "GlobalAveragePool" else op.integers("axes")
    if not axes and len(operands) > 1 and operands[1] is not None:
        axes = tuple(int(axis) for axis in operands[1].tolist())
    return x.mean(axes or None, keepdim=bool(op.integer("keepdims", 1)))


def _hard_sigmoid(op: Op, operands: list[Tensor | None]) -> Tensor:
    (x,) = operands
    assert x is not None
    return torch.clamp(x * float(op.attributes.get("alpha", 0.2)) + float(op.attributes.get("beta", 0.5)), 0.0, 1.0)


def _concat(op: Op, operands: list[Tensor | None]) -> Tensor:
    return torch.cat([each for each in operands if each is not None], dim=op.integer("axis", 0))


def _softmax(op: Op, operands: list[Tensor | None]) -> Tensor:
    x = operands[0]
    assert x is not None
    if op.version >= 13:
        return F.softmax(x, dim=op.integer("axis", -1))
    flat = x.flatten(start_dim=op.integer("axis", 1))  # before, all axes from this one on were one
    return F.softmax(flat, dim=-1).reshape(x.shape)


def _elementwise(call: Callable[..., Tensor]) -> Run:
    return lambda op, operands: call(*operands)


RUNS: dict[str, Run] = {
    "Add": _elementwise(torch.add),
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _elementwise(torch.div),
    "Dropout": lambda op, operands: operands[0],  # type: ignore[dict-item,return-value]
    "Erf": _elementwise(torch.erf),
    "Flatten": _reshape,
    "Gemm": _gemm,
    "GlobalAveragePool": _mean,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _elementwise(F.hardswish),
    "MatMul": _elementwise(torch.matmul),
    "MaxPool": _pool,
    "Mul": _elementwise(torch.mul),
    "ReduceMean": _mean,
    "Relu": _elementwise(F.relu),
    "Reshape": _reshape,
    "Sigmoid": _elementwise(torch.sigmoid),
    "Softmax": _softmax,
    "Sqrt": _elementwise(torch.sqrt),
    "Squeeze": _reshape,
    "Sub": _elementwise(torch.sub),
    "Sum": lambda op, operands: functools.reduce(torch.add, operands),  # type: ignore[arg-type]
    "Tanh": _elementwise(torch.tanh),
    "Transpose": lambda op, operands: operands[0].permute(
        op.integers("perm") or tuple(reversed(range(operands[0].dim())))
    ),  # type: ignore[union-attr]
    "Unsqueeze": _reshape,
}

__all__ = ["TorchGraph", "UnsupportedError", "is_in", "stored_in"]
