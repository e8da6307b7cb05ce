"""Normalisation: over batch and spatial axes per channel, over channels, or over the last axes.

Parameters per channel are vectors, blocked and padded as the channels of the input. Padding of the scale is zero, so finite
padding of the input becomes zero.
"""

from math import prod

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Extent, Shape, product
from layoutopt.ir.graph import DOMAIN
from layoutopt.ir.types import DType, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, are_last_innermost
from layoutopt.ops.base import PhysicalAttributes, add_rule, padded_axes_of, register
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.feature_maps import SpatialRule
from layoutopt.ops.interfaces import Affine, float_constant
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_REFUSED,
    ZERO,
    PaddingTransfer,
    States,
    X,
    Y,
    present,
    rank_of,
    shape_of,
)

_SINCE = {"LayerNormalization": 17, "RMSNormalization": 23}
"""The opset from which onnx has the op."""


@register
class ChannelNormalization(SpatialRule):
    """BatchNormalization (at inference) and InstanceNormalization: parameters per channel."""

    family = "normalization"
    ops = ("BatchNormalization", "InstanceNormalization")
    padding = PaddingTransfer(ZERO, ZERO, None, "any for padding of the batch, and without an epsilon")
    epsilon = "epsilon"
    operands = ()
    least_rank = 2

    @override
    def inapplicability(self, op: Op) -> str:
        if op.integer("training_mode"):
            return "it is in training mode"
        return super().inapplicability(op) if op.integer("spatial", 1) else "it has parameters per element"

    def axes(self, op: Op) -> Axes:
        """The parameters run along the channels."""
        parameters = [Slot("in", index) for index in range(1, len(op.inputs))]
        return {**super().axes(op), **dict.fromkeys(parameters, (1,))}

    def affine(self, op: Op) -> Affine | None:
        """BatchNormalization with constant statistics: (x - mean) / sqrt(var + epsilon) * scale + bias."""
        if op.op_type != "BatchNormalization" or self.canonical_reason(op):
            return None
        scale, bias, mean, var = (float_constant(op, index) for index in range(1, 5))
        if scale is None or bias is None or mean is None or var is None:
            return None
        epsilon = op.attributes.get("epsilon", 1e-5)
        assert isinstance(epsilon, float | int)
        if not bool((var + epsilon > 0).all()):
            return None
        factor = scale / np.sqrt(var + epsilon)
        return Affine(0, 1, factor, bias - mean * factor)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero for (finite - 0) / sqrt(0 + epsilon) * 0 + 0, with an epsilon; any for padding of the batch."""
        if 0 in padded_axes_of(op.inputs[0], signature.inputs[0]):
            return ANY
        return None if any(inputs[1:]) else super().result_padding(op, signature, inputs)


# LRN reads neighbouring channels, so the padding behind the last channel has to be zero.
_LRN = PaddingTransfer(ZERO, None, None, "any without a bias")
add_rule(SpatialRule("LRN", family="normalization", padding=_LRN, epsilon="bias"))


@register
class LayerNormalization(AxiswiseRule):
    """Over the last axes, from attribute `axis` on; scale and bias have these axes.

    onnxruntime saves LayerNormalization in models of opsets below 17, and RMSNormalization under another name. onnxruntime
    1.31 runs these ops, but crashes on them in a function, so they have only signatures under which they are layout-agnostic.
    """

    family = "normalization"
    ops = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
    formats = "any; normalised axes must not be blocked; one kernel where they are innermost"
    # a normalised row is at most the square root of its length, plus the bias
    padding = PaddingTransfer(FINITE, FINITE, ANY, "any without an epsilon")
    epsilon = "epsilon"
    operands = (X, Slot("in", 1), Slot("in", 2), Y)
    has_one_result = True
    whole_reason = "a normalised axis cannot be blocked"

    def misfit(self, op: Op, signature: Signature) -> str:
        """The reason if the op needs a function at an opset of which onnx does not have it."""
        has_op = op.version >= _SINCE.get(op.op_type, op.version + 1)
        if has_op or self.is_layout_agnostic(op, signature):
            return ""
        return "the normalised axes must be innermost, because onnx does not have the op"

    def whole_axes(self, op: Op) -> range:
        """The normalised axes."""
        rank = rank_of(op.x)
        return range(op.integer("axis", -1) % rank, rank)

    @override
    def is_one_op(self, op: Op, signature: Signature) -> bool:
        return are_last_innermost(signature, len(self.whole_axes(op)))

    def physical_attributes(self, op: Op, build: OpBuilder) -> PhysicalAttributes:
        """The axis counted from the end."""
        return {"axis": -len(self.whole_axes(op))}


# --- group normalization ---
#
# Group normalisation: over the spatial axes and a group of neighbouring channels, then a scale and a shift per channel.
#
#   x (N, C, *image), scale (C), bias (C)  ->  y (N, C, *image)          https://onnx.ai/onnx/operators/onnx__GroupNormalization.html
#
# ONNX has the op since opset 18, with parameters per channel since 21. Before, exporters write it as
#
#     Reshape (N, G, -1) -> InstanceNormalization -> Reshape (N, C, *image) -> Mul (C, 1, 1) -> Add (C, 1, 1)
#
# where the first Reshape requires the channels of a group to be contiguous. The one op may have any order of axes. Groups are
# counted in whole channels, so no operand may have padding.


KIND = "GroupNormalization"


@register
class GroupNormalization(SpatialRule):
    """The op of the standard domain. Scale and bias are vectors, which have one format without padding."""

    family = "normalization"
    ops = (KIND,)
    padding = PADDING_REFUSED
    operations = (6.0, Y)  # a mean, a variance, a scale and a shift


@register
class ExportedGroupNormalization(GroupNormalization):
    """The pseudo-op that replaces the ops of an exporter, and is expanded to them again."""

    ops = (f"{DOMAIN}::{KIND}",)
    is_pseudo_op = True

    @override
    def inapplicability(self, op: Op) -> str:
        is_known = isinstance(op.x.dims[1], int)
        return super().inapplicability(op) if is_known else "the number of channels is unknown"

    def lower(self, op: Op, build: OpBuilder) -> None:
        """The ops that the exporter wrote, in the canonical format."""
        x, type = present(build.canonical(0)), op.y.type_with(op.y.dims)
        y = normalized(op, build, x, type)
        shape = (shape_of(x)[1], *(1,) * (rank_of(x) - 2))
        for kind, index, neutral in (("Mul", 1, 1), ("Add", 2, 0)):
            numbers = op.constant(index)
            if numbers is None or not bool((numbers == neutral).all()):
                y = build.result(kind, [y, per_channel(op, build, index, shape)], type)
        build.set_canonical_output(0, y)


def normalized(op: Op, build: OpBuilder, x: Value, type: TensorType) -> Value:
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
    y = build.result("InstanceNormalization", [build.reshape(x, shape_of(grouped)), scale, bias], grouped, attributes)
    unknown = [dim for dim in type.shape or () if isinstance(dim, Extent) and dim != shape[0]]
    if type.shape is not None and len(unknown) < 2:
        return build.reshape(y, type.shape)
    extents = build.result("Shape", [x], TensorType(DType.INT64, (len(shape),)))
    return build.result("Reshape", [y, extents], type)


def per_channel(op: Op, build: OpBuilder, index: int, shape: Shape) -> Value:
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
