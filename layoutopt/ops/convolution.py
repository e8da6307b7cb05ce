"""The layout of convolutions: 1-D to 3-D, dense, grouped, depthwise, transposed.

    x (N, C, *spatial)   w (O, C/groups, *kernel)   b (O)   ->   y (N, O, *spatial)          Conv
                         w (C, O/groups, *kernel)                                            ConvTranspose

Each operand has a format of its own: a kernel whose input and output formats differ is a conversion at no cost. Padding of x is
multiplied by zero weights, so it may be any finite number. Padding of y is the sum of such products and a zero bias: zero.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Array, Attributes, Op, Padding, Signature, Slot
from layoutopt.ops.base import LayoutRule, add_rule, has_padding
from layoutopt.ops.interfaces import (
    FEATURE_MAPS,
    Affine,
    LinearMap,
    Pads,
    Side,
    float_constant,
)
from layoutopt.ops.qdq import is_absent_or_zero
from layoutopt.ops.signatures import (
    ANY,
    PADDING_REFUSED,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    X,
    Y,
    estimated_extent,
    present,
    rank_of,
    shape_of,
    signature_of,
    volume_of,
)

# --- Ops with a constant weight: they absorb affine maps, and may be linear maps over one axis ---


MixedAxes: TypeAlias = tuple[int, int, int]
"""The axis of x that an op mixes, and the axes of its weight along it and along the same axis of the result."""


class ConstantWeight(LayoutRule):
    """An op that is linear in its first input, with a weight: a constant weight and bias absorb affine maps.

    Scales are folded into the weight, shifts into the bias, which is input 2.

    Attributes:
        has_bias: whether the op may have a bias.
        has_activation: whether an activation follows, behind which nothing is folded.
        is_linear: whether the op is a linear map over one axis of its first input, with the weight as its matrix.
    """

    has_bias: ClassVar[bool] = True
    has_activation: ClassVar[bool] = False
    is_linear: ClassVar[bool] = True

    @abstractmethod
    def mixed_axes(self, op: Op) -> MixedAxes | None:
        """The axis that is mixed; None if the weight cannot absorb maps along one axis."""

    def shifts_result(self, op: Op) -> bool:
        """Whether a shift of the input is a shift of the result."""
        return True

    def constant_bias(self, op: Op, extent: int) -> Array | None:
        """The bias; None if it is computed, or of another length, which ONNX Runtime does not check."""
        if op.input(2) is None:
            return np.zeros(extent)
        bias = float_constant(op, 2)
        return bias if bias is not None and bias.shape == (extent,) else None

    def _with_bias(self, op: Op, weight: Array, bias: Array) -> dict[int, Array] | None:
        """The weight and, if one is given or needed, the bias as constant inputs; None if the op has no bias."""
        if not bias.any() and op.input(2) is None:
            return {1: weight}
        return {1: weight, 2: bias} if self.has_bias else None

    @override
    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        weight, axes = float_constant(op, 1), self.mixed_axes(op)
        if weight is None or axes is None or (side == "out" and self.has_activation):
            return None
        axis, in_axis, out_axis = axes
        bias = self.constant_bias(op, weight.shape[out_axis])
        if affine.axis not in (None, axis) or bias is None:
            return None
        scale, shift = affine.broadcast_to(weight.shape[in_axis if side == "in" else out_axis])
        if side == "out":
            bias = bias * scale + shift
        elif not affine.is_scale_only:
            if not self.shifts_result(op):
                return None
            others = tuple(each for each in range(weight.ndim) if each != out_axis)
            bias = bias + (weight * _along(shift, in_axis, weight.ndim)).sum(axis=others)
        weight *= _along(scale, in_axis if side == "in" else out_axis, weight.ndim)
        return {1: weight} if side == "in" and affine.is_scale_only else self._with_bias(op, weight, bias)

    @override
    def linear_map(self, op: Op) -> LinearMap | None:
        weight, axes = float_constant(op, 1), self.mixed_axes(op)
        if weight is None or axes is None or self.mapped_axis(op) is None:
            return None
        axis, _, out_axis = axes
        matrix = weight.reshape(weight.shape[:2])
        matrix = matrix.T if out_axis else matrix
        bias = self.constant_bias(op, len(matrix))
        return None if bias is None else LinearMap(axis, matrix, np.broadcast_to(bias.reshape(-1), matrix.shape[:1]))

    @override
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        axes, rank = self.mixed_axes(op), rank_of(op.inputs[1])
        if axes is None:
            return None
        matrix = map.matrix.T if axes[2] else map.matrix
        return self._with_bias(op, matrix.reshape((*matrix.shape, *(1,) * (rank - 2))), map.shift)


def _along(numbers: Array, axis: int, rank: int) -> Array:
    """Numbers reshaped to broadcast along one axis."""
    return numbers.reshape([-1 if each == axis else 1 for each in range(rank)])


def padding_after_activation(op: Op, state: Padding) -> Padding:
    """The padding state after the fused activation of an op, for padding of the given state before it."""
    return state if op.attributes.get("activation", "") in ("", "HardSwish", "Relu", "Tanh") else ANY


class Convolution(ConstantWeight):
    """The layout of a convolution: an anchor, whose formats are those of the target's kernels.

    Attributes:
        weight: the index of the filter among the inputs.
        weight_axes: the axes of the filter along the channels of x and of y.
        points: the operand at whose positions every weight is multiplied once.

    A transposed convolution has the input channels first in its filter. Its pads crop the result, so it folds no pads.
    """

    ops: ClassVar[tuple[str, ...]] = ("Conv",)

    family = "convolution"
    required = (Slot("in", 1),)
    formats = (
        "a format for each operand; channels may be blocked, with groups where they fill blocks or the filter is plain"
    )
    letters = FEATURE_MAPS
    padding = PaddingTransfer(ZERO, ZERO, None, "padding of filters must be zero")
    is_anchor = True
    weight: ClassVar[int] = 1
    weight_axes: ClassVar[tuple[int, int]] = (1, 0)
    points: ClassVar[Slot] = Y

    @override
    def inapplicability(self, op: Op) -> str:
        if self.is_channels_last(op):
            return "it is channels-last already"
        return "it adds a tensor to the result" if self.has_activation and op.input(3) is not None else ""

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
        groups = op.integer("group", 1)
        images = ((shape_of(value), storage) for value, storage in (operands[X], operands[Y]))
        return all(
            storage is None or estimated_extent(shape[1]) // groups % storage.format.block(1) == 0
            for shape, storage in images
        )

    def _weight_format(self, source: Format, shape: Shape) -> Format:
        """Channels and kernel axes in the order of x, both channel axes blocked as those of x unless of extent 1."""
        parts = [part for part in source.parts if not part.block or shape[part.axis] != 1]
        blocks = [
            Part(0, part.block, part.step) for part in source.parts if part.block and part.axis == 1 and shape[0] != 1
        ]
        return Format((*parts, *blocks))

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer of x, whose finite padding zero weights cancel; the padding of filters and parameters has to be zero."""
        state = None if any(inputs[1:]) else super().result_padding(op, signature, inputs)
        return None if state is None else padding_after_activation(op, state)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        # Channels-last ones have none, so no kernel of a target matches.
        return {} if self.is_channels_last(op) else {"x": X, "w": Slot("in", self.weight), "y": Y}

    def variant(self, op: Op) -> str:
        """Dense, depthwise (every channel is a group) or grouped."""
        groups = op.integer("group", 1)
        if groups == 1:
            return "dense"
        # of transposed ones no kernel distinguishes depthwise ones
        is_depthwise = self.points == Y and shape_of(op.inputs[self.weight])[:2] == (groups, 1)
        return "depthwise" if is_depthwise else "grouped"

    @override
    def flops(self, op: Op) -> float:
        counted = op.operand(self.points)
        channels = estimated_extent(shape_of(counted)[-1 if self.is_channels_last(op) else 1])
        return 2.0 * volume_of(op.inputs[self.weight]) * volume_of(counted) / max(channels, 1)

    def fold_pads(self, op: Op, pads: Pads) -> Attributes | None:
        """Zeros on the spatial axes are added to the pads."""
        if op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return None
        if self.points == X or any(axis < 2 for axis in pads):
            return None
        rank = rank_of(op.x)
        own = op.integers("pads") or (0,) * (2 * (rank - 2))
        ends = [pads.get(axis, (0, 0)) for axis in range(2, rank)]
        added = [before for before, _ in ends] + [behind for _, behind in ends]
        return {"auto_pad": "NOTSET", "pads": tuple(a + b for a, b in zip(own, added, strict=True))}

    def mixed_axes(self, op: Op) -> MixedAxes | None:
        """The channels; a depthwise filter has one axis for those of x and of y."""
        variant = self.variant(op)
        return None if variant == "grouped" else (1, 0, 0) if variant == "depthwise" else (1, *self.weight_axes)

    def shifts_result(self, op: Op) -> bool:
        """Whether there are no pads, which are not shifted."""
        has_pads = any(op.integers("pads")) or op.attributes.get("auto_pad", "NOTSET") != "NOTSET"
        return self.points == Y and not has_pads

    def mapped_axis(self, op: Op) -> int | None:
        """The channels of a dense convolution with a constant kernel of one element, strides of 1 and no pads."""
        on_every = not any(op.integers("pads")) and all(step == 1 for step in op.integers("strides"))
        single = op.integer("group", 1) == 1 and all(dim == 1 for dim in shape_of(op.inputs[1])[2:])
        return 1 if self.is_linear and present(op.inputs[1]).is_constant and single and on_every else None


