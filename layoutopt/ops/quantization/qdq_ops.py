"""Q/DQ ops: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

    q = saturate(round(x / scale) + zero)        x = (q - zero) * scale

Scale and zero point are scalars (per tensor), vectors along one axis (per axis), or tensors of the rank of x that are shorter
along one axis by a factor (blocked quantisation). A vector has the format and the padding of its axis of x.

With a scale per tensor, QuantizeLinear makes zero padding the zero point, and DequantizeLinear makes it -zero * scale. Where
the scale is padded with zeros, DequantizeLinear makes any integer zero, since integers are finite.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axis import positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.elementwise import Elementwise
from layoutopt.ops.interfaces.numerics import QuantizedOp
from layoutopt.ops.operands import present, present_type, rank_of, shape_of
from layoutopt.ops.padding_state import padded_axes_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y, is_canonical

SCALE, ZERO_POINT = 1, 2
_PER_AXIS_OPSET = 13
_MAX_FINITE_BITS = 16  # integers of at most 16 bits are finite after scaling


def is_absent_or_zero(op: Op, index: int) -> bool:
    """Whether a zero point is absent or a constant of zeros."""
    if index >= len(op.inputs) or op.inputs[index] is None:
        return True
    numbers = op.constant(index)
    return numbers is not None and not numbers.astype(np.float64).any()


def is_small_integer(value: Value | None) -> bool:
    """Whether the elements are integers of at most 16 bits, so that any of them is finite after scaling."""
    return (
        value is not None
        and value.dtype is not None
        and not value.dtype.is_float
        and value.dtype.bits <= _MAX_FINITE_BITS
    )


def is_per_tensor(value: Value | None) -> bool:
    """Whether a scale or zero point is one number for the whole tensor: absent, a scalar, or a vector of one element."""
    return value is None or value.shape in ((), (1,))


class QdqOp(AxiswiseRule, QuantizedOp):
    """A conversion between floating point and integers with a scale."""

    family = "quantization"
    formats = (
        "any; scales follow their axis; with blocked quantisation x must be constant and the axis must not be blocked"
    )
    ranks = MappingProxyType({X: 1, Slot("in", SCALE): 0})

    def axis(self, op: Op) -> int | None:
        """The axis of x that the scale runs along; None for a scale per tensor."""
        return None if is_per_tensor(op.inputs[SCALE]) else op.integer("axis", 1) % rank_of(op.inputs[0])

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "y": Y}

    def is_per_axis(self, op: Op) -> bool:
        """Whether the scale is a vector along one axis."""
        scale = op.inputs[SCALE]
        return scale is not None and scale.rank == 1 and not op.integer("block_size")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """y has the axes of x; the scale and the zero point have one of them if per axis, all of them if blocked."""
        x, scale = present(op.inputs[0]), rank_of(op.inputs[SCALE])
        all_axes = tuple(range(rank_of(x)))
        axes = {X: all_axes, Y: all_axes}
        axis = self.axis(op)
        if axis is not None:
            if not op.domain and op.version < _PER_AXIS_OPSET:
                return Inapplicable("quantisation per axis requires opset 13")
            own = (axis,) if self.is_per_axis(op) else all_axes
            if not self.is_per_axis(op) and not x.is_constant:
                # The default optimisations of onnxruntime move a Transpose of x past the op, which then has x and the
                # scales in different orders of axes.
                return Inapplicable("onnxruntime moves Transposes past blocked quantisation, but not past its scales")
            if scale != len(own):
                return Inapplicable("the scale is neither a scalar, a vector nor a tensor of the same rank")
            given = (index for index in (SCALE, ZERO_POINT) if index < len(op.inputs) and op.inputs[index] is not None)
            axes |= {Slot("in", index): own for index in given}
        return axes

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the axis of blocked quantisation cannot be blocked; empty for other axes."""
        is_blocked = axis == self.axis(op) and not self.is_per_axis(op)
        return "an axis with blocked quantisation cannot be blocked" if is_blocked else ""

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether the scale runs along an axis of one physical dimension, or is per tensor."""
        storage = signature.inputs[0]
        if storage is None or is_canonical(signature):
            return True
        axis = self.axis(op)
        return axis is None or storage.format.block(axis) == 1

    def lower(self, op: Op, build: Builder) -> None:
        """Lower to the op along the physical dimension of the axis.

        Several physical dimensions of the axis are merged if they are adjacent and ordered from major to minor; otherwise the
        op runs in the canonical format.
        """
        axis, format = self.axis(op), build.format(X)
        if axis is None or format.block(axis) == 1:
            lower_directly(op, build, {} if axis is None else {"axis": positions(format, (axis,))[0]})
            return
        dims, target = positions(format, (axis,)), present_type(build.output_type(0))
        padded = format.padded_shape(shape_of(op.inputs[0]))
        digits = tuple(sorted(dims, key=lambda position: -format.spans[position]))
        if digits == tuple(range(dims[0], dims[-1] + 1)):
            physical = shape_of(target)
            shape = (*physical[: digits[0]], padded[axis], *physical[digits[-1] + 1 :])
            inputs = [build.reshape(present(build.input(0)), shape), *self._scale_and_zero_point(op, build)]
            attributes = {**op.attributes, "axis": digits[0]}
            (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, shape)], attributes)
            build.set_output(0, build.reshape(result, physical))
            return
        inputs = [build.padded(0), *self._scale_and_zero_point(op, build)]
        (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, padded)], op.attributes)
        build.set_padded_output(0, result)

    def _scale_and_zero_point(self, op: Op, build: Builder) -> Sequence[Value | None]:
        """Scale and zero point along the padded axis."""
        return [build.padded(index) for index in range(1, len(op.inputs))]

    def is_scale_padded(self, op: Op, signature: Signature) -> bool:
        """Whether every padded axis of x is the axis of a per-axis scale, so that the scale is padded, too."""
        axis = self.axis(op)
        return (
            axis is not None
            and self.is_per_axis(op)
            and set(padded_axes_of(op.inputs[0], signature.inputs[0])) <= {axis}
        )


@register
class Quantize(QdqOp):
    """Floating point in, integers or narrow floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.FINITE, "the zero point")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero if zero is quantised to zero; finite for integers of at most 16 bits, or for finite inputs; else any."""
        if any(inputs[1:]):
            return None
        scale = op.constant(SCALE)
        is_positive = scale is not None and bool((scale.astype(np.float64) > 0).all())
        if inputs[0] is Padding.ZERO and is_positive and is_absent_or_zero(op, ZERO_POINT):
            return (Padding.ZERO,)
        is_bounded = is_positive and op.integer("saturate", 1) == 1 and inputs[0] is not Padding.ANY
        return (Padding.FINITE if is_bounded or is_small_integer(op.outputs[0]) else Padding.ANY,)

    def _scale_and_zero_point(self, op: Op, build: Builder) -> Sequence[Value | None]:
        """Scale and zero point along the padded axis; a constant scale is padded with ones, since the op divides by it."""
        scale, axis = op.constant(SCALE), self.axis(op)
        operands = list(super()._scale_and_zero_point(op, build))
        assert axis is not None
        extent = build.format(X).padded_shape(shape_of(op.inputs[0]))[axis]
        if scale is not None and isinstance(extent, int) and extent > scale.size:
            ones = np.ones(extent - scale.size, scale.dtype)
            operands[0] = build.constant(np.concatenate([scale, ones]), "scale")
        return operands


@register
class Dequantize(QdqOp):
    """Integers in, floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.FINITE, "zero where the scale is padded")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero where the scale is padded, or zero is dequantised with zero point 0; else at least finite, by the state of x."""
        if any(inputs[1:]):
            return None
        x = op.inputs[0]
        is_integer = x is not None and x.dtype is not None and not x.dtype.is_float
        if self.is_scale_padded(op, signature) and (is_integer or inputs[0] is not Padding.ANY):
            return (Padding.ZERO,)
        if inputs[0] is Padding.ZERO and is_absent_or_zero(op, ZERO_POINT):
            return (Padding.ZERO,)
        return (Padding.FINITE if is_small_integer(x) else max(Padding.FINITE, inputs[0]),)


@register
class DynamicQuantize(Elementwise, QuantizedOp):
    """Quantised per tensor; the op computes scale and zero point from the range of the elements, extended to zero."""

    family = "quantization"
    ops: ClassVar[tuple[str, ...]] = ("DynamicQuantizeLinear",)
    formats = "any"
    padding = PaddingTransfer(Padding.FINITE, None, None)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Scale and zero point are scalars."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {X: axes[X], Y: axes[Y]}
