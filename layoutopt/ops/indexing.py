"""Elements selected or written by indices: Gather, GatherElements, GatherND, ScatterElements, ScatterND.

An index counts along a logical axis, so that axis must not be blocked; the others may have any format. GatherND and ScatterND
index the first axes of the array, so those stay outermost.
"""

from types import MappingProxyType

from typing_extensions import override

from layoutopt.formats import Format, Part, Shape, product, propagate_reshape
from layoutopt.ir.types import Op, Padding, Signature, Slot, TensorType
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.operands import present_type, rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, format_text, signature_of

INDICES, UPDATES = Slot("in", 1), Slot("in", 2)


@register
class Gather(OneAxis):
    """Slices selected along one axis, which the axes of the indices replace.

    With several index axes, the format of the result with these axes merged is propagated through the reshape that splits them.
    """

    family = "rearrangement"
    ops = ("Gather",)
    padding = PADDING_KEPT
    default_axis = 0
    ranks = MappingProxyType({X: 1, INDICES: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; a scalar index drops the indexed axis, a list keeps it."""
        if rank_of(op.inputs[1]) > 1:
            return Inapplicable("the indices have several axes")
        all_axes = tuple(range(rank_of(op.inputs[0])))
        is_list = rank_of(op.inputs[1]) == 1
        return {X: all_axes, Y: all_axes if is_list else tuple(axis for axis in all_axes if axis != self.axis(op))}

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature by the iteration axes, or by propagation between input and output."""
        shapes = self._merged_shapes(op)
        if shapes is None:
            return super().complete(op, known)
        source = X if X in known else Y
        if source not in known:
            return Inapplicable("neither side is given")
        formats = self._propagated(known[source], source, *shapes)
        if formats is None:
            return Inapplicable(f"{format_text(op, source, known[source])} does not propagate to the other side")
        if formats[X].block(self.axis(op)) > 1:
            return Inapplicable("the indexed axis cannot be blocked")
        return signature_of(op, formats)

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """The formats of one order of axes on both sides, even where one of them is canonical for its shape."""
        formats, shapes = super().physical_formats(op), self._merged_shapes(op)
        source = next((slot for slot in (Y, X) if not formats[slot].is_canonical), None)
        if shapes is None or source is None:
            return formats
        return {**formats, **(self._propagated(formats[source], source, *shapes) or {})}

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if self._merged_shapes(op) is None:
            super().lower(op, build)
            return
        x, indices, target = build.input(0), build.input(1), present_type(build.output_type(0))
        (position,) = positions(build.format(X), (self.axis(op),))
        shape = shape_of(x)
        type = TensorType(target.dtype, (*shape[:position], *shape_of(indices), *shape[position + 1 :]))
        (result,) = build.op(op.op_type, [x, indices], [type], {**op.attributes, "axis": position})
        build.set_output(0, build.reshape(result, shape_of(target)))

    def _merged_shapes(self, op: Op) -> tuple[Shape, Shape] | None:
        """The shape of y with the index axes merged, and as it is; None for fewer than two index axes or unknown shapes."""
        x, indices, y = op.inputs[0], op.inputs[1], op.outputs[0]
        if x is None or not x.shape or indices is None or indices.shape is None or len(indices.shape) < 2:
            return None
        if y is None or y.shape is None:
            return None
        axis = self.axis(op)
        return (*x.shape[:axis], product(indices.shape), *x.shape[axis + 1 :]), y.shape

    def _propagated(self, format: Format, side: Slot, merged: Shape, y: Shape) -> dict[Slot, Format] | None:
        before, after = (merged, y) if side == X else (y, merged)
        other = propagate_reshape(format, before, after) if format.fits(before) else None
        return None if other is None else {side: format, Y if side == X else X: other}


class _ElementsAlongAxis(OneAxis):
    """One index per element; the axes of the indices and of the array correspond by position."""

    family = "rearrangement"
    default_axis = 0
    ranks = MappingProxyType({X: 1, INDICES: 1})

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the indexed axis, or one whose extents differ in indices and data, cannot be blocked."""
        if shape_of(op.inputs[0])[axis] != shape_of(op.inputs[1])[axis]:
            return "the indices have a part of a blocked axis only"
        return super().unblockable_reason(op, axis, order)


@register
class GatherElements(_ElementsAlongAxis):
    """Elements selected along one axis."""

    ops = ("GatherElements",)
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "padding of the indices must be zero")

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, INDICES: axes[X]}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of the array, if the padding of the indices is zero."""
        return None if inputs[1] else super().transfer_padding(op, signature, inputs)


@register
class ScatterElements(_ElementsAlongAxis):
    """Elements written along one axis."""

    ops = ("ScatterElements", "Scatter")
    padding = PaddingTransfer(
        Padding.ZERO, Padding.FINITE, Padding.ANY, "padding of the indices must be zero; any after a reduction"
    )

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, INDICES: axes[X], UPDATES: axes[X]}

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The larger state of array and updates, if the padding of the indices is zero; any after a reduction."""
        if inputs[1]:
            return None
        return (Padding.ANY,) if max(inputs) and is_reduction(op) else super().transfer_padding(op, signature, inputs)


def is_reduction(op: Op) -> bool:
    """Whether a scatter combines updates with the elements that they are written to."""
    return op.attributes.get("reduction", "none") != "none"


class _LeadingAxesIndexed(AxiswiseRule):
    """Tuples of indices into the first axes of an array; the other axes may have any format."""

    family = "rearrangement"
    formats = "indexed axes outermost, the others in any format"
    padding = PADDING_KEPT
    is_always_agnostic = True

    def indexed_rank(self, op: Op) -> int | None:
        """The number of indexed axes of the array, batch axes included; None if unknown."""
        indices = op.inputs[1]
        depth = indices.shape[-1] if indices is not None and indices.shape else None
        return depth + op.integer("batch_dims") if isinstance(depth, int) else None

    def leading_rank(self, op: Op, slot: Slot) -> int:
        """The number of axes of an operand that have to be outermost."""
        raise NotImplementedError

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if the indexed axes and the axes of the index tuples are outermost and not blocked."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        for slot, format in known.items():
            count = self.leading_rank(op, slot) if slot in axes else 0
            if format.parts[:count] != tuple(map(Part, range(count))) or any(a < count for a in format.blocked_axes):
                return Inapplicable(f"the indexed axes are not outermost in {format_text(op, slot, format)}")
        return super().complete(op, known)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        lower_directly(op, build)


@register
class GatherND(_LeadingAxesIndexed):
    """Slices selected by tuples of indices."""

    ops = ("GatherND",)
    ranks = MappingProxyType({X: 0, Y: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of the array behind the indexed ones are the last axes of the result."""
        x, y, indexed = rank_of(op.inputs[0]), rank_of(op.outputs[0]), self.indexed_rank(op)
        if indexed is None:
            return Inapplicable("the number of indexed axes is unknown")
        rest = range(indexed, x)
        return {X: tuple(range(x)), Y: (*range(x, x + y - len(rest)), *rest)}

    def leading_rank(self, op: Op, slot: Slot) -> int:
        """The indexed axes of the array; the axes of the index tuples in the result."""
        indexed = self.indexed_rank(op) or 0
        return indexed if slot == X else rank_of(op.outputs[0]) - (rank_of(op.inputs[0]) - indexed)


@register
class ScatterND(_LeadingAxesIndexed):
    """Slices written by tuples of indices."""

    ops = ("ScatterND",)
    padding = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY, "any after a reduction")
    ranks = MappingProxyType({X: 0, UPDATES: 0})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of array and result correspond; the updates have the axes behind the indexed ones."""
        x, updates, indexed = rank_of(op.inputs[0]), rank_of(op.inputs[2]), self.indexed_rank(op)
        if indexed is None:
            return Inapplicable("the number of indexed axes is unknown")
        all_axes, rest = tuple(range(x)), range(indexed, x)
        return {X: all_axes, Y: all_axes, UPDATES: (*range(x, x + updates - len(rest)), *rest)}

    def leading_rank(self, op: Op, slot: Slot) -> int:
        """The indexed axes of the array; the axes of the index tuples in the updates."""
        indexed = self.indexed_rank(op) or 0
        return rank_of(op.inputs[2]) - (rank_of(op.inputs[0]) - indexed) if slot == UPDATES else indexed

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The larger state of array and updates; any after a reduction."""
        return (Padding.ANY,) if max(inputs) and is_reduction(op) else super().transfer_padding(op, signature, inputs)


__all__ = ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]
