"""Group normalisation: over the spatial axes and a group of neighbouring channels, then a scale and a shift per channel.

    x (N, C, *image), scale (C), bias (C)  ->  y (N, C, *image)          https://onnx.ai/onnx/operators/onnx__GroupNormalization.html

ONNX has the op since opset 18, with parameters per channel since 21. Before, exporters write it as

    Reshape (N, G, -1) -> InstanceNormalization -> Reshape (N, C, *image) -> Mul (C, 1, 1) -> Add (C, 1, 1)

where the first Reshape requires the channels of a group to be contiguous. The one op may have any order of axes. Groups are
counted in whole channels, so no operand may have padding.
"""

from math import prod

import numpy as np

from layoutopt.formats import Dim, Extent, Shape, product
from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.types import Array, DType, Op, TensorType, Value
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import Builder, register
from layoutopt.ops.interfaces.affine import Affine, AffineFolding, Side, float_constant
from layoutopt.ops.operands import padded_output, present, rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_REFUSED
from layoutopt.ops.pool import SpatialRule
from layoutopt.ops.signatures import Inapplicable, estimated_volume

KIND = "GroupNormalization"


class GroupNormalizationRule(SpatialRule):
    """The layout of both forms of the op. Scale and bias are vectors, which have one format without padding."""

    family = "normalization"
    padding = PADDING_REFUSED

    def flops(self, op: Op) -> float:
        """Six per element: a mean, a variance, a scale and a shift."""
        y = op.outputs[0]
        return 6.0 * estimated_volume(y.shape) if y is not None and y.shape is not None else 0.0


@register
class GroupNormalization(GroupNormalizationRule, AffineFolding):
    """The op of the standard domain."""

    ops = (KIND,)

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """An affine map of the output is folded into scale and bias, if these are per channel."""
        x, scale, bias = op.inputs[0], float_constant(op, 1), float_constant(op, 2)
        if (
            side == "in"
            or affine.axis not in (None, 1)
            or scale is None
            or bias is None
            or x is None
            or x.shape is None
        ):
            return None
        if scale.size != x.shape[1]:
            return None
        factor, shift = affine.broadcast_to(scale.size)
        return {1: scale * factor, 2: bias * factor + shift}


@register
class ExportedGroupNormalization(GroupNormalizationRule):
    """The pseudo-op that replaces the ops of an exporter, and is expanded to them again."""

    ops = (f"{DOMAIN}::{KIND}",)
    is_pseudo_op = True

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of the op of the standard domain; Inapplicable if the number of channels is unknown."""
        if not isinstance(shape_of(op.inputs[0])[1], int):
            return Inapplicable("the number of channels is unknown")
        return super().axes(op)

    def lower(self, op: Op, build: Builder) -> None:
        """The ops that the exporter wrote, in the canonical format."""
        x, type = present(build.padded(0)), padded_output(op)
        y = normalized(op, build, x, type)
        shape = (shape_of(x)[1], *(1,) * (rank_of(x) - 2))
        for kind, index, neutral in (("Mul", 1, 1), ("Add", 2, 0)):
            numbers = op.constant(index)
            if numbers is None or not bool((numbers == neutral).all()):
                (y,) = build.op(kind, [y, per_channel(op, build, index, shape)], [type])
        build.set_padded_output(0, y)


def normalized(op: Op, build: Builder, x: Value, type: TensorType) -> Value:
    """The groups of one array (N, C, *image), each with mean 0 and variance 1. Blocks of the array may be parts of groups.

    Args:
        op: the op, for the number of groups, epsilon and the version of ai.onnx.
        build: records the new ops.
        x: the array; the bytes of a group are contiguous, in any order.
        type: the type of the result, with the extents of x, perhaps as other expressions.
    """
    assert isinstance(x.type, TensorType)
    groups, dtype, shape = op.integer("num_groups"), x.type.dtype, shape_of(x)
    grouped = TensorType(dtype, (shape[0], groups, _volume(shape, groups)))
    scale, bias = (build.constant(np.full(groups, each, dtype.numpy), "group") for each in (1, 0))
    attributes = {"epsilon": op.attributes.get("epsilon", 1e-5)}
    (y,) = build.op("InstanceNormalization", [build.reshape(x, shape_of(grouped)), scale, bias], [grouped], attributes)
    unknown = [dim for dim in type.shape or () if isinstance(dim, Extent) and dim != shape[0]]
    if type.shape is not None and len(unknown) < 2:
        return build.reshape(y, type.shape)
    (extents,) = build.op("Shape", [x], [TensorType(DType.INT64, (len(shape),))])
    (result,) = build.op("Reshape", [y, extents], [type])
    return result


def per_channel(op: Op, build: Builder, index: int, shape: Shape) -> Value:
    """Input `index`, scale or bias, in another shape; a constant stays a constant."""
    numbers, value = op.constant(index), present(build.input(index))
    if numbers is None:
        return build.reshape(value, shape)
    return build.constant(numbers.reshape([dim if isinstance(dim, int) else -1 for dim in shape]), "channels")


def _volume(shape: Shape, groups: int) -> Dim:
    """The number of elements of a group of an array (N, C, *image)."""
    numbers = [dim for dim in shape[1:] if isinstance(dim, int)]
    symbols = [dim for dim in shape[1:] if isinstance(dim, Extent)]
    return product((prod(numbers) // groups, *symbols))


__all__ = ["KIND", "ExportedGroupNormalization", "GroupNormalization", "normalized", "per_channel"]
