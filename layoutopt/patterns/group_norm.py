"""Group normalisation as exporters write it before opset 21: the normalisation of whole channels.

before: x -> Reshape (N, G, -1) -> InstanceNormalization -> Reshape (N, C, *image) -> Mul (C, 1, 1) -> Add (C, 1, 1)
after:  x -> layoutopt::GroupNormalization(num_groups = G)

A group consists of consecutive channels, so G divides C. Scale and shift per group become numbers per channel. Affines of the
result are folded into the fused op, unless the op behind them can fold them at no cost.
"""

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Op, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.interfaces import Affine, affine_of, float_constant, folded_affine
from layoutopt.ops.normalization import ExportedGroupNormalization
from layoutopt.ops.view import Reshape
from layoutopt.patterns.base import FusionPattern, Match, register_pattern, result_of


@register_pattern
class GroupNormalization(FusionPattern):
    """An InstanceNormalization between two Reshapes, the second of which reverses the first."""

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
        parameters = (_constant(last, "scale", factor), _constant(last, "bias", shift))
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
    source = graph.producer(target) if target is not None else None
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


def _constant(result: Value, stem: str, numbers: Array) -> Value:
    assert isinstance(result.type, TensorType)
    dtype = result.type.dtype
    array = numbers.astype(dtype.numpy)
    return Value(f"{result.name}/{stem}", TensorType(dtype, array.shape), data=ArrayData(array))
