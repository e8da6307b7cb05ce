"""Concat and Split along one axis, at block boundaries if it is blocked. Only the last piece may have padding."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from layoutopt.formats import Dim, Format
from layoutopt.ir.types import Attribute, Op, Padding, Signature, Slot, Value
from layoutopt.ops.axis import OneAxis
from layoutopt.ops.axiswise import Axes, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.interfaces.concatenation import ConcatenationOp
from layoutopt.ops.operands import rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT
from layoutopt.ops.signatures import Inapplicable, X, Y


def block_of(order: IterationOrder, axis: int) -> int:
    """The number of elements of a block of an iteration axis."""
    return int(np.prod([part.block for part in order.parts if part.axis == axis and part.block] or [1]))


def misalignment(extents: Sequence[Dim | None], block: int) -> str:
    """The reason why pieces of an axis cannot be blocked; empty if every piece but the last fills its blocks."""
    if any(not isinstance(dim, int) or dim <= 1 for dim in extents):
        return "a piece of the blocked axis has one element or an unknown extent"
    if any(isinstance(dim, int) and dim % block for dim in extents[:-1]):
        return f"a piece of the blocked axis does not fill blocks of {block}"
    return ""


def outermost_position(format: Format, axis: int) -> int:
    """The position of the outermost part of an axis in the physical array."""
    return next(position for position, part in enumerate(format.parts) if part.axis == axis and not part.block)


def extents_along(values: Sequence[Value | None], axis: int) -> list[Dim | None]:
    """The extents of several tensors along an axis; None where unknown."""
    return [value.shape[axis] if value is not None and value.shape is not None else None for value in values]


class ConcatOrSplit(OneAxis):
    """The layout of Concat and Split: a tensor and its pieces along an axis."""

    family = "rearrangement"
    formats = "any; the axis may be blocked if every piece but the last fills its blocks"
    padding = PADDING_KEPT
    default_axis = 0

    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        """The pieces in order."""
        raise NotImplementedError

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the concatenated axis cannot be blocked: a piece other than the last does not fill its blocks."""
        is_along = axis == self.axis(op)
        return misalignment(extents_along(self.pieces(op), axis), block_of(order, axis)) if is_along else ""

    @override
    def operand_classes(self, op: Op) -> Mapping[Slot, Hashable]:
        return self.classes_by_axes(op)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op along the outermost part of the axis."""
        position = outermost_position(build.format(op.slots()[0]), self.axis(op))
        inputs, attributes = self.physical_inputs(op, build, position)
        types = [build.output_type(index) for index in range(len(op.outputs))]
        indices = [index for index, value in enumerate(op.outputs) if value is not None]
        for index, result in zip(indices, build.op(op.op_type, inputs, types, attributes), strict=True):
            build.set_output(index, result)

    def physical_inputs(self, op: Op, build: Builder, position: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Inputs and attributes of the op along physical axis `position`."""
        return [build.input(index) for index in range(len(op.inputs))], {**op.attributes, "axis": position}


@register
class Concat(ConcatOrSplit, ConcatenationOp):
    """Concatenation of pieces."""

    ops = ("Concat",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.inputs

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return {**dict.fromkeys((Slot("in", index) for index in range(len(op.inputs))), 0), Y: 0}

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return dict.fromkeys(op.slots(), tuple(range(rank_of(op.inputs[0]))))

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before it was required."""
        return op.integer("axis", 1) % rank_of(op.inputs[0])

    @override
    def concatenated_axis(self, op: Op) -> int | None:
        return self.axis(op) if op.inputs[0] is not None and op.inputs[0].rank else None


@register
class Split(ConcatOrSplit):
    """A tensor split into pieces."""

    ops = ("Split",)

    @override
    def pieces(self, op: Op) -> tuple[Value | None, ...]:
        return op.outputs

    @override
    def minimum_ranks(self, op: Op) -> Mapping[Slot, int]:
        return dict.fromkeys((X, *(slot for slot in op.slots() if slot.side == "out")), 0)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position; the input with the lengths does not take part."""
        return dict.fromkeys(self.minimum_ranks(op), tuple(range(rank_of(op.inputs[0]))))

    @override
    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        states = super().transfer_padding(op, signature, inputs)
        return None if states is None else states * len(op.outputs)

    def physical_inputs(self, op: Op, build: Builder, position: int) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Inputs and attributes of the op along physical axis `position`, with lengths in blocks."""
        inputs, attributes = super().physical_inputs(op, build, position)
        block = build.format(X).block(self.axis(op))
        if block == 1:
            return inputs, attributes
        lengths = tuple(-(-int(shape_of(piece)[self.axis(op)]) // block) for piece in op.outputs)
        if len(op.inputs) > 1 and op.inputs[1] is not None:
            inputs[1] = build.constant(np.asarray(lengths, dtype=np.int64), "split")
        elif "split" in op.attributes:
            attributes["split"] = lengths
        elif len(set(lengths)) > 1:
            attributes.pop("num_outputs", None)
            inputs = [inputs[0], build.constant(np.asarray(lengths, dtype=np.int64), "split")]
        return inputs, attributes
