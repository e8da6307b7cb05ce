"""Element-wise ops with broadcasting: any format is legal as long as all operands agree on it.

The padding of the result is f of the padding of the operands (`unary`, `nary`).
"""

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, aligned_input
from layoutopt.ops.base import Builder, has_padding, lower_directly, padded_axes_of, register, state_of
from layoutopt.ops.interfaces import (
    Affine,
    AffineOp,
    BroadcastingOp,
    PureBroadcast,
    SaturatingActivation,
    along_one_axis,
    float_constant,
)
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    Inapplicable,
    PaddingTransfer,
    X,
    Y,
    chosen_signature,
    is_canonical,
    present,
    rank_of,
    shape_of,
)


class Elementwise(AxiswiseRule):
    """y[i] = f(a[i], b[i], ...), operands broadcast from the right."""

    family = "elementwise"
    formats = "any; all operands have one order of axes"
    is_always_agnostic = True
    ranks = MappingProxyType({})

    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        """All operands, unless the rule lists those that it requires."""
        return self.ranks or dict.fromkeys(op.slots(), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Output axis j is iteration axis j; operands are aligned with the last axes."""
        rank = rank_of(op.outputs[0])
        return {slot: tuple(range(rank - rank_of(op.operand(slot)), rank)) for slot in op.slots()}

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the physical arrays, operands reshaped where they broadcast."""
        axes = self.axes(op)
        assert not isinstance(axes, Inapplicable)
        lower_directly(op, build, inputs=[aligned_input(build, op, index, axes) for index in range(len(op.inputs))])


@register
class Expand(Elementwise, PureBroadcast):
    """A tensor broadcast to a shape."""

    ops = ("Expand",)
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "elements broadcast over a block count as finite"
    )
    ranks = MappingProxyType({X: 0, Y: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of tensor and result; the shape operand has none. Extents that x is broadcast along have to be known."""
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        own = (1,) * (len(y) - len(x)) + x
        if any(not isinstance(after, int) and before != after for before, after in zip(own, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return {X: tuple(range(len(y) - len(x), len(y))), Y: tuple(range(len(y)))}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the larger state of x and, where x is broadcast over a block, of its elements."""
        return super().transfer_padding(op, signature, (broadcast_padding(op, signature, 0, inputs[0]),))

    @override
    def lower(self, op: Op, build: Builder) -> None:
        axes, target = self.axes(op), build.output_type(0)
        assert not isinstance(axes, Inapplicable)
        extents = [dim if isinstance(dim, int) else 1 for dim in shape_of(target)]  # 1 keeps a symbolic extent
        shape = build.constant(np.asarray(extents, dtype=np.int64), "shape")
        (result,) = build.op("Expand", [aligned_input(build, op, 0, axes), shape], [target])
        build.set_output(0, result)


def broadcast_padding(op: Op, signature: Signature, index: int, state: Padding) -> Padding:
    """The padding state that operand `index` contributes to the result.

    It is the state of its own padding and, if it is broadcast over padding of the result, that of its elements.
    """
    value, y = present(op.inputs[index]), op.outputs[0]
    offset = rank_of(y) - rank_of(value)
    own = {axis + offset for axis in padded_axes_of(value, signature.inputs[index])}
    if own.issuperset(padded_axes_of(y, signature.outputs[0])):
        return state
    return max(state, Padding.FINITE if value.data is None else state_of(value.data.numpy()))


# --- Element-wise ops of one operand ---
#
# `_UNARY` has the padding states of f(0) and of f(x) for finite x. The state for ANY is ANY.


ZERO, FINITE, ANY = Padding.ZERO, Padding.FINITE, Padding.ANY


def _same(*kinds: str) -> dict[str, tuple[Padding, Padding]]:
    return dict.fromkeys(kinds, (ZERO, FINITE))


# op type -> the states of (f(0), f(a small finite number)). The second is FINITE only if |f(x)| is near |x|:
# padding that grows from op to op does not stay finite.
_UNARY: dict[str, tuple[Padding, Padding]] = {
    **_same("Abs", "Asinh", "Atan", "Ceil", "Elu", "Erf", "Floor", "Gelu", "HardSwish", "Identity", "Mish", "Neg"),
    **_same("Relu", "Round", "Sign", "Sin", "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Celu"),
    **dict.fromkeys(("Asin", "Atanh", "Selu", "Sinh", "Sqrt", "Tan"), (ZERO, ANY)),
    **dict.fromkeys(("Cos", "HardSigmoid", "Sigmoid", "Softplus", "Not"), (FINITE, FINITE)),
    **dict.fromkeys(("Acos", "Cosh", "Exp"), (FINITE, ANY)),
    **dict.fromkeys(("Acosh", "Log", "Reciprocal", "BitwiseNot"), (ANY, ANY)),
}


@register
class Unary(Elementwise, SaturatingActivation):
    """One tensor in, one tensor out."""

    ops: ClassVar[tuple[str, ...]] = (*_UNARY, "IsNaN", "IsInf", "LeakyRelu", "Shrink")
    formats = "any"

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer function of f; boolean results are finite for every input."""
        if kind in ("IsNaN", "IsInf", "Not"):
            return PaddingTransfer(FINITE, FINITE, FINITE)
        if kind == "Shrink":
            return PaddingTransfer(ANY, ANY, ANY)
        if kind == "LeakyRelu":
            return PaddingTransfer(ZERO, FINITE, ANY, "any for slopes above 1")
        return PaddingTransfer(*_UNARY[kind], ANY)

    @override
    def is_saturating_activation(self, op: Op) -> bool:
        return op.op_type in ("Sigmoid", "Tanh", "HardSigmoid")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of f; any for LeakyRelu with a slope above 1, which enlarges finite elements."""
        slope = op.attributes.get("alpha", 0.01)
        if op.op_type == "LeakyRelu" and isinstance(slope, float | int) and abs(slope) > 1 and inputs[0]:
            return (ANY,)
        return super().transfer_padding(op, signature, inputs)


@register
class FusedGelu(Elementwise):
    """A tensor times a bounded function of itself, in one kernel of onnxruntime: |f(x)| is at most |x|."""

    ops = ("com.microsoft::Gelu", "com.microsoft::QuickGelu")
    formats = "any"
    padding = PADDING_KEPT


@register
class BitCast(Elementwise):
    """BitCast: the same bits as another type; the bits of zero are zero in every type."""

    ops = ("BitCast",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY)


# --- Element-wise ops of one tensor, whose other operands have no format: Cast, Clip, Dropout ---


@register
class Cast(Elementwise):
    """Conversion to another element type."""

    ops = ("Cast", "CastLike")
    formats = "any"
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the second operand of CastLike, which gives the type, has no format."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {slot: axes[slot] for slot in axes if slot != Slot("in", 1)}


@register
class Clip(Elementwise):
    """Limits the elements to bounds, which are attributes (opset 6) or scalars."""

    ops = ("Clip",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "zero is clipped to the bounds")
    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the bounds have no format."""
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Zero stays zero if the bounds are constants with zero between them; otherwise it becomes a bound, which is finite."""
        low, high = self._bound(op, "min", 1), self._bound(op, "max", 2)
        if low is None or high is None:
            return (max(Padding.FINITE, inputs[0]),)
        return (max(inputs[0], state_of(np.minimum(np.maximum(0.0, low), high))),)

    def _bound(self, op: Op, name: str, index: int) -> float | None:
        """A bound as a number, infinite if it is absent; None if it is computed."""
        default = float("-inf") if name == "min" else float("inf")
        if index < len(op.inputs) and op.inputs[index] is not None:
            array = op.constant(index)
            return None if array is None or array.size != 1 else float(array.reshape(()).astype(float))
        bound = op.attributes.get(name, default)
        return float(bound) if isinstance(bound, float | int) else None


@register
class Dropout(Elementwise):
    """The identity at inference. Ops with a mask output or in training mode have no signature."""

    ops = ("Dropout",)
    formats = "any"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of x and y correspond by position; the ratio has no format."""
        if len([value for value in op.outputs if value is not None]) > 1:
            return Inapplicable("the mask is used")
        training = op.constant(2)
        if len(op.inputs) > 2 and op.inputs[2] is not None and (training is None or training.any()):
            return Inapplicable("the training mode is computed, or on")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))


# --- Element-wise ops of several operands, broadcast to one shape ---


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


# --- onnxruntime's fused GELU of a sum with a bias along the last axis ---


def is_last_axis_innermost(format: Format) -> bool:
    """Whether the last axis is the innermost part of a format and not blocked."""
    last = format.parts[-1]
    return last.axis == format.rank - 1 and format.block(last.axis) == 1


@register
class BiasGelu(Elementwise):
    """GELU of x + bias; the bias of FastGelu is optional."""

    ops = ("com.microsoft::BiasGelu", "com.microsoft::FastGelu")
    formats = "any; one kernel where the last axis is the innermost one"
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "a bias over a block is finite; the sum of two finite ones is any"
    )

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer for the states that x and the bias contribute; the sum of two finite states is any."""
        states = tuple(broadcast_padding(op, signature, index, state) for index, state in enumerate(inputs))
        has_one_addend = states.count(Padding.ZERO) >= len(states) - 1
        return super().transfer_padding(op, signature, states) if has_one_addend else (Padding.ANY,)

    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        """Whether the axis of the bias is innermost, or there is no bias."""
        if len(op.inputs) == 1 or is_canonical(signature):
            return True
        ends = (signature.inputs[0], signature.outputs[0])
        return all(storage is None or is_last_axis_innermost(storage.format) for storage in ends)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self.is_layout_agnostic(op, chosen_signature(op)):
            lower_directly(op, build)
        else:
            AxiswiseRule.lower(self, op, build)
