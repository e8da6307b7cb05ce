"""Normalisation: over batch and spatial axes per channel, over channels, or over the last axes.

Parameters per channel are vectors, blocked and padded as the channels of the input. Padding of the scale is zero, so finite
padding of the input becomes zero.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Op, Padding, Signature, Slot
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.affine import Affine, AffineFolding, AffineOp, Side, float_constant
from layoutopt.ops.interfaces.channel_permutation import without_permutation
from layoutopt.ops.interfaces.kernel_formats import KernelFormats
from layoutopt.ops.operands import chosen_signature, rank_of
from layoutopt.ops.padding_state import has_padding, padded_axes_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.pool import SpatialRule
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, is_canonical

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