add_rule(Convolution())
add_rule(
    Convolution(  # y = activation(Conv(x, w, b)): onnxruntime has fused them
        "com.microsoft::FusedConv",
        has_activation=True,
        is_linear=False,
        padding=PaddingTransfer(ZERO, ZERO, None, "any behind an activation of zero that is not zero"),
    )
)
add_rule(Convolution("ConvTranspose", family="transposed_convolution", weight_axes=(0, 1), points=X, is_linear=False))


# --- Convolutions of integers: QLinearConv, ConvInteger ---
#
#     y = saturate(round(sum (x - x_zero) * (w - w_zero) * x_scale * w_scale / y_scale) + y_zero)
#


class IntegerConvolution(Convolution):
    """The layout of convolutions of integers. Blocks have no padding.

    Attributes:
        zero_point: the input that is the zero point of the image.
    """

    is_quantized = True
    is_linear = False
    padding = PADDING_REFUSED
    zero_point: ClassVar[int] = 2

    def mixed_axes(self, op: Op) -> MixedAxes | None:
        """None: integers absorb no affine maps."""
        return None

    def fold_pads(self, op: Op, pads: Pads) -> Attributes | None:
        """The pads, if the zero point of the image is zero, since the op pads with the zero point; else None."""
        return super().fold_pads(op, pads) if is_absent_or_zero(op, self.zero_point) else None


add_rule(IntegerConvolution("QLinearConv", "com.microsoft::QLinearConv", weight=3))
add_rule(IntegerConvolution("ConvInteger"))
