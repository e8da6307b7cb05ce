"""Element-wise ops with broadcasting: any format is legal as long as all operands agree on it.

The padding of the result is f of the padding of the operands. A table has the results of unary ops for zero and for small
finite numbers; for any number the result is any number unless f is bounded.
"""

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Lanes, Op, Signature, Slot
from layoutopt.ops.axiswise import Axes, AxiswiseRule, aligned
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.affine import Affine, AffineOp, along_one_axis, float_constant
from layoutopt.ops.interfaces.broadcasting import BroadcastingOp, PureBroadcast
from layoutopt.ops.interfaces.numerics import SaturatingOp
from layoutopt.ops.operands import present, rank_of, shape_of
from layoutopt.ops.padding_state import has_padding, padded_axes_of, state_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, X, Y

ZERO, FINITE, ANY = Lanes.ZERO, Lanes.FINITE, Lanes.ANY


class Elementwise(AxiswiseRule):
    """y[i] = f(a[i], b[i], ...), operands broadcast from the right."""

    family = "elementwise"
    formats = "any; all operands have one order of axes"
    is_always_agnostic = True
    ranks = MappingProxyType({})

    def required_ranks(self, op: Op) -> Mapping[Slot, int]:
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
        lower_directly(op, build, inputs=[aligned(build, op, index, axes) for index in range(len(op.inputs))])


def _same(*kinds: str) -> dict[str, tuple[Lanes, Lanes]]:
    return dict.fromkeys(kinds, (ZERO, FINITE))


# op type -> the states of (f(0), f(a small finite number)). The second is FINITE only if |f(x)| is near |x|:
# padding that grows from op to op does not stay finite.
_UNARY: dict[str, tuple[Lanes, Lanes]] = {
    **_same("Abs", "Asinh", "Atan", "Ceil", "Elu", "Erf", "Floor", "Gelu", "HardSwish", "Identity", "Mish", "Neg"),
    **_same("Relu", "Round", "Sign", "Sin", "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Celu"),
    **dict.fromkeys(("Asin", "Atanh", "Selu", "Sinh", "Sqrt", "Tan"), (ZERO, ANY)),
    **dict.fromkeys(("Cos", "HardSigmoid", "Sigmoid", "Softplus", "Not"), (FINITE, FINITE)),
    **dict.fromkeys(("Acos", "Cosh", "Exp"), (FINITE, ANY)),
    **dict.fromkeys(("Acosh", "Log", "Reciprocal", "BitwiseNot"), (ANY, ANY)),
}


_TRUTHS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")
_BROADCAST = "elements broadcast over a block count as finite"


@register
class Unary(Elementwise, SaturatingOp):
    """One tensor in, one tensor out."""

    ops: ClassVar[tuple[str, ...]] = (*_UNARY, "IsNaN", "IsInf", "LeakyRelu", "Shrink")
    formats = "any"

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The row of the table; booleans are finite for every input."""
        if kind in ("IsNaN", "IsInf", "Not"):
            return PaddingTransfer(FINITE, FINITE, FINITE)
        if kind == "Shrink":
            return PaddingTransfer(ANY, ANY, ANY)
        if kind == "LeakyRelu":
            return PaddingTransfer(ZERO, FINITE, ANY, "any for slopes above 1")
        return PaddingTransfer(*_UNARY[kind], ANY)

    @override
    def is_saturating(self, op: Op) -> bool:
        return op.op_type in ("Sigmoid", "Tanh", "HardSigmoid")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """A slope above 1 enlarges finite elements."""
        slope = op.attributes.get("alpha", 0.01)
        if op.op_type == "LeakyRelu" and isinstance(slope, float | int) and abs(slope) > 1 and inputs[0]:
            return (ANY,)
        return super().transfer_padding(op, signature, inputs)


@register
class Gate(Elementwise):
    """A tensor times a bounded function of itself, in one kernel of onnxruntime: |f(x)| is at most |x|."""

    ops = ("com.microsoft::Gelu", "com.microsoft::QuickGelu")
    formats = "any"
    padding = PADDING_KEPT


@register
class GatedProduct(Elementwise):
    """SwiGLU: a tensor times the gate of another one."""

    ops = ("SwiGLU",)
    padding = PaddingTransfer(Lanes.ZERO, Lanes.ANY, Lanes.ANY, "zero if one operand is")

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Zero if one factor is zero and the other one finite."""
        return (ZERO,) if ZERO in inputs and max(inputs) is not ANY else super().transfer_padding(op, signature, inputs)


@register
class Bits(Elementwise):
    """BitCast: the same bits as another type; the bits of zero are zero in every type."""

    ops = ("BitCast",)
    formats = "any"
    padding = PaddingTransfer(Lanes.ZERO, Lanes.ANY, Lanes.ANY)


@register
class Cast(Elementwise):
    """Conversion to another element type. An infinite padding element becomes some integer, which is finite."""

    ops = ("Cast", "CastLike")
    formats = "any"
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The tensor that CastLike takes its type from does not take part."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {slot: axes[slot] for slot in axes if slot != Slot("in", 1)}


