"""Fuses into onnxruntime's blocked convolution what its kernel can do as well: add a residual, apply an activation.

before: Conv -> Add(residual) -> Relu
after:  Conv(activation = Relu, sum = residual)
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, TensorType, Value
from layoutopt.passes.base import Pass, PassContext

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "HardSigmoid", "HardSwish")
_SINCE = {"HardSwish": (1, 31)}  # the onnxruntime whose convolution has it; 1.22 has not


@dataclass(frozen=True, slots=True)
class FuseIntoConvolutions(Pass):
    """Fuse per-channel affines, residuals and activations into the blocked convolution before them."""

    name = "fuse-into-convolutions"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Per-channel convolutions first, then residuals, then activations."""
        for op in graph.ops:
            if op.op_type == "Conv" and op.domain == DOMAIN:
                _fuse_affine(graph, op)
        for op in graph.ops:
            if op.op_type == "Add":
                _fuse_residual(graph, op)
        for op in graph.ops:
            if op.op_type in _ACTIVATIONS:
                _fuse_activation(graph, op)


def _fuse_affine(graph: Graph, conv: Op) -> None:
    """x * s1 + t1, then that * s2 + t2: one depthwise 1x1 convolution does for both."""
    before = _fusable_conv(graph, conv.inputs[0])
    first = _affine_of(before) if before is not None and len(before.inputs) <= 3 else None
    second = _affine_of(conv)
    if before is None or first is None or second is None:
        return
    for index, numbers in enumerate((first[0] * second[0], first[1] * second[0] + second[1]), 1):
        array = numbers.astype(np.float32).reshape((-1, 1, 1, 1) if index == 1 else (-1,))
        value = graph.new_value(f"{conv.name}/fused", TensorType(DType.FLOAT32, array.shape), data=ArrayData(array))
        graph.set_inputs(before, (*before.inputs[:index], value, *before.inputs[index + 1 :]))
    assert conv.inputs[0] is not None
    _take_over(graph, conv.inputs[0], conv)


def _affine_of(conv: Op) -> tuple[Array, Array] | None:
    """Scale and shift in float64, if the convolution is nothing else."""
    weight = conv.constant(1)
    if weight is None or weight.shape[1:] != (1, 1, 1) or conv.integer("group", 1) != weight.shape[0]:
        return None
    if len(conv.inputs) > 3 or "activation" in conv.attributes or any(conv.integers("pads")):
        return None
    if any(step != 1 for step in conv.integers("strides")):
        return None
    bias = conv.constant(2) if len(conv.inputs) > 2 else np.zeros(weight.shape[0])
    return None if bias is None else (weight.reshape(-1).astype(np.float64), bias.astype(np.float64))


def _fusable_conv(graph: Graph, value: Value | None) -> Op | None:
    """The blocked convolution that computes a value which one op reads; None if there is none, or if it is full."""
    producer = graph.producer(value) if value is not None else None
    if value is None or producer is None or producer.op_type != "Conv" or producer.domain != DOMAIN:
        return None
    return producer if graph.has_one_use(value) and "activation" not in producer.attributes else None


def _fuse_residual(graph: Graph, add: Op) -> None:
    if len(add.inputs) != 2 or add.inputs[0] is add.inputs[1]:
        return
    for index in (1, 0):
        x, other = add.inputs[index], add.inputs[1 - index]
        conv = _fusable_conv(graph, x)
        if conv is None or x is None or other is None or len(conv.inputs) > 3 or x.shape != other.shape:
            continue
        graph.set_inputs(conv, (*conv.inputs, *(None,) * (3 - len(conv.inputs)), other))
        _take_over(graph, x, add)
        return


def _fuse_activation(graph: Graph, op: Op) -> None:
    conv, x = _fusable_conv(graph, op.inputs[0]), op.inputs[0]
    if conv is None and (reshape := _private_reshape(graph, x)) is not None:
        conv = _fusable_conv(graph, reshape.inputs[0])
    if conv is None or x is None or _installed() < _SINCE.get(op.op_type, (0,)):
        return
    if op.op_type == "Clip":
        low, high = (op.constant(index) if len(op.inputs) > index else None for index in (1, 2))
        bounds = [low, high] if op.version >= 11 else [np.asarray(op.attributes.get(name)) for name in ("min", "max")]
        if any(bound is None or bound.dtype == object or bound.size != 1 for bound in bounds):
            return
        conv.attributes["activation_params"] = tuple(float(bound.reshape(())) for bound in bounds if bound is not None)
    elif op.op_type == "LeakyRelu":
        conv.attributes["activation_params"] = (float(op.attributes.get("alpha", 0.01)),)  # type: ignore[arg-type]
    elif op.op_type == "HardSigmoid":
        alpha, beta = op.attributes.get("alpha", 0.2), op.attributes.get("beta", 0.5)
        conv.attributes["activation_params"] = (float(alpha), float(beta))  # type: ignore[arg-type]
    conv.attributes["activation"] = op.op_type
    _take_over(graph, x, op)


@cache
def _installed() -> tuple[int, ...]:
    """Major and minor version of the onnxruntime that is installed."""
    return tuple(int(number) for number in version("onnxruntime").split(".")[:2])


def _private_reshape(graph: Graph, value: Value | None) -> Op | None:
    """The Reshape that computes a value which one op reads."""
    producer = graph.producer(value) if value is not None else None
    if value is None or producer is None or producer.kind != "Reshape":
        return None
    return producer if graph.has_one_use(value) else None


def _take_over(graph: Graph, own: Value, op: Op) -> None:
    """Let the convolution's value take the place of the output of `op`, which it computes now."""
    assert op.outputs[0] is not None
    graph.replace_value(op.outputs[0], own)
