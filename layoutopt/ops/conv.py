"""Convolutions: 1-D to 3-D, dense, grouped, depthwise, transposed.

    x (N, C, *spatial)   w (O, C/groups, *kernel)   b (O)   ->   y (N, O, *spatial)          Conv
                         w (C, O/groups, *kernel)                                            ConvTranspose

Each operand has a format of its own: kernels whose input and output formats differ are a free cast. Lanes of x meet
zero weights, so they may hold anything finite; lanes of y are the sums of zero weights and a zero bias, so they are
zero.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Array, Attribute, Lanes, Op, Signature, Slot, TensorType
from layoutopt.ops.base import Builder, LayoutRule, Pads, Side, register
from layoutopt.ops.interfaces.affine import Affine, float_constant
from layoutopt.ops.interfaces.channel_permutation import Channels, regular, reordered
from layoutopt.ops.interfaces.linear_map import LinearMap
from layoutopt.ops.padding_state import has_padding
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import (
    Inapplicable,
    OperandFormats,
    X,
    Y,
    estimated_extent,
    estimated_volume,
    is_canonical,
    padded_type,
    signature_of,
)


@register
class Convolution(LayoutRule):
    """Conv: an anchor; its formats are those of the target's kernels.

    Attributes:
        weight: which input the filter is.
    """

    family = "convolution"
    ops: ClassVar[tuple[str, ...]] = ("Conv",)
    formats = (
        "a format for each operand; channels may be blocked, with groups where they fill blocks or the filter is plain"
    )
    becomes = PaddingTransfer(Lanes.ZERO, Lanes.ZERO, None, "filters must have zeros")
    is_anchor = True
    weight: ClassVar[int] = 1

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats; an operand that is not known follows x, the bias follows the output channels."""
        weight = Slot("in", self.weight)
        x, w, y = (op.operand(slot) for slot in (X, weight, Y))
        if x is None or w is None or y is None or x.shape is None or w.shape is None or y.shape is None:
            return Inapplicable("the rank of an operand is unknown")
        lead = known.get(X) or known.get(Y)
        if lead is None or len(x.shape) != len(w.shape):
            return Inapplicable("neither the format of the input nor of the output is given")
        if any(isinstance(dim, str) for dim in (x.shape[1], y.shape[1], *w.shape[:2])):
            return Inapplicable("the number of channels is unknown")
        formats = {X: lead, Y: lead, weight: self._weight_format(lead, w.shape), **known}
        for slot, format in formats.items():
            if not {1 if slot in (X, Y) else 0, 1}.issuperset(format.blocked_axes):
                return Inapplicable("only channels can be blocked")
        signature = signature_of(op, formats)
        if isinstance(signature, Inapplicable):
            return signature
        filter = signature[weight]
        is_blocked = filter is not None and not filter.format.is_plain
        if self.variant(op) == "grouped" and is_blocked and not self._groups_fill_blocks(op, signature):
            return Inapplicable("the channels of a group do not fill whole blocks")
        return signature

    def _groups_fill_blocks(self, op: Op, signature: Signature) -> bool:
        """Whether no block has channels of two groups, and none has lanes."""
        operands = {slot: (op.operand(slot), signature[slot]) for slot in (X, Slot("in", self.weight), Y)}
        if any(has_padding(value, storage) for value, storage in operands.values()):
            return False
        images = [
            (value, storage) for value, storage in (operands[X], operands[Y]) if value and value.shape and storage
        ]
        groups = op.integer("group", 1)
        return not any(
            estimated_extent(value.shape[1]) // groups % storage.format.block(1)
            for value, storage in images
            if value.shape
        )

    def _weight_format(self, lead: Format, shape: Shape) -> Format:
        """Channels and space in the order of x, both channel axes blocked as those of x, unless of extent 1."""
        parts = [part for part in lead.parts if not part.block or shape[part.axis] != 1]
        blocks = [
            Part(0, part.block, part.step) for part in lead.parts if part.block and part.axis == 1 and shape[0] != 1
        ]
        return Format((*parts, *blocks))

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Finite lanes of x meet zero weights."""
        return None if inputs[0] is Lanes.ANY or any(inputs[1:]) else (Lanes.ZERO,)

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """Image, filter, result."""
        return {"x": X, "w": Slot("in", self.weight), "y": Y}

    def channels(self, op: Op) -> list[Channels]:
        """The axes that are the same channels, those that the kernel does not tell apart."""
        weight, numbers = Slot("in", self.weight), [(Slot("in", index), 0) for index in self.along_channels(op)]
        in_axis, out_axis = self.weight_axes
        if self.variant(op) == "depthwise":
            return [[(X, 1), (weight, 0), (Y, 1), *numbers]]
        return (
            [[(X, 1), (weight, in_axis)], [(weight, out_axis), (Y, 1), *numbers]] if self.variant(op) == "dense" else []
        )

    def reordered(self, op: Op, base: OperandFormats, slot: Slot, format: Format) -> OperandFormats | None:
        """Channels of x in another order meet weights in that order; so do those of y, and come out in it."""
        kept = {X, Y, *(each for group in self.channels(op) for each, _ in group)}
        known = {each: lies for each, lies in base.items() if each in kept}
        found = (reordered(op, known, slot, format, group) for group in self.channels(op))
        return next((each for each in found if each is not None), None)

    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        """Channels in their own order."""
        for group in self.channels(op):
            formats = regular(op, formats, group)
        return formats

    def variant(self, op: Op) -> str:
        """Dense, depthwise (every channel is a group) or grouped."""
        groups = op.integer("group", 1)
        if groups == 1:
            return "dense"
        w = op.inputs[self.weight]
        return "depthwise" if w is not None and w.shape is not None and w.shape[:2] == (groups, 1) else "grouped"

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """ONNX has no convolution but the canonical one."""
        return is_canonical(signature)

    def lower(self, op: Op, build: Builder) -> None:
        """The canonical convolution on padded arrays; where paddings of operands differ the spare lanes are cut."""
        assert op.signature is not None
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        x, w = inputs[0], inputs[self.weight]
        y_type = padded_type(op.outputs[0], op.signature.outputs[0])
        assert x is not None and w is not None and x.shape is not None and w.shape is not None
        assert y_type is not None and y_type.shape is not None
        channels, wanted, out_channels = (
            x.shape[1],
            estimated_extent(w.shape[self.weight_axes[0]]),
            estimated_extent(y_type.shape[1]),
        )
        attributes: Mapping[str, Attribute] = op.attributes
        in_axis, out_axis = self.weight_axes
        filters = estimated_extent(w.shape[out_axis])
        if self.variant(op) == "depthwise":
            # One group per channel: lanes are groups of their own, with zero weights.
            x = build.resize_axis(x, 1, out_channels)
            w = build.resize_axis(build.resize_axis(w, 0, out_channels), 1, 1)
            attributes = {**op.attributes, "group": out_channels}
        elif self.variant(op) == "dense":
            if isinstance(channels, int) and channels != wanted:
                x = build.resize_axis(x, 1, min(channels, wanted))
                w = build.resize_axis(w, in_axis, min(channels, wanted))
            w = build.resize_axis(w, out_axis, out_channels)
        elif isinstance(channels, int):
            # Lanes are behind the last group, and belong to none.
            groups = op.integer("group", 1)
            x = build.resize_axis(x, 1, wanted * (groups if in_axis else 1))
            out_channels = filters * (1 if in_axis else groups)
        inputs[0], inputs[self.weight] = x, w
        for index in self.along_channels(op):
            numbers = inputs[index]
            inputs[index] = numbers and build.resize_axis(numbers, 0, out_channels)
        type = TensorType(y_type.dtype, (y_type.shape[0], out_channels, *y_type.shape[2:]))
        (y,) = build.op(op.op_type, inputs, [type], attributes)
        build.set_padded_output(0, build.resize_axis(y, 1, estimated_extent(y_type.shape[1])))

    def along_channels(self, op: Op) -> tuple[int, ...]:
        """The inputs that have one number per channel of the result."""
        return (2,) if len(op.inputs) > 2 else ()

    weight_axes = (1, 0)

    def fold_pads(self, op: Op, padding: Pads) -> dict[str, Attribute] | None:
        """Zeros around the image are what a convolution pads with."""
        x = op.inputs[0]
        if x is None or x.rank is None or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return None
        if any(axis < 2 for axis in padding):
            return None
        image = x.rank - 2
        own = op.integers("pads") or (0,) * (2 * image)
        ends = [padding.get(axis, (0, 0)) for axis in range(2, x.rank)]
        added = [before for before, _ in ends] + [behind for _, behind in ends]
        return {"auto_pad": "NOTSET", "pads": tuple(a + b for a, b in zip(own, added, strict=True))}

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """Scaled weights; what is added goes into the bias, on the input side only if no zeros are padded."""
        w = float_constant(op, 1)
        b = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if w is None or b is None or affine.axis not in (None, 1) or self.variant(op) == "grouped":
            return None
        if side == "out":
            scale, shift = affine.along(self._channels(op, w, "out"))
            bias = np.broadcast_to(b, scale.shape) * scale + shift
            return {1: w * _along(scale, self._weight_axis(op, "out"), w.ndim), **self._bias(op, bias)}
        scale, shift = affine.along(self._channels(op, w, "in"))
        axis = self._weight_axis(op, "in")
        if affine.only_scales:
            return {1: w * _along(scale, axis, w.ndim)}
        pads = any(op.integers("pads")) or op.attributes.get("auto_pad", "NOTSET") != "NOTSET"
        if self.family != "convolution" or pads:
            return None
        added = (w * _along(shift, axis, w.ndim)).sum(axis=tuple(range(1, w.ndim)))
        return {1: w * _along(scale, axis, w.ndim), **self._bias(op, np.broadcast_to(b, added.shape) + added)}

    def mapped_axis(self, op: Op) -> int | None:
        """The channels, if it is dense and its kernel is one element that stands on every element once."""
        x, w = op.inputs[0], op.inputs[1]
        if x is None or x.shape is None or w is None or w.data is None or w.shape is None:
            return None
        on_every = not any(op.integers("pads")) and all(step == 1 for step in op.integers("strides"))
        single = op.integer("group", 1) == 1 and all(dim == 1 for dim in w.shape[2:])
        return 1 if single and on_every else None

    def linear_map(self, op: Op) -> LinearMap | None:
        """The weight and the bias."""
        w = float_constant(op, 1)
        b = float_constant(op, 2) if len(op.inputs) > 2 and op.inputs[2] is not None else np.zeros(1)
        if w is None or b is None or self.mapped_axis(op) is None:
            return None
        return LinearMap(1, w.reshape(w.shape[:2]), np.broadcast_to(b, w.shape[:1]))

    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        """Weight and bias."""
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return {1: map.matrix.reshape((*map.matrix.shape, *(1,) * ((rank or 2) - 2))), **self._bias(op, map.shift)}

    def _weight_axis(self, op: Op, side: Side) -> int:
        """The axis of the weight that runs along the channels of x or y; a depthwise one has one for both."""
        if self.variant(op) == "depthwise":
            return 0
        return self.weight_axes[0] if side == "in" else self.weight_axes[1]

    def _channels(self, op: Op, w: Array, side: Side) -> int:
        return int(w.shape[self._weight_axis(op, side)])

    def _bias(self, op: Op, bias: Array) -> dict[int, Array]:
        """The bias, unless there was none and none is needed."""
        return {2: bias} if bias.any() or (len(op.inputs) > 2 and op.inputs[2] is not None) else {}

    def flops(self, op: Op) -> float:
        """Two per weight and position of the output."""
        w, y = op.inputs[self.weight], op.outputs[0]
        assert w is not None and y is not None and w.shape is not None and y.shape is not None
        return 2.0 * estimated_volume(w.shape) * estimated_volume(y.shape) / max(estimated_extent(y.shape[1]), 1)


def _along(numbers: Array, axis: int, rank: int) -> Array:
    """Numbers shaped to broadcast along one axis."""
    return numbers.reshape([-1 if each == axis else 1 for each in range(rank)])


@register
class TransposedConvolution(Convolution):
    """ConvTranspose: the weight has the input channels first."""

    family = "transposed_convolution"
    ops: ClassVar[tuple[str, ...]] = ("ConvTranspose",)
    weight_axes = (0, 1)

    def fold_pads(self, op: Op, padding: Pads) -> dict[str, Attribute] | None:
        """Its pads cut the result."""
        del op, padding
        return None

    def mapped_axis(self, op: Op) -> int | None:
        """None: with a kernel of one element it is a rare way to write a Conv."""
        del op
        return None

    def variant(self, op: Op) -> str:
        """Depthwise ones count as grouped: no kernel tells them apart."""
        return "dense" if op.integer("group", 1) == 1 else "grouped"

    def flops(self, op: Op) -> float:
        """Two per weight and position of the input."""
        w, x = op.inputs[1], op.inputs[0]
        assert w is not None and x is not None and w.shape is not None and x.shape is not None
        return 2.0 * estimated_volume(w.shape) * estimated_volume(x.shape) / max(estimated_extent(x.shape[1]), 1)


__all__ = ["Convolution", "TransposedConvolution"]
