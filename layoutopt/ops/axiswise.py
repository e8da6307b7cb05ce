"""Rules for ops whose operands share axes: the format of one operand determines the formats of all.

Such a rule declares, for every operand, which *iteration axis* each of its axes is. A broadcasting Add of (N,C,H,W) and (C,1,1)
has the iteration axes (0,1,2,3) and (1,2,3); a reduction drops some. The format of one operand orders the iteration axes, and
that order is projected onto the other operands:

    NHWC on (N,C,H,W)      ->   HWC on (C,1,1)
    NCHW16c on (N,C,H,W)   ->   CHW16c on (C,1,1),  CHW on (1,H,W): an axis of extent 1 has no blocks
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format, Part, Shape, quotient
from layoutopt.ir.types import Array, Op, Padding, Signature, Slot, Value
from layoutopt.ops.base import (
    LayoutRule,
    PhysicalOperands,
    add_rule,
    has_padding,
    padded_axes_of,
    register,
    state_of,
)
from layoutopt.ops.builder import OpBuilder
from layoutopt.ops.interfaces import Affine, along_one_axis, float_constant
from layoutopt.ops.signatures import (
    ANY,
    FINITE,
    PADDING_BECOMES_FINITE,
    ZERO,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    States,
    X,
    Y,
    estimated_volume,
    format_text,
    present,
    rank_of,
    shape_of,
    signature_of,
)
from layoutopt.record import Record

Axes: TypeAlias = Mapping[Slot, tuple[int, ...]]


class IterationOrder(Record):
    """The iteration axes of an op and their blocks, outermost first: a format over the axes of the whole op."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, format: Format, axes: Sequence[int]) -> "IterationOrder":
        """The order that the format of one operand, with these iteration axes, gives to the iteration axes."""
        return cls(tuple(Part(axes[part.axis], part.block, part.step) for part in format.parts))

    def project(self, axes: Sequence[int], shape: Shape) -> Format:
        """The format of an operand with these iteration axes; axes without a position in the order follow their predecessor."""
        position = {axis: index for index, axis in enumerate(axes)}
        parts = [
            Part(position[part.axis], part.block, part.step)
            for part in self.parts
            if part.axis in position and not (part.block and shape[position[part.axis]] == 1)
        ]
        for index in range(len(axes)):
            if all(part.axis != index for part in parts):
                before = [dim for dim, part in enumerate(parts) if part.axis == index - 1 and not part.block]
                parts.insert(before[0] + 1 if before else 0, Part(index))
        return Format(tuple(parts))


