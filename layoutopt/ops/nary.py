"""Element-wise ops of several operands, broadcast to one shape."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import register
from layoutopt.ops.elementwise import Elementwise, broadcast_padding
from layoutopt.ops.interfaces.affine import Affine, AffineOp, along_one_axis, float_constant
from layoutopt.ops.interfaces.broadcasting import BroadcastingOp
from layoutopt.ops.padding_state import has_padding
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable

ZERO, FINITE, ANY = Padding.ZERO, Padding.FINITE, Padding.ANY


_PREDICATES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")


_BROADCAST = "elements broadcast over a block count as finite"


@register
class SwiGlu(Elementwise):
    """SwiGLU: a tensor times the Swish of another one."""

    ops = ("SwiGLU",)
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY, "zero if one operand is")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Zero if one factor is zero and the other one finite."""
        return (ZERO,) if ZERO in inputs and max(inputs) is not ANY else super().transfer_padding(op, signature, inputs)


@register
class Nary(Elementwise, BroadcastingOp, AffineOp):
    """Several tensors in, one tensor out.

    Where an operand without padding broadcasts over a blocked axis, its elements are combined with the padding of the other
    operands. They count as FINITE, because data is finite; the elements of a constant are known.
    """

    ops = (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Sum", "Mean", "Max", "Min", "Where"),
        *_PREDICATES,
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"),
    )

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of element-wise ops; Inapplicable before opset 7 if attributes align the operands."""
        if "axis" in op.attributes or "broadcast" in op.attributes:
            return Inapplicable("broadcasting by attributes")
        return super().axes(op)

    @override
    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        return self.classes_by_axes(op)

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer where all operands have padding of one state."""
        if kind in _PREDICATES:
            return PaddingTransfer(FINITE, FINITE, FINITE)
        if kind in ("Max", "Min", "Mean", "Where"):
            return PaddingTransfer(ZERO, FINITE, ANY, _BROADCAST)
        if kind in ("Div", "Mod", "Pow"):
            return PaddingTransfer(
                ANY, ANY, ANY, "integers are not divided by padding elements" if kind != "Pow" else ""
            )
        return PaddingTransfer(ZERO, ANY, ANY, _BROADCAST)

    def affine(self, op: Op) -> Affine | None:
        """Add, Sub, Mul and Div by a constant that runs along one axis."""
        if op.op_type not in ("Add", "Sub", "Mul", "Div") or len(op.inputs) != 2:
            return None
        index = 0 if op.inputs[0] is not None and not op.inputs[0].is_constant else 1
        x, constant = op.inputs[index], float_constant(op, 1 - index)
        found = None if x is None or constant is None else along_one_axis(constant, x)
        if found is None or (op.op_type == "Div" and (index == 1 or not found[1].all())):
            return None
        axis, numbers = found
        one, zero = np.ones_like(numbers), np.zeros_like(numbers)
        match op.op_type:
            case "Mul":
                scale, shift = numbers, zero
            case "Div":
                scale, shift = one / numbers, zero
            case "Add":
                scale, shift = one, numbers
            case _:
                scale, shift = (one, -numbers) if index == 0 else (-one, numbers)
        return Affine(index, axis, scale, shift)

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the contributed states. Integers are not divided by padding elements: processors trap on x / 0."""
        dtype = op.inputs[0].dtype if op.inputs[0] is not None else None
        is_integer_division = op.op_type in ("Div", "Mod") and (dtype is None or not dtype.is_float)
        if is_integer_division and (inputs[0] is ANY or has_padding(op.inputs[1], signature.inputs[1])):
            return None
        states = tuple(broadcast_padding(op, signature, index, state) for index, state in enumerate(inputs))
        if op.op_type == "Where":
            return (max(states[1:]),)
        if max(states) is FINITE and _keeps_finite(op.op_type, states):
            return (FINITE,)
        if max(states) is not ANY and _is_zero(op, states, signature):
            return (ZERO,)
        return super().transfer_padding(op, signature, states)


def _keeps_finite(kind: str, states: Sequence[Padding]) -> bool:
    """Whether a sum has at most one finite addend; the sum of two might double from op to op."""
    return kind in ("Add", "Sub", "Sum") and states.count(ZERO) >= len(states) - 1


def _is_zero(op: Op, states: Sequence[Padding], signature: Signature) -> bool:
    """Whether an op computes zero from states that are zero or finite."""
    match op.op_type:
        case "Mul":
            return ZERO in states
        case "PRelu":
            return states[0] is ZERO
        case "Div" if states[0] is ZERO and not has_padding(op.inputs[1], signature.inputs[1]):
            divisor = op.constant(1)
            return divisor is not None and bool((divisor != 0).all())
        case "Pow" if states[0] is ZERO:
            exponent = op.constant(1)
            return exponent is not None and exponent.size == 1 and bool((exponent > 0).all())
    return False
