"""Normalisation: over batches and space per channel, over channels, or over the last axes.

Per-channel parameters are one-dimensional; they are blocked and padded as the channels of the input are. With a scale
of zero in the lanes, whatever finite thing stands there comes out as zero.
"""

import numpy as np

from layoutopt.ir.types import Array, Lanes, Op, Signature, Slot
from layoutopt.ops.affine import Affine, float_constant
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, Side, register
from layoutopt.ops.lanes import laned_axes
from layoutopt.ops.pool import Spatial
from layoutopt.ops.signatures import Inapplicable, X, Y, is_canonical


@register
class ChannelNormalization(Spatial):
    """BatchNormalization (at inference) and InstanceNormalization: parameters per channel."""

    family = "normalization"
    ops = ("BatchNormalization", "InstanceNormalization")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The parameters run along the channels."""
        if op.integer("training_mode"):
            return Inapplicable("it is in training mode")
        x = op.inputs[0]
        if x is None or x.rank is None or x.rank < 2:
            return Inapplicable("the input is not known to have channels")
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        parameters = [Slot("in", index) for index in range(1, len(op.inputs))]
        return {**dict.fromkeys((X, Y), tuple(range(x.rank))), **dict.fromkeys(parameters, (1,))}

    def affine(self, op: Op) -> Affine | None:
        """BatchNormalization with constant statistics: (x - mean) / sqrt(var + epsilon) * scale + bias."""
        if op.op_type != "BatchNormalization" or isinstance(self.axes(op), Inapplicable):
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

    def absorb(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """An affine of the output goes into scale and bias."""
        scale, bias = float_constant(op, 1), float_constant(op, 2)
        if side == "in" or affine.axis not in (None, 1) or scale is None or bias is None:
            return None
        factor, shift = affine.along(scale.size)
        return {1: scale * factor, 2: bias * factor + shift}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """(finite - 0) / sqrt(0 + epsilon) * 0 + 0, which needs an epsilon; lanes of the batch get scale and bias."""
        if 0 in laned_axes(op.inputs[0], signature.inputs[0]):
            return (Lanes.ANY,)
        if op.attributes.get("epsilon", 1e-5) == 0:
            return None if any(inputs) else (Lanes.ANY,)
        return None if inputs[0] is Lanes.ANY or any(inputs[1:]) else (Lanes.ZERO,)


@register
class LocalResponse(Spatial):
    """LRN: neighbouring channels are read, so the lanes next to the last one have to be zero."""

    family = "normalization"
    ops = ("LRN",)

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Zero over something positive, if there is a bias."""
        if inputs[0] is not Lanes.ZERO:
            return None
        bias = op.attributes.get("bias", 1.0)
        return (Lanes.ZERO if isinstance(bias, float) and bias > 0 else Lanes.ANY,)


@register
class LayerNormalization(AxiswiseRule):
    """Over the last axes, from attribute `axis` on; scale and bias have these axes."""

    family = "normalization"
    ops = ("LayerNormalization", "RMSNormalization")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """All axes correspond; scale and bias are aligned with the last ones."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return Inapplicable("the rank is unknown")
        if any(output is not None for output in op.outputs[1:]):
            return Inapplicable("an output beyond the first is used")
        every = tuple(range(x.rank))
        axes = {X: every, Y: every}
        for index, value in enumerate(op.inputs[1:], 1):
            if value is not None:
                if value.rank is None:
                    return Inapplicable("the rank of a parameter is unknown")
                axes[Slot("in", index)] = every[x.rank - value.rank :]
        return axes

    def first_axis(self, op: Op) -> int:
        """Where the normalised axes begin."""
        x = op.inputs[0]
        assert x is not None and x.rank is not None
        return op.integer("axis", -1) % x.rank

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Lanes would count in the mean."""
        return "a normalised axis cannot be blocked" if axis >= self.first_axis(op) else ""

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Lanes are rows of their own; normalised, they are at most the square root of their length, plus the bias."""
        epsilon = op.attributes.get("epsilon", 1e-5)
        return (Lanes.ANY if inputs[0] is Lanes.ANY or epsilon == 0 else Lanes.FINITE,)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Where the normalised axes are the innermost ones, in their order."""
        x = signature.inputs[0]
        if x is None:
            return True
        tail = tuple(range(self.first_axis(op), x.format.rank))
        inner = x.format.parts[len(x.format.parts) - len(tail) :]
        return is_canonical(signature) or tuple(part.axis for part in inner) == tail

    def lower(self, op: Op, build: Builder) -> None:
        """The same op with its axis counted from the end."""
        x = op.inputs[0]
        assert op.signature is not None and x is not None and x.rank is not None
        if not self.is_direct(op, op.signature):
            super().lower(op, build)
            return
        axis = self.first_axis(op) - x.rank
        inputs = [build.input(index) for index in range(len(op.inputs))]
        (result,) = build.op(op.op_type, inputs, [build.output_type(0)], {**op.attributes, "axis": axis})
        build.set_output(0, result)
