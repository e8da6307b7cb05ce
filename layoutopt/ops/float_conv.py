"""Conv and ConvTranspose: convolutions that fold pads and affine maps, and may be linear maps over channels."""

from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Attribute, Op
from layoutopt.ops.base import register
from layoutopt.ops.conv import Convolution, TransposedConvolution
from layoutopt.ops.interfaces.affine import Affine, AffineFolding, Side, float_constant
from layoutopt.ops.interfaces.linear_map import LinearMap, LinearMapOp
from layoutopt.ops.interfaces.pads import PadFolding, Pads


class PadFoldingConvolution(Convolution, PadFolding):
    """A convolution with pads of zeros around its image."""

    def fold_pads(self, op: Op, pads: Pads) -> dict[str, Attribute] | None:
        """Zeros on the spatial axes are added to the pads."""
        x = op.inputs[0]
        if x is None or x.rank is None or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return None
        if any(axis < 2 for axis in pads):
            return None
        image = x.rank - 2
        own = op.integers("pads") or (0,) * (2 * image)
        ends = [pads.get(axis, (0, 0)) for axis in range(2, x.rank)]
        added = [before for before, _ in ends] + [behind for _, behind in ends]
        return {"auto_pad": "NOTSET", "pads": tuple(a + b for a, b in zip(own, added, strict=True))}


class AffineFoldingConvolution(Convolution, AffineFolding):
    """A convolution of floating-point numbers: its filter and bias absorb affine maps."""

    def fold_affine(self, op: Op, affine: Affine, side: Side) -> dict[int, Array] | None:
        """Scales are folded into the filter, shifts into the bias; shifts of the input only without pads."""
        w = float_constant(op, 1)
        if w is None or affine.axis not in (None, 1) or self.variant(op) == "grouped":
            return None
        b = _constant_bias(op, self._channels(op, w, "out"))
        if b is None:
            return None
        if side == "out":
            scale, shift = affine.broadcast_to(len(b))
            w *= _along(scale, self._weight_axis(op, "out"), w.ndim)
            return {1: w, **_bias(op, b * scale + shift)}
        scale, shift = affine.broadcast_to(self._channels(op, w, "in"))
        axis = self._weight_axis(op, "in")
        if affine.is_scale_only:
            w *= _along(scale, axis, w.ndim)
            return {1: w}
        pads = any(op.integers("pads")) or op.attributes.get("auto_pad", "NOTSET") != "NOTSET"
        if self.family != "convolution" or pads:
            return None
        added = (w * _along(shift, axis, w.ndim)).sum(axis=tuple(range(1, w.ndim)))
        return {1: w * _along(scale, axis, w.ndim), **_bias(op, b + added)}

    @override
    def operand_fault(self, op: Op) -> str:
        """The channels of the image are not those that the filter reads."""
        x, w = (each.shape or () if each is not None else () for each in op.inputs[:2])
        axis = self.weight_axes[0]
        if op.domain or len(x) < 2 or len(w) < 2 or not isinstance(x[1], int) or not isinstance(w[axis], int):
            return ""
        channels = w[axis] * (op.integer("group", 1) if axis else 1)
        return "" if x[1] == channels else f"the image has {x[1]} channels, and the filter reads {channels}"

    def _weight_axis(self, op: Op, side: Side) -> int:
        """The axis of the filter that runs along the channels of x or y; a depthwise filter has one axis for both."""
        if self.variant(op) == "depthwise":
            return 0
        return self.weight_axes[0] if side == "in" else self.weight_axes[1]

    def _channels(self, op: Op, w: Array, side: Side) -> int:
        return int(w.shape[self._weight_axis(op, side)])


@register
class Conv(PadFoldingConvolution, AffineFoldingConvolution, LinearMapOp):
    """The op of the standard domain."""

    ops: ClassVar[tuple[str, ...]] = ("Conv",)

    def mapped_axis(self, op: Op) -> int | None:
        """The channels of a dense convolution with a constant kernel of one element, strides of 1 and no pads."""
        x, w = op.inputs[0], op.inputs[1]
        if x is None or x.shape is None or w is None or w.data is None or w.shape is None:
            return None
        on_every = not any(op.integers("pads")) and all(step == 1 for step in op.integers("strides"))
        single = op.integer("group", 1) == 1 and all(dim == 1 for dim in w.shape[2:])
        return 1 if single and on_every else None

    @override
    def linear_map(self, op: Op) -> LinearMap | None:
        w = float_constant(op, 1)
        b = _constant_bias(op, w.shape[0]) if w is not None else None
        if w is None or b is None or self.mapped_axis(op) is None:
            return None
        return LinearMap(1, w.reshape(w.shape[:2]), b)

    @override
    def with_linear_map(self, op: Op, map: LinearMap) -> dict[int, Array] | None:
        rank = op.inputs[0].rank if op.inputs[0] is not None else None
        return {1: map.matrix.reshape((*map.matrix.shape, *(1,) * ((rank or 2) - 2))), **_bias(op, map.shift)}


@register
class ConvTranspose(TransposedConvolution, AffineFoldingConvolution):
    """The op of the standard domain. Its pads crop the result, so it folds no pads."""

    ops: ClassVar[tuple[str, ...]] = ("ConvTranspose",)


def _constant_bias(op: Op, channels: int) -> Array | None:
    """The bias of each output channel; None if it is computed, or of another length, which ONNX Runtime does not check."""
    if len(op.inputs) < 3 or op.inputs[2] is None:
        return np.zeros(channels)
    bias = float_constant(op, 2)
    return bias if bias is not None and bias.shape == (channels,) else None


def _bias(op: Op, bias: Array) -> dict[int, Array]:
    """The bias as a constant input, unless the op has none and none is needed."""
    return {2: bias} if bias.any() or (len(op.inputs) > 2 and op.inputs[2] is not None) else {}


def _along(numbers: Array, axis: int, rank: int) -> Array:
    """Numbers reshaped to broadcast along one axis."""
    return numbers.reshape([-1 if each == axis else 1 for each in range(rank)])


__all__ = ["AffineFoldingConvolution", "Conv", "ConvTranspose", "PadFoldingConvolution"]
