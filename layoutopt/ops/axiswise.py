"""Rules for ops whose operands share axes: the format of one operand determines the formats of all.

Such a rule declares, for every operand, which *iteration axis* each of its axes is. A broadcasting Add of (N,C,H,W) and (C,1,1)
has the iteration axes (0,1,2,3) and (1,2,3); a reduction drops some. The format of one operand orders the iteration axes, and
that order is projected onto the other operands:

    NHWC on (N,C,H,W)      ->   HWC on (C,1,1)
    NCHW16c on (N,C,H,W)   ->   CHW16c on (C,1,1),  CHW on (1,H,W): an axis of extent 1 has no blocks
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format, Part, Shape, quotient
from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.base import Builder, LayoutRule, has_padding, lower_directly, register
from layoutopt.ops.interfaces import SaturatingActivation
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    X,
    Y,
    estimated_volume,
    format_text,
    is_canonical,
    present_type,
    rank_of,
    shape_of,
    signature_of,
)

Axes: TypeAlias = Mapping[Slot, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class IterationOrder:
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
    """A rule for ops that the iteration axes of their operands describe."""

    ranks = MappingProxyType({X: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The iteration axes of every operand that takes part, by slot; other operands stay canonical.

        Called only for ops whose operands have the required ranks. By default the axes of x and y correspond by position.
        """
        return dict.fromkeys((X, Y), tuple(range(rank_of(op.inputs[0]))))

    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        """The axes, or the reason why there are none, for any op."""
        return self.missing_rank(op) or self.axes(op)

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why an iteration axis cannot be blocked; empty if it can be blocked."""
        del op, axis, order
        return ""

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projections of the known format of the largest operand onto all operands, if the other known formats agree."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        if any(
            (value := op.operand(slot)) is None or value.rank not in (None, len(each)) for slot, each in axes.items()
        ):
            return Inapplicable("an operand does not have the rank that the op requires")
        source = next((slot for slot in sorted(known, key=lambda slot: self._weight(op, slot)) if slot in axes), None)
        if source is None:
            return Inapplicable("no operand with a known format takes part")
        value, format = op.operand(source), known[source]
        if value is None or value.shape is None or not format.fits(value.shape):
            return Inapplicable(f"{format_text(op, source, format)} does not fit {source}")
        if any(value.shape[axis] == 1 for axis in format.blocked_axes):
            return Inapplicable(f"{format_text(op, source, format)} blocks an axis of {source} that has one element")
        order = IterationOrder.of(format, axes[source])
        for part in order.parts:
            if part.block and (reason := self.unblockable_reason(op, part.axis, order)):
                return Inapplicable(reason)
        formats = {}
        for slot, operand_axes in axes.items():
            operand = op.operand(slot)
            if operand is None or operand.shape is None:
                return Inapplicable(f"the rank of {slot} is unknown")
            formats[slot] = order.project(operand_axes, operand.shape)
            own = known.get(slot, formats[slot])
            if not own.fits(operand.shape) or not formats[slot].fits(operand.shape):
                return Inapplicable(f"{format_text(op, slot, formats[slot])} does not fit {slot}")
            if not own.same_bytes(formats[slot], operand.shape):
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
        for slot in formats:
            value = op.operand(slot)
            if slot in axes and value is not None and value.shape is not None:
                formats[slot] = order.project(axes[slot], value.shape)
        return formats

    def classes_by_axes(self, op: Op) -> Mapping[Slot, Hashable]:
        """The operand classes of a rule that does not override `complete`: equal iteration axes, and equal extents of 1.

        The projection of a known format depends on nothing else of the operand that has it.
        """
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return dict.fromkeys(op.slots(), axes.reason)
        classes = {}
        for slot, operand_axes in axes.items():
            value = op.operand(slot)
            shape = value.shape if value is not None and value.shape is not None else ()
            classes[slot] = (
                operand_axes,
                tuple(dim if isinstance(dim, int) and dim == 1 else type(dim) for dim in shape),
            )
        return classes

    def _weight(self, op: Op, slot: Slot) -> tuple[int, int, Slot]:
        # The operand with the most elements has the fewest broadcast axes, so its format orders the most axes.
        value = op.operand(slot)
        shape = value.shape if value is not None and value.shape is not None else ()
        return (-len(shape), -estimated_volume(shape), slot)


def aligned_input(build: Builder, op: Op, index: int, axes: Axes) -> Value | None:
    """Physical input `index`, reshaped with extents of 1 so that it broadcasts against the physical first output."""
    value, slot, logical = build.input(index), Slot("in", index), op.inputs[index]
    if value is None or value.shape is None or slot not in axes or logical is None or logical.shape is None:
        return value
    order = IterationOrder.of(build.format(Y), axes[Y])
    own = order.project(axes[slot], logical.shape)
    assert own.same_bytes(build.format(slot), logical.shape), f"{op!r}: input {index} is no projection"
    # Blocks of one axis with other parts between them in the result may be one block here, so the extents are those of
    # the result's parts.
    padded = own.padded_shape(logical.shape)
    stored = {
        axis: quotient(padded[position], own.block(position))
        for position, axis in enumerate(axes[slot])
        if logical.shape[position] != 1
    }
    shape: list[Dim] = [(part.block or stored[part.axis]) if part.axis in stored else 1 for part in order.parts]
    # An operand of the result's rank keeps the rank of the result's array: the other operands may all have fewer axes.
    while len(axes[slot]) < len(axes[Y]) and len(shape) > len(value.shape) and shape[0] == 1:
        shape.pop(0)
    return build.reshape(value, tuple(shape))


# --- Ops along one or several axes: reductions, softmax, arg-max. The other axes may have any format ---


_SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


def positions(format: Format, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The positions of the parts of some axes in a physical array."""
    return tuple(position for position, part in enumerate(format.parts) if part.axis in axes)


