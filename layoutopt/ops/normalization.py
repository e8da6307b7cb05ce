"""Normalisation: over batch and spatial axes per channel, over channels, or over the last axes.

Parameters per channel are vectors, blocked and padded as the channels of the input. Padding of the scale is zero, so finite
padding of the input becomes zero.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Extent, Shape, product
from layoutopt.ir.graph import DOMAIN
from layoutopt.ir.types import Array, DType, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, OneAxis, positions
from layoutopt.ops.base import Builder, has_padding, lower_directly, padded_axes_of, register
from layoutopt.ops.elementwise import broadcast_padding, is_last_axis_innermost
from layoutopt.ops.feature_maps import SpatialRule
from layoutopt.ops.interfaces import (
    Affine,
    AffineFolding,
    AffineOp,
    KernelFormats,
    Side,
    float_constant,
    without_permutation,
)
from layoutopt.ops.signatures import (
    PADDING_REFUSED,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    X,
    Y,
    chosen_signature,
    estimated_volume,
    is_canonical,
    padded_output,
    present,
    rank_of,
    shape_of,
)

_SINCE = {"LayerNormalization": 17, "RMSNormalization": 23}
"""The opset from which onnx has the op."""


@register
class ChannelNormalization(SpatialRule, KernelFormats, AffineOp, AffineFolding):
    """BatchNormalization (at inference) and InstanceNormalization: parameters per channel."""

    family = "normalization"
    ops = ("BatchNormalization", "InstanceNormalization")
    padding = PaddingTransfer(Padding.ZERO, Padding.ZERO, None, "any for padding of the batch, and without an epsilon")
    ranks = MappingProxyType({X: 2})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The parameters run along the channels."""
        if op.integer("training_mode"):
            return Inapplicable("it is in training mode")
        if not op.integer("spatial", 1):
            return Inapplicable("it has parameters per element")
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        parameters = [Slot("in", index) for index in range(1, len(op.inputs))]
        return {**dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0])))), **dict.fromkeys(parameters, (1,))}

    @override
    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        numbers = [(Slot("in", index), 0) for index in range(1, len(op.inputs))]
        return without_permutation(op, formats, [(X, 1), (Y, 1), *numbers])

    def affine(self, op: Op) -> Affine | None:
        """BatchNormalization with constant statistics: (x - mean) / sqrt(var + epsilon) * scale + bias."""
        if op.op_type != "BatchNormalization" or isinstance(self.iteration_axes(op), Inapplicable):
            return None
        parameters = [float_constant(op, index) for index in range(1, 5)]
        scale, bias, mean, var = parameters
        if scale is None or bias is None or mean is None or var is None:
            return None
        epsilon = op.attributes.get("epsilon", 1e-5)
        assert isinstance(epsilon, float | int)
        if not bool((var + epsilon > 0).all()):
            return None
        factor = scale / np.sqrt(var + epsilon)
        return Affine(0, 1, factor, bias - mean * factor)

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """An affine map of the output is folded into scale and bias."""
        scale, bias = float_constant(op, 1), float_constant(op, 2)
        if side == "in" or affine.axis not in (None, 1) or scale is None or bias is None:
            return None
        factor, shift = affine.broadcast_to(scale.size)
        return {1: scale * factor, 2: bias * factor + shift}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero for (finite - 0) / sqrt(0 + epsilon) * 0 + 0, with an epsilon; any for padding of the batch."""
        if 0 in padded_axes_of(op.inputs[0], signature.inputs[0]):
            return (Padding.ANY,)
        if op.attributes.get("epsilon", 1e-5) == 0:
            return None if any(inputs) else (Padding.ANY,)
        return None if any(inputs[1:]) else super().transfer_padding(op, signature, inputs)


@register
class LocalResponseNormalization(SpatialRule):
    """LRN: it reads neighbouring channels, so the padding behind the last channel has to be zero."""

    family = "normalization"
    ops = ("LRN",)
    padding = PaddingTransfer(Padding.ZERO, None, None, "any without a bias")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero if the bias is positive, since zero is divided by it; else any."""
        bias = op.attributes.get("bias", 1.0)
        has_bias = isinstance(bias, float) and bias > 0
        return super().transfer_padding(op, signature, inputs) if has_bias or inputs[0] else (Padding.ANY,)


