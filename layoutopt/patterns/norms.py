"""Fusion patterns of normalisations: root mean square, and by groups of channels."""

from typing import ClassVar

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.interfaces import Affine, affine_of, float_constant, folded_affine
from layoutopt.ops.normalization import ExportedGroupNormalization
from layoutopt.ops.view import Reshape
from layoutopt.patterns.base import FusionPattern, Match, number, other_input, register_pattern, result_of


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
    root_ops: ClassVar[tuple[str, ...]] = ("Sqrt",)
    needs_kernel = True

    def match(self, graph: Graph, op: Op) -> Match | None:
        """The mean square before the root, and the quotient and the scale behind it."""
        found = _mean_square(graph, op)
        if found is None:
            return None
        x, epsilon, before = found
        quotient = _quotient(graph, op, x)
        if quotient is None:
            return None
        normalized = result_of(quotient[-1])
        reader = graph.only_reader(normalized)
        while reader is not None and reader.kind == "Cast" and (after := result_of(reader)) is not None:
            if after.dtype is not x.dtype:  # TorchScript writes Casts from float32 to float32 before the scale
                return None
            quotient.append(reader)
            normalized, reader = after, graph.only_reader(after)
        if normalized is None or reader is None or reader.kind != "Mul":
            return None
        scale, result = other_input(reader, normalized), result_of(reader)
        if scale is None or result is None or not scale.is_constant or result.shape != x.shape or x.shape is None:
            return None
        if scale.shape != x.shape[-1:] or scale.dtype is not x.dtype:
            return None
        return Match(result, [*before, op, *quotient, reader], (x, scale), {"axis": -1, "epsilon": epsilon})


def _mean_square(graph: Graph, root: Op) -> tuple[Value, float, list[Op]] | None:
    """The tensor x, epsilon and the ops of Add(ReduceMean(x * x), epsilon), which a Sqrt reads; None for anything else."""
    add = graph.producer(root.inputs[0])
    if add is None or add.kind != "Add":
        return None
    for mean, constant in (add.inputs, add.inputs[::-1]):
        epsilon, reduce = number(constant), graph.producer(mean)
        if epsilon is None or reduce is None or reduce.kind != "ReduceMean" or reduce.inputs[0] is None:
            continue
        square = graph.producer(reduce.inputs[0])
        x = square.inputs[0] if square is not None else None
        if square is None or x is None or not x.shape or x.dtype is not DType.FLOAT32:
            continue
        is_square = (square.kind == "Mul" and square.inputs[1] is x) or (
            square.kind == "Pow" and number(square.inputs[1]) == 2.0
        )
        axes = reduce.integers("axes") or reduce.elements(1) or ()
        if is_square and axes in ((-1,), (len(x.shape) - 1,)) and reduce.integer("keepdims", 1) and epsilon > 0:
            return x, epsilon, [square, reduce, add]
    return None


def _quotient(graph: Graph, root: Op, x: Value) -> list[Op] | None:
    """The ops that divide x by a root: Div, or Mul by its Reciprocal; None for anything else."""
    value = result_of(root)
    op = graph.only_reader(value)
    if value is None or op is None:
        return None
    if op.kind == "Div" and op.inputs[0] is x and op.inputs[1] is value:
        return [op]
    if op.kind == "Reciprocal" or (op.kind == "Div" and number(op.inputs[0]) == 1.0):
        inverse = result_of(op)
        product = graph.only_reader(inverse)
        if inverse is not None and product is not None and product.kind == "Mul" and other_input(product, inverse) is x:
            return [op, product]
    return None


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
        grouped, normalized = op.inputs[0], op.outputs[0]
        scale, bias = float_constant(op, 1), float_constant(op, 2)
        if grouped is None or normalized is None or scale is None or bias is None:
            return None
        before, after = graph.producer(grouped), graph.only_reader(normalized)
        if before is None or after is None or not _is_reshape(before) or not _is_reshape(after):
            return None
        x, result = before.inputs[0], result_of(after)
        if x is None or result is None or not _is_grouped(x, grouped) or not _is_restored(graph, after, result, x):
            return None
        inner = [op, after]
        factor, shift = (np.repeat(numbers, _channels(x) // numbers.size) for numbers in (scale, bias))
        following, reader = _affines(graph, result)
        if following and not _can_fold(reader, following[-1][0].outputs[0], following[-1][1]):
            for each, affine in following:
                scales, shifts = affine.broadcast_to(_channels(x))
                factor, shift = factor * scales, shift * scales + shifts
                inner.append(each)
        last = result_of(inner[-1])
        assert last is not None
        attributes = {"num_groups": scale.size, "epsilon": op.attributes.get("epsilon", 1e-5)}
        parameters = (_parameter(last, "scale", factor), _parameter(last, "bias", shift))
        return Match(last, inner, (x, *parameters), attributes)


def _is_reshape(op: Op) -> bool:
    return isinstance(rule_of(op), Reshape)


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


def _is_restored(graph: Graph, reshape: Op, result: Value, x: Value) -> bool:
    """Whether a result has the shape of x: by its type, or because the target of the Reshape is that shape."""
    if result.shape is not None and result.shape == x.shape:
        return True
    target = reshape.inputs[1] if len(reshape.inputs) > 1 else None
    source = graph.producer(target)
    return source is not None and source.kind == "Shape" and source.inputs[0] is x and not source.attributes


def _affines(graph: Graph, value: Value) -> tuple[list[tuple[Op, Affine]], Op | None]:
    """The consecutive affine maps along channels, and the only reader of the last one."""
    found: list[tuple[Op, Affine]] = []
    while (reader := graph.only_reader(value)) is not None:
        result, affine = result_of(reader), affine_of(reader)
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
    return folded_affine(reader, affine, "in") is not None


def _parameter(result: Value, stem: str, numbers: Array) -> Value:
    assert isinstance(result.type, TensorType)
    dtype = result.type.dtype
    array = numbers.astype(dtype.numpy)
    return Value(f"{result.name}/{stem}", TensorType(dtype, array.shape), data=ArrayData(array))