class AxiswiseRule(LayoutRule):
    """A rule for ops that the iteration axes of their operands describe.

    Attributes:
        operands: the operands that take part, if they are present; all if empty. Other operands stay canonical.
        has_one_result: whether an op of which another result than the first is used has canonical formats only.
        has_operand_classes: whether `operand_classes` has a class for every operand, for variadic ops.
        whole_reason: the reason why `whole_axes` cannot be blocked.
    """

    operands: ClassVar[tuple[Slot, ...]] = (X, Y)
    has_one_result: ClassVar[bool] = False
    has_operand_classes: ClassVar[bool] = False
    whole_reason: ClassVar[str] = "the axis of the op cannot be blocked"

    def slots(self, op: Op) -> list[Slot]:
        """The operands that take part."""
        return [slot for slot in op.slots() if not self.operands or slot in self.operands]

    @override
    def inapplicability(self, op: Op) -> str:
        is_used = self.has_one_result and any(value is not None for value in op.outputs[1:])
        return "an output beyond the first is used" if is_used else ""

    def axes(self, op: Op) -> Axes:
        """The iteration axes of every operand that takes part, by slot; by default all are aligned with the last axes.

        Called only for ops whose operands have the required ranks.
        """
        ranks = {slot: rank_of(op.operand(slot)) for slot in self.slots(op)}
        last = max(ranks.values())
        return {slot: tuple(range(last - rank, last)) for slot, rank in ranks.items()}

    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        """The axes, or the reason why there are none, for any op."""
        reason = self.canonical_reason(op)
        return Inapplicable(reason) if reason else self.axes(op)

    def whole_axes(self, op: Op) -> Collection[int]:
        """The iteration axes that cannot be blocked."""
        return ()

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why an iteration axis cannot be blocked; empty if it can be blocked."""
        return self.whole_reason if axis in self.whole_axes(op) else ""

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projections of the known format of the largest operand onto all operands, if the other known formats agree."""
        axes = self.axes(op)
        if any(rank_of(op.operand(slot)) != len(each) for slot, each in axes.items()):
            return Inapplicable("an operand does not have the rank that the op requires")
        source = next((slot for slot in sorted(known, key=lambda slot: self._weight(op, slot)) if slot in axes), None)
        if source is None:
            return Inapplicable("no operand with a known format takes part")
        shape, format = shape_of(op.operand(source)), known[source]
        if not format.fits(shape):
            return Inapplicable(f"{format_text(op, source, format)} does not fit {source}")
        if any(shape[axis] == 1 for axis in format.blocked_axes):
            return Inapplicable(f"{format_text(op, source, format)} blocks an axis of {source} that has one element")
        order = IterationOrder.of(format, axes[source])
        for part in order.parts:
            if part.block and (reason := self.unblockable_reason(op, part.axis, order)):
                return Inapplicable(reason)
        formats = {}
        for slot, operand_axes in axes.items():
            shape = shape_of(op.operand(slot))
            formats[slot] = order.project(operand_axes, shape)
            own = known.get(slot, formats[slot])
            if not own.fits(shape) or not formats[slot].fits(shape):
                return Inapplicable(f"{format_text(op, slot, formats[slot])} does not fit {slot}")
            if not own.same_bytes(formats[slot], shape):
                given = format_text(op, source, format)
                return Inapplicable(f"{format_text(op, slot, own)} on {slot} is incompatible with {given} on {source}")
        return signature_of(op, formats)

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The projections of one order onto all operands.

        A signature contains the canonical format if a projection is the same bytes for its shape. The order is that of the
        largest operand whose format is not canonical.
        """
        formats, axes = super().physical_formats(op), self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return formats
        noncanonical = [slot for slot in formats if slot in axes and not formats[slot].is_canonical]
        if not noncanonical:
            return formats
        source = min(noncanonical, key=lambda slot: self._weight(op, slot))
        order = IterationOrder.of(formats[source], axes[source])
        return formats | {slot: order.project(axes[slot], shape_of(op.operand(slot))) for slot in axes}

    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The classes of operands of variadic ops: equal iteration axes, and equal extents of 1.

        The projection of a known format depends on nothing else of the operand that has it.
        """
        axes = self.iteration_axes(op) if self.has_operand_classes else {}
        if isinstance(axes, Inapplicable):
            return dict.fromkeys(op.slots(), axes.reason)
        extents = {slot: shape_of(op.operand(slot)) for slot in axes}
        return {
            slot: (own, tuple(dim if isinstance(dim, int) and dim == 1 else type(dim) for dim in extents[slot]))
            for slot, own in axes.items()
        }

    def _weight(self, op: Op, slot: Slot) -> tuple[int, int, Slot]:
        # The operand with the most elements has the fewest broadcast axes, so its format orders the most axes.
        value = op.operand(slot)
        shape = value.shape if value is not None and value.shape is not None else ()
        return (-len(shape), -estimated_volume(shape), slot)


def aligned_input(build: OpBuilder, op: Op, index: int, axes: Axes) -> Value | None:
    """Physical input `index`, reshaped with extents of 1 so that it broadcasts against the physical first output."""
    value, slot = build.input(index), Slot("in", index)
    if value is None or value.shape is None or slot not in axes:
        return value
    order, logical = IterationOrder.of(build.format(Y), axes[Y]), shape_of(op.operand(slot))
    own = order.project(axes[slot], logical)
    assert own.same_bytes(build.format(slot), logical), f"{op!r}: input {index} is no projection"
    # Blocks of one axis with other parts between them in the result may be one block here, so the extents are those of
    # the result's parts.
    padded = own.padded_shape(logical)
    stored = {
        axis: quotient(padded[position], own.block(position))
        for position, axis in enumerate(axes[slot])
        if logical[position] != 1
    }
    shape: list[Dim] = [(part.block or stored[part.axis]) if part.axis in stored else 1 for part in order.parts]
    # An operand of the result's rank keeps the rank of the result's array: the other operands may all have fewer axes.
    while len(axes[slot]) < len(axes[Y]) and len(shape) > len(value.shape) and shape[0] == 1:
        shape.pop(0)
    return build.reshape(value, tuple(shape))


def positions(format: Format, axes: Collection[int]) -> tuple[int, ...]:
    """The positions of the parts of some axes in a physical array."""
    return tuple(position for position, part in enumerate(format.parts) if part.axis in axes)


def are_last_innermost(signature: Signature, count: int, *others: Slot) -> bool:
    """Whether the last axes of x, y and other operands are whole and the innermost ones, in logical order."""
    for slot in (X, Y, *others):
        storage = signature[slot]
        if storage is not None:
            axes = range(storage.format.rank - count, storage.format.rank)
            if storage.format.parts[-count:] != tuple(map(Part, axes)) or set(axes) & set(storage.format.blocked_axes):
                return False
    return True


