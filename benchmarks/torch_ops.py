"""ONNX operators as calls of PyTorch, on tensors of any strides; `torch_graph` runs planned graphs with them.

Operands that determine shapes (axes, pads, indices of slices) are read from the constants of the graph, not from the device, so
that a run has no synchronisation and can be captured into a CUDA graph.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  -- its usual name

from layoutopt.ir.types import Op

Operands: TypeAlias = list[Tensor | None]
Run: TypeAlias = Callable[[Op, Operands], Tensor | Sequence[Tensor]]


class UnsupportedError(Exception):
    """The graph has an op or a format that PyTorch cannot run here."""


def _given(op: Op, index: int) -> list[int] | None:
    """The numbers of a constant operand; None if it is missing."""
    value = op.inputs[index] if index < len(op.inputs) else None
    if value is None:
        return None
    if value.data is None:
        raise UnsupportedError(f"{op.name}: operand {index} is computed")
    return list(value.data.numpy().reshape(-1).tolist())


def _shape(op: Op) -> tuple[int, ...]:
    """The shape of the result."""
    y = op.outputs[0]
    if y is None or y.static_shape is None:
        raise UnsupportedError(f"{op.name}: a shape that is computed")
    return tuple(y.static_shape)


def _padded(op: Op, x: Tensor, window: list[int], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """The padded input and the pads of the kernel; asymmetric pads, which kernels do not accept, are added to the input."""
    rank = len(window)
    pads = op.integers("pads") or (0,) * (2 * rank)
    if op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnsupportedError(f"{op.name}: auto_pad")
    begins, ends = list(pads[:rank]), list(pads[rank:])
    if begins == ends:
        return x, begins
    return F.pad(x, _flat_pads(begins, ends), value=value), [0] * rank


def _flat_pads(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Pads in the order of PyTorch: both of the last axis first."""
    return [number for pair in zip(reversed(begins), reversed(ends), strict=True) for number in pair]


def _conv(op: Op, operands: Operands) -> Tensor:
    x, w, *rest = operands
    assert x is not None and w is not None
    rank = x.dim() - 2
    x, pads = _padded(op, x, list(w.shape[2:]))
    call: Any = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    strides, dilations = op.integers("strides") or (1,) * rank, op.integers("dilations") or (1,) * rank
    return call(x, w, rest[0] if rest else None, strides, tuple(pads), dilations, op.integer("group", 1))  # type: ignore[no-any-return]


def _conv_transpose(op: Op, operands: Operands) -> Tensor:
    x, w, *rest = operands
    assert x is not None and w is not None
    rank = x.dim() - 2
    pads, more = op.integers("pads") or (0,) * (2 * rank), op.integers("output_padding") or (0,) * rank
    if op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or pads[:rank] != pads[rank:]:
        raise UnsupportedError(f"{op.name}: pads")
    call: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    strides, dilations = op.integers("strides") or (1,) * rank, op.integers("dilations") or (1,) * rank
    y: Tensor = call(x, w, rest[0] if rest else None, strides, pads[:rank], more, op.integer("group", 1), dilations)
    if tuple(y.shape) != _shape(op):
        raise UnsupportedError(f"{op.name}: output_shape")
    return y


def _pool(op: Op, operands: Operands) -> Tensor:
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


def _batch_norm(op: Op, operands: Operands) -> Tensor:
    x, scale, bias, mean, variance = operands
    assert x is not None
    return F.batch_norm(x, mean, variance, scale, bias, eps=float(op.attributes.get("epsilon", 1e-5)))


def _instance_norm(op: Op, operands: Operands) -> Tensor:
    x, scale, bias = operands
    assert x is not None
    return F.instance_norm(x, weight=scale, bias=bias, eps=float(op.attributes.get("epsilon", 1e-5)))


def _group_norm(op: Op, operands: Operands) -> Tensor:
    x, scale, bias = operands
    assert x is not None and scale is not None
    if scale.numel() != x.shape[1]:
        raise UnsupportedError(f"{op.name}: parameters per group")
    return F.group_norm(x, op.integer("num_groups"), scale, bias, float(op.attributes.get("epsilon", 1e-5)))


def _layer_norm(op: Op, operands: Operands) -> Tensor:
    x, scale, bias = (*operands, None)[:3]
    assert x is not None
    axis = op.integer("axis", -1) % x.dim()
    return F.layer_norm(x, x.shape[axis:], scale, bias, float(op.attributes.get("epsilon", 1e-5)))


