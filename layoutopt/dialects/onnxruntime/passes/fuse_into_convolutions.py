"""Fuses residuals, activations and per-channel affines into onnxruntime's blocked convolution.

before: Conv -> Add(residual) -> Relu
after:  Conv(activation = Relu, sum = residual)
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, Value
from layoutopt.passes.base import Pass, PassContext

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "HardSigmoid", "HardSwish")
_SINCE = {"HardSwish": (1, 31)}  # the first onnxruntime whose convolution has the activation


@dataclass(frozen=True, slots=True)
class FuseIntoConvolutions(Pass):
    """Fuse per-channel affines, residuals and activations into the blocked convolution before them."""

    name = "fuse-into-convolutions"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fuse per-channel convolutions first, then residuals, then activations."""
        for op in graph.ops:
            if op.op_type == "Conv" and op.domain == DOMAIN:
                _fuse_affine(graph, op)
        for op in graph.ops:
            if op.op_type == "Add":
                _fuse_residual(graph, op)
        for op in graph.ops:
            if is_fusable_activation(op):
                _fuse_activation(graph, op)


def _fuse_affine(graph: Graph, conv: Op) -> None:
    """Merge two depthwise 1x1 convolutions: (x * s1 + t1) * s2 + t2 is one."""
    before = _fusable_conv(graph, conv.inputs[0])
    first = _affine_of(before) if before is not None and len(before.inputs) <= 3 else None
    second = _affine_of(conv)
    if before is None or first is None or second is None:
        return
    for index, numbers in enumerate((first[0] * second[0], first[1] * second[0] + second[1]), 1):
        array = numbers.astype(np.float32).reshape((-1, 1, 1, 1) if index == 1 else (-1,))
        value = graph.new_constant(array, f"{conv.name}/fused")
        graph.set_inputs(before, (*before.inputs[:index], value, *before.inputs[index + 1 :]))
    assert conv.inputs[0] is not None
    _replace_output(graph, conv, conv.inputs[0])


def _affine_of(conv: Op) -> tuple[Array, Array] | None:
    """Scale and shift in float64 of a convolution that is a per-channel affine; None if it is none."""
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
    """The blocked convolution without an activation that computes a value with one use; None if there is none."""
    producer = graph.only_producer(value)
    if producer is None or producer.op_type != "Conv" or producer.domain != DOMAIN:
        return None
    return None if "activation" in producer.attributes else producer


def _fuse_residual(graph: Graph, add: Op) -> None:
    if len(add.inputs) != 2 or add.inputs[0] is add.inputs[1]:
        return
    for index in (1, 0):
        x, other = add.inputs[index], add.inputs[1 - index]
        conv = _fusable_conv(graph, x)
        if conv is None or x is None or other is None or len(conv.inputs) > 3 or x.shape != other.shape:
            continue
        graph.set_inputs(conv, (*conv.inputs, *(None,) * (3 - len(conv.inputs)), other))
        _replace_output(graph, add, x)
        return


def _fuse_activation(graph: Graph, op: Op) -> None:
    conv, x = _fusable_conv(graph, op.inputs[0]), op.inputs[0]
    reshape = graph.only_producer(x)
    if conv is None and reshape is not None and reshape.kind == "Reshape":
        conv = _fusable_conv(graph, reshape.inputs[0])
    if conv is None or x is None:
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
    result = conv.outputs[0]
    if result is not None and result is not x:  # its name is that of the value before the activation
        graph.rename(result, graph.fresh_name(f"{result.name}_{op.op_type}"))
    _replace_output(graph, op, x)


def is_fusable_activation(op: Op) -> bool:
    """Whether the blocked convolution of the installed onnxruntime has the activation."""
    return op.kind in ACTIVATIONS and _onnxruntime_version() >= _SINCE.get(op.kind, (0,))


@cache
def _onnxruntime_version() -> tuple[int, ...]:
    """Major and minor version of the onnxruntime that is installed."""
    return tuple(int(number) for number in version("onnxruntime").split(".")[:2])


def _replace_output(graph: Graph, op: Op, result: Value) -> None:
    """Replace the output of an op that has been fused into a convolution by the convolution's `result`."""
    assert op.outputs[0] is not None
    graph.replace_value(op.outputs[0], result)
