"""Q/DQ ops: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

    q = saturate(round(x / scale) + zero)        x = (q - zero) * scale

Scale and zero point are scalars (per tensor), vectors along one axis (per axis), or tensors of the rank of x that are shorter
along one axis by a factor (blocked quantisation). A vector has the format of its axis and is padded as that is.

With a scale per tensor, zero padding becomes the zero point when quantised, and minus the product of zero point and scale when
dequantised. Integers are never infinite, so where the scale is padded too, with zeros, dequantised padding is zero.
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
_ALONG_AXES = 13
_WIDEST = 16  # integers of at most so many bits are finite after scaling


def is_zero(op: Op, index: int) -> bool:
    """Whether a zero point is absent or a constant of zeros."""
    if index >= len(op.inputs) or op.inputs[index] is None:
        return True
    numbers = op.constant(index)
    return numbers is not None and not numbers.astype(np.float64).any()


def is_small_integer(value: Value | None) -> bool:
    """Whether the elements are integers of at most 16 bits, so that any of them is finite after scaling."""
    return value is not None and value.dtype is not None and not value.dtype.is_float and value.dtype.bits <= _WIDEST


def is_one_number(value: Value | None) -> bool:
    """Whether a scale or zero point is absent, a scalar, or a vector of one element."""
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
        return None if is_one_number(op.inputs[SCALE]) else op.integer("axis", 1) % rank_of(op.inputs[0])

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"x": X, "y": Y}

    def is_vector(self, op: Op) -> bool:
        """Whether the scale has one number per element of an axis."""
        scale = op.inputs[SCALE]
        return scale is not None and scale.rank == 1 and not op.integer("block_size")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond; a vector has one of them, a scale in blocks has all."""
        x, scale = present(op.inputs[0]), rank_of(op.inputs[SCALE])
        every = tuple(range(rank_of(x)))
        axes = {X: every, Y: every}
        axis = self.axis(op)
        if axis is not None:
            if not op.domain and op.version < _ALONG_AXES:
                return Inapplicable("quantisation per axis requires opset 13")
            own = (axis,) if self.is_vector(op) else every
            if not self.is_vector(op) and not x.is_constant:
                # At its default level; then x and the scales differ in the order of axes.
                return Inapplicable("onnxruntime moves Transposes past blocked quantisation, but not past its scales")
            if scale != len(own):
                return Inapplicable("the scale is neither a scalar, a vector nor a tensor of the same rank")
            given = (index for index in (SCALE, ZERO_POINT) if index < len(op.inputs) and op.inputs[index] is not None)
            axes |= {Slot("in", index): own for index in given}
        return axes

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The axis of blocked quantisation cannot be blocked."""
        in_blocks = axis == self.axis(op) and not self.is_vector(op)
        return "an axis with blocked quantisation cannot be blocked" if in_blocks else ""

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """False if the scale runs along an axis of several physical dimensions."""
        storage = signature.inputs[0]
        if storage is None or is_canonical(signature):
            return True
        axis = self.axis(op)
        return axis is None or storage.format.block(axis) == 1

    def lower(self, op: Op, build: Builder) -> None:
        """The op along the physical axis; adjacent parts of the axis are merged, otherwise the op runs in canonical order."""
        axis, format = self.axis(op), build.format(X)
        if axis is None or format.block(axis) == 1:
            lower_directly(op, build, {} if axis is None else {"axis": positions(format, (axis,))[0]})
            return
        dims, target = positions(format, (axis,)), present_type(build.output_type(0))
        whole = format.padded_shape(shape_of(op.inputs[0]))
        digits = tuple(sorted(dims, key=lambda position: -format.spans[position]))
        if digits == tuple(range(dims[0], dims[-1] + 1)):
            physical = shape_of(target)
            shape = (*physical[: digits[0]], whole[axis], *physical[digits[-1] + 1 :])
            inputs = [build.reshape(present(build.input(0)), shape), *self._vectors(op, build)]
            attributes = {**op.attributes, "axis": digits[0]}
            (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, shape)], attributes)
            build.set_output(0, build.reshape(result, physical))
            return
        inputs = [build.padded(0), *self._vectors(op, build)]
        (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, whole)], op.attributes)
        build.set_padded_output(0, result)

    def _vectors(self, op: Op, build: Builder) -> Sequence[Value | None]:
        """Scale and zero point along the padded axis."""
        return [build.padded(index) for index in range(1, len(op.inputs))]

    def has_own_padding(self, op: Op, signature: Signature) -> bool:
        """Whether the scale is padded wherever x is."""
        axis = self.axis(op)
        return (
            axis is not None and self.is_vector(op) and set(padded_axes_of(op.inputs[0], signature.inputs[0])) <= {axis}
        )


@register
class Quantize(QdqOp):
    """Floating point in, integers or narrow floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.FINITE, "the zero point")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero becomes the zero point. Integers of few bits are finite for every input."""
        if any(inputs[1:]):
            return None
        scale = op.constant(SCALE)
        divides = scale is not None and bool((scale.astype(np.float64) > 0).all())
        if inputs[0] is Padding.ZERO and divides and is_zero(op, ZERO_POINT):
            return (Padding.ZERO,)
        saturates = divides and op.integer("saturate", 1) == 1 and inputs[0] is not Padding.ANY
        return (Padding.FINITE if saturates or is_small_integer(op.outputs[0]) else Padding.ANY,)

    def _vectors(self, op: Op, build: Builder) -> Sequence[Value | None]:
        """Scale and zero point; the padding of a constant scale is one, since it divides."""
        scale, axis = op.constant(SCALE), self.axis(op)
        vectors = list(super()._vectors(op, build))
        assert axis is not None
        whole = build.format(X).padded_shape(shape_of(op.inputs[0]))[axis]
        if scale is not None and isinstance(whole, int) and whole > scale.size:
            spare = np.ones(whole - scale.size, scale.dtype)
            vectors[0] = build.constant(np.concatenate([scale, spare]), "scale")
        return vectors


@register
class Dequantize(QdqOp):
    """Integers in, floating point out."""

    ops: ClassVar[tuple[str, ...]] = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.FINITE, "zero where the scale is padded")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero where the scale is padded or the zero point is zero; otherwise as large as data."""
        if any(inputs[1:]):
            return None
        x = op.inputs[0]
        is_integer = x is not None and x.dtype is not None and not x.dtype.is_float
        if self.has_own_padding(op, signature) and (is_integer or inputs[0] is not Padding.ANY):
            return (Padding.ZERO,)
        if inputs[0] is Padding.ZERO and is_zero(op, ZERO_POINT):
            return (Padding.ZERO,)
        return (Padding.FINITE if is_small_integer(x) else max(Padding.FINITE, inputs[0]),)


@register
class DynamicQuantize(Elementwise, QuantizedOp):
    """Quantised per tensor, with scale and zero point computed from the range of the elements and zero."""

    family = "quantization"
    ops: ClassVar[tuple[str, ...]] = ("DynamicQuantizeLinear",)
    formats = "any"
    padding = PaddingTransfer(Padding.FINITE, None, None)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Scale and zero point are scalars."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {X: axes[X], Y: axes[Y]}