# --- Element-wise ops with broadcasting: any format is legal as long as all operands agree on it ---


class Elementwise(AxiswiseRule):
    """y[i] = f(a[i], b[i], ...), operands broadcast from the right. The padding of y is f of the padding of the operands."""

    family = "elementwise"
    formats = "any; all operands have one order of axes"
    operands: ClassVar[tuple[Slot, ...]] = ()
    is_always_agnostic = True

    def physical_operands(self, op: Op, build: OpBuilder) -> PhysicalOperands:
        """The physical arrays, reshaped where they broadcast."""
        axes = self.axes(op)
        return {}, [aligned_input(build, op, index, axes) for index in range(len(op.inputs))]


_BROADCAST = "elements broadcast over a block count as finite"


@register
class Expand(Elementwise):
    """A tensor broadcast to a shape."""

    ops = ("Expand",)
    padding = PaddingTransfer(ZERO, FINITE, ANY, _BROADCAST)
    operands = (X, Y)
    is_pure_broadcast = True

    @override
    def inapplicability(self, op: Op) -> str:
        x, y = op.x.dims, op.y.dims
        own = (1,) * (len(y) - len(x)) + x
        is_unknown = any(not isinstance(after, int) and before != after for before, after in zip(own, y, strict=True))
        return "an extent of the result is unknown" if is_unknown else ""

    @override
    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        return broadcast_padding(op, signature, 0, inputs[0])

    @override
    def lower(self, op: Op, build: OpBuilder) -> None:
        target = build.output_type(0)
        extents = [dim if isinstance(dim, int) else 1 for dim in shape_of(target)]  # 1 keeps a symbolic extent
        shape = build.integers(extents, "shape")
        result = build.result("Expand", [aligned_input(build, op, 0, self.axes(op)), shape], target)
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
    return max(state, FINITE if value.data is None else state_of(value.data.numpy()))