@register
class Clip(Elementwise):
    """The bounds are attributes (opset 6) or scalars, and do not take part."""

    ops = ("Clip",)
    formats = "any"
    padding = PaddingTransfer(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "zero is clipped to the bounds")
    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The tensor takes part, the bounds do not."""
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Zero stays zero if the bounds are constants around it; otherwise it becomes one of them."""
        low, high = self._bound(op, "min", 1), self._bound(op, "max", 2)
        if low is None or high is None:
            return (max(FINITE, inputs[0]),)
        return (max(inputs[0], state_of(np.minimum(np.maximum(0.0, low), high))),)

    def _bound(self, op: Op, name: str, index: int) -> float | None:
        """A bound as a number, infinite if there is none; None if it is computed."""
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
        """The tensor takes part, the ratio does not."""
        if len([value for value in op.outputs if value is not None]) > 1:
            return Inapplicable("the mask is used")
        training = op.constant(2)
        if len(op.inputs) > 2 and op.inputs[2] is not None and (training is None or training.any()):
            return Inapplicable("the training mode is computed, or on")
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))


@register
class Nary(Elementwise, BroadcastingOp, AffineOp):
    """Several tensors in, one tensor out.

    Where an operand without padding broadcasts over a blocked axis, its elements meet the padding of the other operands. They
    count as FINITE, because data is finite; the elements of a constant are known.
    """

    ops = (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Sum", "Mean", "Max", "Min", "Where"),
        *_TRUTHS,
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"),
    )

    def axes(self, op: Op) -> Axes | Inapplicable:
        """As for element-wise ops. Ops before opset 7 that align their operands by attributes have no signature."""
        if "axis" in op.attributes or "broadcast" in op.attributes:
            return Inapplicable("broadcasting by attributes")
        return super().axes(op)

    @override
    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        return self.aligned_classes(op)

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer where all operands have padding of one state."""
        if kind in _TRUTHS:
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

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The transfer for the states that meet. Integers are not divided by padding elements: processors stop at x / 0."""
        dtype = op.inputs[0].dtype if op.inputs[0] is not None else None
        divides = op.op_type in ("Div", "Mod") and (dtype is None or not dtype.is_float)
        if divides and (inputs[0] is ANY or has_padding(op.inputs[1], signature.inputs[1])):
            return None
        states = tuple(met(op, signature, index, state) for index, state in enumerate(inputs))
        if op.op_type == "Where":
            return (max(states[1:]),)
        if max(states) is FINITE and _keeps_finite(op.op_type, states):
            return (FINITE,)
        if max(states) is not ANY and _is_zero(op, states, signature):
            return (ZERO,)
        return super().transfer_padding(op, signature, states)


@register
class Expand(Elementwise, PureBroadcast):
    """A tensor broadcast to a shape."""

    ops = ("Expand",)
    padding = PaddingTransfer(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "elements broadcast over a block count as finite")
    ranks = MappingProxyType({X: 0, Y: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The tensor takes part, the shape does not. Extents that the tensor is broadcast along have to be known."""
        x, y = shape_of(op.inputs[0]), shape_of(op.outputs[0])
        own = (1,) * (len(y) - len(x)) + x
        if any(isinstance(after, str) and before != after for before, after in zip(own, y, strict=True)):
            return Inapplicable("an extent of the result is unknown")
        return {X: tuple(range(len(y) - len(x), len(y))), Y: tuple(range(len(y)))}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """The state of x, and its elements where they are broadcast over a block."""
        return super().transfer_padding(op, signature, (met(op, signature, 0, inputs[0]),))

    @override
    def lower(self, op: Op, build: Builder) -> None:
        axes, target = self.axes(op), build.output_type(0)
        assert not isinstance(axes, Inapplicable)
        extents = [dim if isinstance(dim, int) else 1 for dim in shape_of(target)]  # 1 keeps a symbolic extent
        shape = build.constant(np.asarray(extents, dtype=np.int64), "shape")
        (result,) = build.op("Expand", [aligned(build, op, 0, axes), shape], [target])
        build.set_output(0, result)


def met(op: Op, signature: Signature, index: int, state: Lanes) -> Lanes:
    """The state of operand `index` where the result has padding: of its padding, and of its elements where it broadcasts."""
    value, y = present(op.inputs[index]), op.outputs[0]
    offset = rank_of(y) - rank_of(value)
    own = {axis + offset for axis in padded_axes_of(value, signature.inputs[index])}
    if own.issuperset(padded_axes_of(y, signature.outputs[0])):
        return state
    return max(state, FINITE if value.data is None else state_of(value.data.numpy()))


def _keeps_finite(kind: str, states: Sequence[Lanes]) -> bool:
    """Whether a sum has at most one finite addend; the sum of two might double from op to op."""
    return kind in ("Add", "Sub", "Sum") and states.count(ZERO) >= len(states) - 1


def _is_zero(op: Op, states: Sequence[Lanes], signature: Signature) -> bool:
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
