"""The layout of convolutions: 1-D to 3-D, dense, grouped, depthwise, transposed.

    x (N, C, *spatial)   w (O, C/groups, *kernel)   b (O)   ->   y (N, O, *spatial)          Conv
                         w (C, O/groups, *kernel)                                            ConvTranspose

Each operand has a format of its own: a kernel whose input and output formats differ is a conversion at no cost. Padding of x is
multiplied by zero weights, so it may be any finite number. Padding of y is the sum of such products and a zero bias: zero.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Attribute, Op, Padding, Signature, Slot, TensorType
from layoutopt.ops.base import Builder, LayoutRule
from layoutopt.ops.interfaces.axis_letters import AxisLetters, feature_map_letters
from layoutopt.ops.interfaces.channel_permutation import (
    Channels,
    PermutableChannels,
    with_permutation,
    without_permutation,
)
from layoutopt.ops.operands import padded_output, present, shape_of
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
    signature_of,
)


class Convolution(LayoutRule, PermutableChannels, AxisLetters):
    """The layout of a convolution: an anchor, whose formats are those of the target's kernels.

    Attributes:
        weight: the index of the filter among the inputs.
    """

    family = "convolution"
    formats = (
        "a format for each operand; channels may be blocked, with groups where they fill blocks or the filter is plain"
    )
    padding = PaddingTransfer(Padding.ZERO, Padding.ZERO, None, "padding of filters must be zero")
    is_anchor = True
    weight: ClassVar[int] = 1

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys((X, Slot("in", self.weight), Y), 0)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats; other operands take the order of axes of x or y, the bias that of the output channels."""
        weight = Slot("in", self.weight)
        x, w, y = (shape_of(op.operand(slot)) for slot in (X, weight, Y))
        source = known.get(X) or known.get(Y)
        if source is None or len(x) != len(w):
            return Inapplicable("neither the format of the input nor of the output is given")
        if any(not isinstance(dim, int) for dim in (x[1], y[1], *w[:2])):
            return Inapplicable("the number of channels is unknown")
        formats = {X: source, Y: source, weight: self._weight_format(source, w), **known}
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
        """Whether every block has channels of one group and no operand has padding."""
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

    def _weight_format(self, source: Format, shape: Shape) -> Format:
        """Channels and kernel axes in the order of x, both channel axes blocked as those of x unless of extent 1."""
        parts = [part for part in source.parts if not part.block or shape[part.axis] != 1]
        blocks = [
            Part(0, part.block, part.step) for part in source.parts if part.block and part.axis == 1 and shape[0] != 1
        ]
        return Format((*parts, *blocks))

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of x, whose finite padding zero weights cancel; the padding of filters and parameters has to be zero."""
        return None if any(inputs[1:]) else super().transfer_padding(op, signature, inputs)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "w": Slot("in", self.weight), "y": Y}

    @override
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        return feature_map_letters(op, X, Y)

    def channels(self, op: Op) -> list[Channels]:
        """The groups of axes that are the same channels and that kernels may have in any order."""
        weight, numbers = Slot("in", self.weight), [(Slot("in", index), 0) for index in self.per_channel_inputs(op)]
        in_axis, out_axis = self.weight_axes
        if self.variant(op) == "depthwise":
            return [[(X, 1), (weight, 0), (Y, 1), *numbers]]
        return (
            [[(X, 1), (weight, in_axis)], [(weight, out_axis), (Y, 1), *numbers]] if self.variant(op) == "dense" else []
        )

    def permuted_formats(self, op: Op, base: OperandFormats, slot: Slot, format: Format) -> OperandFormats | None:
        """Channels of x or y in the order of one operand, with the filter permuted the same way."""
        kept = {X, Y, *(each for group in self.channels(op) for each, _ in group)}
        known = {each: own for each, own in base.items() if each in kept}
        found = (with_permutation(op, known, slot, format, group) for group in self.channels(op))
        return next((each for each in found if each is not None), None)

    @override
    def kernel_formats(self, op: Op, formats: OperandFormats) -> OperandFormats:
        for group in self.channels(op):
            formats = without_permutation(op, formats, group)
        return formats

    def variant(self, op: Op) -> str:
        """Dense, depthwise (every channel is a group) or grouped."""
        groups = op.integer("group", 1)
        if groups == 1:
            return "dense"
        w = op.inputs[self.weight]
        return "depthwise" if w is not None and w.shape is not None and w.shape[:2] == (groups, 1) else "grouped"

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """ONNX has only the canonical convolution."""
        return is_canonical(signature)

    def lower(self, op: Op, build: Builder) -> None:
        """The canonical convolution on padded arrays; padding that operands do not share is cut off."""
        inputs = [build.padded(index) for index in range(len(op.inputs))]
        x, w, y_type = present(inputs[0]), present(inputs[self.weight]), padded_output(op)
        y_shape = shape_of(y_type)
        channels, in_channels, out_channels = (
            shape_of(x)[1],
            estimated_extent(shape_of(w)[self.weight_axes[0]]),
            estimated_extent(y_shape[1]),
        )
        attributes: Mapping[str, Attribute] = op.attributes
        in_axis, out_axis = self.weight_axes
        filters = estimated_extent(shape_of(w)[out_axis])
        if self.variant(op) == "depthwise":
            # One group per channel: padding channels are groups with zero weights.
            x = build.resize_axis(x, 1, out_channels)
            w = build.resize_axis(build.resize_axis(w, 0, out_channels), 1, 1)
            attributes = {**op.attributes, "group": out_channels}
        elif self.variant(op) == "dense":
            if isinstance(channels, int) and channels != in_channels:
                x = build.resize_axis(x, 1, min(channels, in_channels))
                w = build.resize_axis(w, in_axis, min(channels, in_channels))
            w = build.resize_axis(w, out_axis, out_channels)
        elif isinstance(channels, int):
            # Padding channels belong to no group.
            groups = op.integer("group", 1)
            x = build.resize_axis(x, 1, in_channels * (groups if in_axis else 1))
            out_channels = filters * (1 if in_axis else groups)
        inputs[0], inputs[self.weight] = x, w
        for index in self.per_channel_inputs(op):
            numbers = inputs[index]
            inputs[index] = numbers and build.resize_axis(numbers, 0, out_channels)
        type = TensorType(y_type.dtype, (y_shape[0], out_channels, *y_shape[2:]))
        (y,) = build.op(op.op_type, inputs, [type], attributes)
        build.set_padded_output(0, build.resize_axis(y, 1, estimated_extent(y_shape[1])))

    def per_channel_inputs(self, op: Op) -> tuple[int, ...]:
        """The inputs with one number per channel of the result."""
        return (2,) if len(op.inputs) > 2 else ()

    weight_axes = (1, 0)

    @override
    def flops(self, op: Op) -> float:
        w, y = shape_of(op.inputs[self.weight]), shape_of(op.outputs[0])
        return 2.0 * estimated_volume(w) * estimated_volume(y) / max(estimated_extent(y[1]), 1)


class TransposedConvolution(Convolution):
    """The layout of a transposed convolution: the weight has the input channels first."""

    family = "transposed_convolution"
    weight_axes = (0, 1)

    @override
    def variant(self, op: Op) -> str:
        # Depthwise ones count as grouped: no kernel distinguishes them.
        return "dense" if op.integer("group", 1) == 1 else "grouped"

    @override
    def flops(self, op: Op) -> float:
        w, x = shape_of(op.inputs[1]), shape_of(op.inputs[0])
        return 2.0 * estimated_volume(w) * estimated_volume(x) / max(estimated_extent(x[1]), 1)


__all__ = ["Convolution", "TransposedConvolution"]