class Unary(Elementwise):
    """One tensor in, one tensor out; types, bounds and ratios have no format."""

    formats = "any"
    has_one_result = True
    operands = (X, Y)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer for the state of x."""
        return super().result_padding(op, signature, inputs[:1])


# The states of f(0) and of f(a small finite number). The second is FINITE only if |f(x)| is near |x|: padding that grows from
# op to op does not stay finite. The state of f(x) for ANY is ANY, but for booleans.
_ZERO_PRESERVING, _BOUNDED = PaddingTransfer(ZERO, FINITE, ANY), PaddingTransfer(FINITE, FINITE, ANY)
add_rule(
    Unary(
        *(
            "Abs",
            "Asinh",
            "Atan",
            "Cast",
            "CastLike",
            "Ceil",
            "Celu",
            "Elu",
            "Erf",
            "Floor",
            "Gelu",
            "HardSwish",
            "Identity",
        ),
        *("Mish", "Neg", "Relu", "Round", "Sign", "Sin", "Softsign", "Swish", "ThresholdedRelu"),
        *("com.microsoft::Gelu", "com.microsoft::QuickGelu"),
        padding=_ZERO_PRESERVING,
    )
)
add_rule(
    Unary(
        "com.microsoft::FastGelu",
        padding=_ZERO_PRESERVING,
        inapplicability=lambda op: "it has a bias along the last axis" if len(op.inputs) > 1 else "",
    )
)
add_rule(Unary("Tanh", padding=_ZERO_PRESERVING, is_saturating_activation=True))
add_rule(
    Unary(
        "Asin", "Atanh", "BitCast", "LeakyRelu", "Selu", "Sinh", "Sqrt", "Tan", padding=PaddingTransfer(ZERO, ANY, ANY)
    )
)
add_rule(Unary("Cos", "Softplus", padding=_BOUNDED))
add_rule(Unary("HardSigmoid", "Sigmoid", padding=_BOUNDED, is_saturating_activation=True))
add_rule(Unary("IsInf", "IsNaN", "Not", padding=PADDING_BECOMES_FINITE))
add_rule(Unary("Acos", "Cosh", "Exp", padding=PaddingTransfer(FINITE, ANY, ANY)))
add_rule(Unary("Acosh", "BitwiseNot", "Log", "Reciprocal", "Shrink", padding=PaddingTransfer(ANY, ANY, ANY)))


@register
class Dropout(Unary):
    """The identity at inference."""

    ops = ("Dropout",)
    padding = _ZERO_PRESERVING

    @override
    def inapplicability(self, op: Op) -> str:
        training = op.constant(2)
        if op.input(2) is not None and (training is None or training.any()):
            return "the training mode is computed, or on"
        return super().inapplicability(op)


@register
class Clip(Unary):
    """Elements limited to bounds, which are attributes up to opset 10."""

    ops = ("Clip",)
    padding = PaddingTransfer(ZERO, FINITE, ANY, "zero is clipped to the bounds")

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """Zero stays zero if it is between constant bounds; otherwise zero becomes a bound, which is finite."""
        low, high = clip_bounds(op)
        clipped = FINITE if low is None or high is None else state_of(np.minimum(np.maximum(0.0, low), high))
        return max(inputs[0], clipped)


def clip_bounds(op: Op) -> list[Array | None]:
    """The bounds of a Clip, infinite ones where it has none; None for one that is computed."""
    defaults = (("min", 1, -np.inf), ("max", 2, np.inf))
    return [
        op.constant(index) if op.input(index) is not None else np.asarray(op.attributes.get(name, default))
        for name, index, default in defaults
    ]


add_rule(Elementwise("SwiGLU", padding=PaddingTransfer(ZERO, ANY, ANY)))


class Nary(Elementwise):
    """Several tensors in, one tensor out.

    Where an operand without padding broadcasts over a blocked axis, its elements are combined with the padding of the other
    operands. They count as FINITE, because data is finite; the elements of a constant are known.
    """

    is_broadcasting = True
    has_operand_classes = True

    def affine(self, op: Op) -> Affine | None:
        """Add, Sub, Mul and Div by a constant that runs along one axis."""
        if len(op.inputs) != 2:
            return None
        index = 0 if not op.x.is_constant else 1
        x, constant = op.inputs[index], float_constant(op, 1 - index)
        found = None if x is None or constant is None else along_one_axis(constant, x)
        factors = scale_and_shift(op, index, found[1]) if found is not None else None
        return None if found is None or factors is None else Affine(index, found[0], *factors)

    def result_padding(self, op: Op, signature: Signature, inputs: States) -> Padding | None:
        """The transfer of the contributed states. Integers are not divided by padding elements: processors trap on x / 0."""
        dtype = op.inputs[0].dtype if op.inputs[0] is not None else None
        is_integer_division = op.op_type in ("Div", "Mod") and (dtype is None or not dtype.is_float)
        if is_integer_division and (inputs[0] is ANY or has_padding(op.inputs[1], signature.inputs[1])):
            return None
        states = tuple(broadcast_padding(op, signature, index, state) for index, state in enumerate(inputs))
        is_multiple_of_zero = op.op_type == "Mul" and ZERO in states
        if ANY not in states and (is_multiple_of_zero or _is_zero_over_constant(op, states, signature)):
            return ZERO
        # A sum has at most one finite addend; the sum of two might double from op to op.
        if op.op_type in ("Add", "Sub", "Sum") and sorted(states)[-2:] == [ZERO, FINITE]:
            return FINITE
        return super().result_padding(op, signature, states)


add_rule(
    Nary(
        *("Add", "Sub", "Sum", "Mul", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"),
        padding=PaddingTransfer(ZERO, ANY, ANY, _BROADCAST),
    )
)
add_rule(Nary("Mean", "Max", "Min", "Where", padding=PaddingTransfer(ZERO, FINITE, ANY, _BROADCAST)))
add_rule(Nary("Div", "Mod", padding=PaddingTransfer(ANY, ANY, ANY, "integers are not divided by padding elements")))
add_rule(Nary("Pow", padding=PaddingTransfer(ANY, ANY, ANY)))
add_rule(
    Nary(
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"),
        padding=PADDING_BECOMES_FINITE,
    )
)


def scale_and_shift(op: Op, index: int, numbers: Array) -> tuple[Array, Array] | None:
    """The op as x * scale + shift, for input `index` as x and numbers as the other one; None if it is something else."""
    one, zero = np.ones_like(numbers), np.zeros_like(numbers)
    match op.op_type, index:
        case "Mul", _:
            return numbers, zero
        case "Div", 0 if numbers.all():
            return one / numbers, zero
        case "Add", _:
            return one, numbers
        case "Sub", 0:
            return one, -numbers
        case "Sub", _:
            return -one, numbers
    return None


def _is_zero_over_constant(op: Op, states: Sequence[Padding], signature: Signature) -> bool:
    """Whether an op divides zero padding by the elements of a constant, none of which is zero."""
    if op.op_type != "Div" or states[0] is not ZERO or has_padding(op.inputs[1], signature.inputs[1]):
        return False
    divisor = op.constant(1)
    return divisor is not None and bool((divisor != 0).all())