def _reshape(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    return x.reshape(_shape(op))


def _gemm(op: Op, operands: Operands) -> Tensor:
    a, b, *rest = operands
    assert a is not None and b is not None
    a, b = (a.T if op.integer("transA", 0) else a), (b.T if op.integer("transB", 0) else b)
    alpha, beta = float(op.attributes.get("alpha", 1.0)), float(op.attributes.get("beta", 1.0))
    if rest and rest[0] is not None:
        return torch.addmm(rest[0], a, b, beta=beta, alpha=alpha)
    y = a @ b
    return y if alpha == 1.0 else alpha * y


def _clip(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    if op.version < 11:
        least, most = op.attributes.get("min"), op.attributes.get("max")
    else:
        least, most = ((_given(op, index) or [None])[0] for index in (1, 2))
    return torch.clamp(x, least, most)  # type: ignore[arg-type]


def _axes(op: Op, rank: int) -> tuple[int, ...]:
    """The axes of a reduction; all without any."""
    axes = op.integers("axes") or _given(op, 1)
    return tuple(axis % rank for axis in axes) if axes else tuple(range(rank))


def _reduce(call: Callable[..., Tensor]) -> Run:
    def run(op: Op, operands: Operands) -> Tensor:
        x = operands[0]
        assert x is not None
        axes = tuple(range(2, x.dim())) if op.kind == "GlobalAveragePool" else _axes(op, x.dim())
        return call(x, dim=axes, keepdim=bool(op.integer("keepdims", 1)))

    return run


def _hard_sigmoid(op: Op, operands: Operands) -> Tensor:
    (x,) = operands
    assert x is not None
    return torch.clamp(x * float(op.attributes.get("alpha", 0.2)) + float(op.attributes.get("beta", 0.5)), 0.0, 1.0)


def _leaky_relu(op: Op, operands: Operands) -> Tensor:
    (x,) = operands
    assert x is not None
    return F.leaky_relu(x, float(op.attributes.get("alpha", 0.01)))


def _concat(op: Op, operands: Operands) -> Tensor:
    return torch.cat([each for each in operands if each is not None], dim=op.integer("axis", 0))


def _split(op: Op, operands: Operands) -> Sequence[Tensor]:
    x = operands[0]
    assert x is not None
    axis = op.integer("axis", 0)
    sizes = [y.static_shape[axis] for y in op.outputs if y is not None and y.static_shape is not None]
    if len(sizes) != len(op.outputs):
        raise UnsupportedError(f"{op.name}: sizes that are computed")
    return torch.split(x, sizes, dim=axis)


def _slice(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    starts, ends, axes, steps = (_given(op, index) for index in (1, 2, 3, 4))
    assert starts is not None and ends is not None
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = (axes[index] if axes else index), (steps[index] if steps else 1)
        extent = x.shape[axis]
        if step < 0:
            raise UnsupportedError(f"{op.name}: a negative step")
        begin, stop, _ = slice(start, end, step).indices(extent)
        x = x[(*[slice(None)] * (axis % x.dim()), slice(begin, max(begin, stop), step))]
    return x


def _pad(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    pads = op.integers("pads") or _given(op, 1)
    if op.attributes.get("mode", "constant") != "constant" or pads is None or (len(op.inputs) > 3 and op.inputs[3]):
        raise UnsupportedError(f"{op.name}: its mode, or axes")
    value = (_given(op, 2) or [0.0])[0] if op.version >= 11 else float(op.attributes.get("value", 0.0))
    return F.pad(x, _flat_pads(pads[: x.dim()], pads[x.dim() :]), value=value)


def _resize(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    way = op.attributes.get("coordinate_transformation_mode", "half_pixel")
    mode, size = op.attributes.get("mode", "nearest"), _shape(op)[2:]
    if mode == "nearest" and all(new % old == 0 for new, old in zip(size, x.shape[2:], strict=True)):
        return F.interpolate(x, size, mode="nearest")
    if mode == "linear" and x.dim() == 4 and way in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return F.interpolate(x, size, mode="bilinear", align_corners=way == "align_corners")
    raise UnsupportedError(f"{op.name}: {mode}, {way}")


def _gather(op: Op, operands: Operands) -> Tensor:
    x, indices = operands
    assert x is not None and indices is not None
    axis = op.integer("axis", 0) % x.dim()
    found = torch.index_select(x, axis, indices.reshape(-1) % x.shape[axis])
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _softmax(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    if op.version >= 13:
        return F.softmax(x, dim=op.integer("axis", -1))
    flat = x.flatten(start_dim=op.integer("axis", 1))  # before, all axes from this one on were one
    return F.softmax(flat, dim=-1).reshape(x.shape)


def _transpose(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    return x.permute(op.integers("perm") or tuple(reversed(range(x.dim()))))


def _expand(op: Op, operands: Operands) -> Tensor:
    x = operands[0]
    assert x is not None
    return x.expand(_shape(op))


def _cast(op: Op, operands: Operands) -> Tensor:
    x, y = operands[0], op.outputs[0]
    assert x is not None and y is not None
    return x.to(torch.from_numpy(np.zeros(0, y.dtype.numpy)).dtype)


def _elementwise(call: Callable[..., Tensor]) -> Run:
    return lambda op, operands: call(*operands)


RUNS: dict[str, Run] = {
    "Add": _elementwise(torch.add),
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _elementwise(torch.div),
    "Dropout": lambda op, operands: operands[0],  # type: ignore[dict-item,return-value]
    "Erf": _elementwise(torch.erf),
    "Exp": _elementwise(torch.exp),
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Gelu": _elementwise(F.gelu),
    "Gemm": _gemm,
    "GlobalAveragePool": _reduce(torch.mean),
    "GroupNormalization": _group_norm,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _elementwise(F.hardswish),
    "InstanceNormalization": _instance_norm,
    "IsNaN": _elementwise(torch.isnan),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _leaky_relu,
    "MatMul": _elementwise(torch.matmul),
    "MaxPool": _pool,
    "Mul": _elementwise(torch.mul),
    "Neg": _elementwise(torch.neg),
    "Pad": _pad,
    "Pow": _elementwise(torch.pow),
    "ReduceL2": _reduce(functools.partial(torch.linalg.vector_norm, ord=2)),
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "Relu": _elementwise(F.relu),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": _elementwise(torch.sigmoid),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _elementwise(torch.sqrt),
    "Squeeze": _reshape,
    "Sub": _elementwise(torch.sub),
    "Sum": lambda op, operands: functools.reduce(torch.add, operands),  # type: ignore[arg-type]
    "Tanh": _elementwise(torch.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
    "Where": _elementwise(torch.where),
}

__all__ = ["RUNS", "Operands", "UnsupportedError"]
