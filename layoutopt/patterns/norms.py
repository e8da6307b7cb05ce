"""Fusion patterns of normalisations: root mean square, and by groups of channels; LRN by a convolution."""

from typing import TypeGuard

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, Value
from layoutopt.ops.base import facts, rule_of
from layoutopt.ops.interfaces import Affine, float_constant
from layoutopt.ops.normalization import ExportedGroupNormalization
from layoutopt.ops.view import Reshape
from layoutopt.patterns.base import (
    Expression,
    FusionPattern,
    Match,
    find,
    number,
    register_pattern,
    result_of,
    tree,
)


@register_pattern
class RmsNormalization(FusionPattern):
    """A normalisation over the last axis, with a constant scale per element of it.

    before: x -> Pow(2) -> ReduceMean -> Add(epsilon) -> Sqrt -> Reciprocal, or Div(1, .) -> Mul(x) -> Mul(scale)
            x -> Mul(x) -> ReduceMean -> Add(epsilon) -> Sqrt -> Div(x, .) -> Mul(scale)
    after:  x -> SimplifiedLayerNormalization(scale)

    Otherwise the scale would be folded into the products behind it, and onnxruntime would not recognise the normalisation.
    The definition: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467.
    """

    name = "rms-norm"
    fused_op = "SimplifiedLayerNormalization"
    root_ops = ("Mul",)
    needs_kernel = True

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The product with the scale."""
        found = find(graph, op.y, _SCALED)
        if found is None:
            return None
        x, scale, epsilon = (found.values[name] for name in ("x", "scale", "epsilon"))
        if any(number(found.values.get(name)) not in (None, expected) for name, expected in _NUMBERS.items()):
            return None
        reduce, added = found.op("ReduceMean"), number(epsilon) or 0.0
        if (
            added <= 0
            or not x.shape
            or facts(reduce).reduced_axes(reduce) != (len(x.shape) - 1,)
            or not reduce.integer("keepdims", 1)
        ):
            return None
        is_scale = scale.is_constant and scale.shape == x.shape[-1:] and scale.dtype is x.dtype is DType.FLOAT32
        if not is_scale or op.y.shape != x.shape:
            return None
        return Match(op.y, found.ops, (x, scale), {"axis": -1, "epsilon": added})


_NUMBERS = {"two": 2.0, "one": 1.0}
_SQUARE: Expression = [tree("Mul", "x", "x"), tree("Pow", "x", "two")]
_ROOT = tree("Sqrt", tree("Add", tree("ReduceMean", _SQUARE), "epsilon"))
_INVERSE: Expression = [tree("Reciprocal", _ROOT), tree("Div", "one", _ROOT)]
_SCALED = tree("Mul", [tree("Div", "x", _ROOT), tree("Mul", "x", _INVERSE)], "scale")


@register_pattern
class GroupNormalization(FusionPattern):
    """An InstanceNormalization between two Reshapes, the second of which reverses the first.

    before: x -> Reshape (N, G, -1) -> InstanceNormalization -> Reshape (N, C, *image) -> Mul (C, 1, 1) -> Add (C, 1, 1)
    after:  x -> layoutopt::GroupNormalization(num_groups = G)

    A group consists of consecutive channels, so G divides C. Scale and shift per group become numbers per channel. Affines of
    the result are folded into the fused op, unless the op behind them can fold them at no cost.
    """

    name = "group-norm"
    fused_op = ExportedGroupNormalization.ops[0]
    root_ops = ("InstanceNormalization",)

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The Reshapes around the normalisation, and the affines behind it."""
        scale, bias = float_constant(op, 1), float_constant(op, 2)
        before, after = graph.producer(op.x), graph.only_reader(op.y)
        if scale is None or bias is None or before is None or not _is_reshape(before) or not _is_reshape(after):
            return None
        x, result = before.x, after.y
        if not _is_grouped(x, op.x) or result.shape != x.shape:
            return None
        inner = [op, after]
        factor, shift = (np.repeat(numbers, _channels(x) // numbers.size) for numbers in (scale, bias))
        following, reader = _affines(graph, result)
        if following and not _can_fold(reader, following[-1][0].outputs[0], following[-1][1]):
            for each, affine in following:
                scales, shifts = affine.broadcast_to(_channels(x))
                factor, shift = factor * scales, shift * scales + shifts
                inner.append(each)
        last = inner[-1].y
        attributes = {"num_groups": scale.size, "epsilon": op.attributes.get("epsilon", 1e-5)}
        parameters = (_parameter(last, "scale", factor), _parameter(last, "bias", shift))
        return Match(last, inner, (x, *parameters), attributes)


def _is_reshape(op: Op | None) -> TypeGuard[Op]:
    return op is not None and isinstance(rule_of(op), Reshape)


def _channels(x: Value) -> int:
    """The number of channels; 0 if unknown."""
    channels = x.shape[1] if x.shape is not None and len(x.shape) > 2 else 0
    return channels if isinstance(channels, int) else 0


def _is_grouped(x: Value, grouped: Value) -> bool:
    """Whether the second axis of a reshaped x counts groups of whole channels."""
    if x.shape is None or grouped.shape is None or len(grouped.shape) < 3 or x.shape[0] != grouped.shape[0]:
        return False
    channels, groups = _channels(x), grouped.shape[1]
    return isinstance(groups, int) and groups > 0 and channels > 0 and channels % groups == 0


def _affines(graph: Graph, value: Value) -> tuple[list[tuple[Op, Affine]], Op | None]:
    """The consecutive affine maps along channels, and the only reader of the last one."""
    found: list[tuple[Op, Affine]] = []
    while (reader := graph.only_reader(value)) is not None:
        result, affine = result_of(reader), facts(reader).affine(reader)
        if affine is None or result is None or reader.inputs[affine.index] is not value or affine.axis not in (None, 1):
            break
        if result.shape != value.shape:
            break
        found.append((reader, affine))
        value = result
    return found, reader


def _can_fold(reader: Op | None, value: Value | None, affine: Affine) -> bool:
    """Whether the reader of a value can fold an affine map of it."""
    if reader is None or reader.inputs[0] is not value:
        return False
    return facts(reader).fold_affine(reader, affine, "in") is not None


def _parameter(result: Value, stem: str, numbers: Array) -> Value:
    type = result.type_with(numbers.shape)
    return Value(f"{result.name}/{stem}", type, data=ArrayData(numbers.astype(type.dtype.numpy)))


_EXPONENT = 0.75  # of a square root times its own square root
_MAX_CHANNELS = 511  # a filter of a megabyte; with 1024 channels the convolution takes as long as LRN


def lrn_by_convolution(graph: Graph, op: Op) -> Value | None:
    """The result of an LRN with the usual exponent, by new ops, of which one is a 1x1 convolution.

    before: x -> LRN {size = 5, beta = 0.75} -> y
    after:  x -> Mul(x, x) -> Conv(a band of alpha / size, bias) -> r = Sqrt, s = Sqrt(r) -> Div(x, Mul(r, s)) -> y

    onnxruntime's LRN takes 17.4 ms for 192 x 55 x 55 elements, the other ops 3.5 (1.32, one thread, AVX2). The definition:
    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, section 3.3.
    """
    x, attributes = op.x, {"alpha": 1e-4, "beta": _EXPONENT, "bias": 1.0, **op.attributes}
    channels, alpha = x.shape[1] if x.shape and len(x.shape) > 2 else None, attributes["alpha"]
    if x.dtype is not DType.FLOAT32 or attributes["beta"] != _EXPONENT or not attributes["bias"]:
        return None
    if not isinstance(channels, int) or channels > _MAX_CHANNELS:
        return None
    assert isinstance(alpha, float)
    size, stem = op.integer("size"), op.y.name
    band = np.tri(channels, k=size // 2) - np.tri(channels, k=-((size + 1) // 2))
    filters = (alpha / size * band).astype(np.float32).reshape(channels, channels, *[1] * (len(x.dims) - 2))
    biases = np.full(channels, attributes["bias"], np.float32)
    constants = graph.new_constant(filters, f"{stem}/band"), graph.new_constant(biases, f"{stem}/bias")
    squares = graph.new_result("Mul", (x, x), x.type, f"{stem}/squares", op)
    value = graph.new_result("Conv", (squares, *constants), x.type, f"{stem}/sum", op)
    root = graph.new_result("Sqrt", (value,), x.type, f"{stem}/root", op)
    other = graph.new_result("Sqrt", (root,), x.type, f"{stem}/root", op)
    power = graph.new_result("Mul", (root, other), x.type, f"{stem}/power", op)
    return graph.new_result("Div", (x, power), op.y.type, f"{stem}/quotient", op)