@register
class Reduction(AxiswiseRule):
    """Reduce*: the axes are an attribute or, in later opsets, an input."""

    family = "reduction"
    ops = (
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"),
        *_SUMS,
    )
    formats = "any; reduced axes may be blocked where they have no padding, in sums also if it is zero"
    is_always_agnostic = True

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer function of axes that are not reduced."""
        if kind in ("ReduceMean", "ReduceMax", "ReduceMin"):
            return PADDING_KEPT
        if kind == "ReduceLogSumExp":
            return PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY)
        text = "padding of reduced axes must be zero" if kind in _SUMS else ""
        return PaddingTransfer(Padding.ANY if kind == "ReduceLogSum" else Padding.ZERO, Padding.ANY, Padding.ANY, text)

    def reduced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are reduced; None if they are computed."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return None
        axes: tuple[int, ...] | None = op.integers("axes") if "axes" in op.attributes else None
        if len(op.inputs) > 1 and op.inputs[1] is not None:
            array: Array | None = op.constant(1)
            if array is None:
                return None
            axes = tuple(int(axis) for axis in array.reshape(-1))
        if not axes:
            axes = () if op.integer("noop_with_empty_axes") else tuple(range(x.rank))
        return tuple(sorted(axis % x.rank for axis in axes))

    def keeps_axes(self, op: Op) -> bool:
        """Whether reduced axes stay, with extent 1."""
        return bool(op.integer("keepdims", 1))

    def axes(self, op: Op) -> Axes | Inapplicable:
        """All axes of the input are iteration axes; the output has those that remain."""
        reduced_axes = self.reduced_axes(op)
        if reduced_axes is None:
            return Inapplicable("the reduced axes are computed")
        all_axes = tuple(range(rank_of(op.inputs[0])))
        return {
            X: all_axes,
            Y: all_axes if self.keeps_axes(op) else tuple(axis for axis in all_axes if axis not in reduced_axes),
        }

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if padding of reduced axes adds nothing to the result."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable) or signature.inputs[0] is None:
            return signature
        reduced_axes = self.reduced_axes(op) or ()
        blocked = set(signature.inputs[0].format.blocked_axes) & set(reduced_axes)
        if blocked and has_padding(op.inputs[0], signature.inputs[0]) and op.op_type not in _SUMS:
            return Inapplicable("the reduction would read the padding")
        return signature

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the other axes, whose padding is reduced separately; padding of reduced axes must be zero."""
        x = signature.inputs[0]
        if x is not None and inputs[0] and set(x.format.blocked_axes) & set(self.reduced_axes(op) or ()):
            return None
        return super().transfer_padding(op, signature, inputs)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        x, target = build.input(0), present_type(build.output_type(0))
        dims = positions(build.format(X), self.reduced_axes(op) or ())
        shape = tuple(dim for position, dim in enumerate(shape_of(x)) if position not in dims)
        attributes: dict[str, Attribute] = {**op.attributes, "keepdims": 0}
        inputs: list[Value | None] = [x]
        if "axes" in op.attributes or not self._has_axes_input(op):
            attributes["axes"] = dims
        else:
            inputs.append(build.constant(np.asarray(dims, dtype=np.int64), "axes"))
        (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, shape)], attributes)
        build.set_output(0, build.reshape(result, shape_of(target)))

    def _has_axes_input(self, op: Op) -> bool:
        return op.version >= (13 if op.op_type == "ReduceSum" else 18)

    @override
    def flops(self, op: Op) -> float:
        x = op.inputs[0]
        return float(estimated_volume(x.shape)) if x is not None and x.shape is not None else 0.0


class OneAxis(AxiswiseRule):
    """An op along one axis, which must not be blocked."""

    formats = "any; the axis must not be blocked"

    default_axis = -1
    ranks = MappingProxyType({X: 1})
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The axis, counted from the front."""
        return op.integer("axis", self.default_axis) % rank_of(op.inputs[0])

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return f"axis {axis} is the axis of the op and cannot be blocked" if axis == self.axis(op) else ""

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(X), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


@register
class Softmax(OneAxis, SaturatingActivation):
    """Softmax, LogSoftmax, Hardmax. Before opset 13 they normalise over all axes from `axis` on together."""

    family = "softmax"
    ops = ("Softmax", "LogSoftmax", "Hardmax")
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY)

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before opset 13."""
        return op.integer("axis", -1 if op.version >= 13 else 1) % rank_of(op.inputs[0])

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if op.version < 13 and any(dim != 1 for dim in shape_of(op.inputs[0])[self.axis(op) + 1 :]):
            return Inapplicable("before opset 13 it normalises over several axes")
        return super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return op.version >= 13 or is_canonical(signature)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if op.version >= 13:
            super().lower(op, build)
        else:
            AxiswiseRule.lower(self, op, build)


@register
class ArgReduction(OneAxis):
    """ArgMax and ArgMin: the result is an index along the logical axis."""

    family = "reduction"
    ops = ("ArgMax", "ArgMin")
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    default_axis = 0

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The output has all axes, or all but the reduced one."""
        axes = super().axes(op)
        if isinstance(axes, Inapplicable) or op.integer("keepdims", 1):
            return axes
        return {X: axes[X], Y: tuple(axis for axis in axes[X] if axis != self.axis(op))}