@register
class LayerNormalization(AxiswiseRule):
    """Over the last axes, from attribute `axis` on; scale and bias have these axes.

    onnxruntime saves LayerNormalization in models of opsets below 17, and RMSNormalization under another name. onnxruntime
    1.31 runs these ops, but crashes on them in a function, so they have only signatures under which they are layout-agnostic.
    """

    family = "normalization"
    ops = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
    formats = "any; normalised axes must not be blocked; one kernel where they are innermost"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY, "any without an epsilon")

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys((slot for slot in op.slots() if slot.side == "in"), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond; scale and bias are aligned with the last axes."""
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        all_axes = tuple(range(rank_of(op.inputs[0])))
        parameters = {
            Slot("in", index): all_axes[len(all_axes) - rank_of(value) :]
            for index, value in enumerate(op.inputs[1:], 1)
            if value is not None
        }
        return {X: all_axes, Y: all_axes, **parameters}

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if the op needs no function at an opset of which onnx does not have it."""
        signature = super().complete(op, known)
        since = _SINCE.get(op.op_type)
        if isinstance(signature, Inapplicable) or (since is not None and op.version >= since):
            return signature
        if self.is_layout_agnostic(op, signature):
            return signature
        return Inapplicable("the normalised axes must be innermost, because onnx does not have the op")

    def first_axis(self, op: Op) -> int:
        """The first normalised axis."""
        return op.integer("axis", -1) % rank_of(op.inputs[0])

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why normalised axes cannot be blocked: the mean would include padding elements."""
        return "a normalised axis cannot be blocked" if axis >= self.first_axis(op) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Finite with an epsilon: a normalised row is at most the square root of its length, plus the bias; else any."""
        return (
            (Padding.ANY,)
            if op.attributes.get("epsilon", 1e-5) == 0
            else super().transfer_padding(op, signature, inputs)
        )

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether the normalised axes are innermost in x and in y."""
        if signature.inputs[0] is None or is_canonical(signature):
            return True
        tail = tuple(range(self.first_axis(op), signature.inputs[0].format.rank))
        formats = [storage.format for storage in (signature.inputs[0], signature.outputs[0]) if storage is not None]
        inner = [format.parts[len(format.parts) - len(tail) :] for format in formats]
        return all(tuple(part.axis for part in parts if not part.block) == tail for parts in inner)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op with its axis counted from the end."""
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build, {"axis": self.first_axis(op) - rank_of(op.inputs[0])})
        else:
            super().lower(op, build)


@register
class VectorNormalization(OneAxis):
    """LpNormalization: every vector along an axis divided by its length."""

    family = "normalization"
    ops = ("LpNormalization",)
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "before opset 22 any")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the family since opset 22, where a vector of length 0 stays zero; any before."""
        return super().transfer_padding(op, signature, inputs) if op.version >= 22 else (Padding.ANY,)


@register
class MeanVarianceNormalization(AxiswiseRule):
    """Mean 0 and variance 1 over some axes, by default over batch and spatial axes."""

    family = "normalization"
    ops = ("MeanVarianceNormalization",)
    formats = "any; normalised axes may be blocked where they have no padding"
    padding = PaddingTransfer(Padding.ANY, Padding.ANY, Padding.ANY)
    is_always_agnostic = True

    def normalised_axes(self, op: Op) -> tuple[int, ...]:
        """The axes that are normalised over."""
        return tuple(axis % rank_of(op.inputs[0]) for axis in op.integers("axes", (0, 2, 3)))

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        rank = rank_of(op.inputs[0])
        if rank <= max(op.integers("axes", (0, 2, 3)), default=0):
            return Inapplicable("the input does not have all normalised axes")
        return dict.fromkeys((X, Y), tuple(range(rank)))

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if normalised axes have no padding."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable) or signature.inputs[0] is None:
            return signature
        blocked = set(signature.inputs[0].format.blocked_axes) & set(self.normalised_axes(op))
        if blocked and has_padding(op.inputs[0], signature.inputs[0]):
            return Inapplicable("the mean would include padding elements")
        return signature

    @override
    def lower(self, op: Op, build: Builder) -> None:
        lower_directly(op, build, {"axes": positions(build.format(X), self.normalised_axes(op))})


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


# --- Fused residual sum and normalisation of rows of onnxruntime ---
#
#     s = x + skip + bias    y = (s - mean) / sqrt(variance + epsilon) * gamma + beta    or without mean and beta
#
# Rows run along the last axis. The fourth output of the op is s.


@register
class SkipNormalization(AxiswiseRule):
    """SkipLayerNormalization and its simplified form."""

    family = "normalization"
    ops = ("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
    formats = "any; rows must not be blocked; one kernel where they are innermost"
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY, "the sum as for Add")

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return {**dict.fromkeys(op.slots(), 0), X: 2}

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Operands are aligned with the last axes of x."""
        if any(output is not None for output in op.outputs[1:3]):
            return Inapplicable("the statistics are used")
        rank = rank_of(op.inputs[0])
        return {slot: tuple(range(rank - rank_of(op.operand(slot)), rank)) for slot in op.slots()}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the normalised axis cannot be blocked: the mean would include padding elements."""
        return "the normalised axis cannot be blocked" if axis == rank_of(op.inputs[0]) - 1 else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Finite for y with an epsilon, since padding is normalised in separate rows; for s the state of the sum."""
        addends = [index for index in (0, 1, len(op.inputs) - 1) if index < 2 or self._has_bias(op)]
        states = [broadcast_padding(op, signature, index, inputs[index]) for index in addends]
        added = max(states) if states.count(Padding.ZERO) >= len(states) - 1 else Padding.ANY
        finite = max(inputs) is not Padding.ANY and op.attributes.get("epsilon", 1e-12) != 0
        others = (Padding.ZERO, Padding.ZERO, added) if len(op.outputs) > 3 else ()
        return (Padding.FINITE if finite else Padding.ANY, *others)

    def _has_bias(self, op: Op) -> bool:
        index = 4 if op.op_type == "SkipLayerNormalization" else 3
        return len(op.inputs) > index and op.inputs[index] is not None

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether rows are contiguous, and x and skip have one shape of at most three physical axes."""
        if is_canonical(signature):
            return True
        x, skip = op.inputs[0], op.inputs[1]
        storages = [storage for storage in (*signature.inputs[:2], *signature.outputs) if storage is not None]
        alike = x is not None and skip is not None and x.shape == skip.shape
        return alike and all(len(each.format.parts) <= 3 and is_last_axis_innermost(each.format) for each in storages)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            super().lower(op, build)
