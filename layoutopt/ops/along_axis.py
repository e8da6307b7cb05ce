"""Ops that count elements along logical axes: running sums, selection, indexing, reversal, the Fourier transform."""

from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format, Part, Shape, product, propagate_reshape
from layoutopt.ir.types import Attribute, Op, Padding, Signature, Slot, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder, OneAxis, positions
from layoutopt.ops.base import Builder, lower_directly, register, state_of
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    Inapplicable,
    OperandFormats,
    PaddingTransfer,
    X,
    Y,
    format_text,
    present_type,
    rank_of,
    shape_of,
    signature_of,
)

# --- CumulativeOp sums and products along one axis ---


@register
class CumulativeOp(OneAxis):
    """CumSum and CumProd; the axis is an input."""

    family = "running"
    ops = ("CumSum", "CumProd")
    padding = PaddingTransfer(
        Padding.ZERO, Padding.ANY, Padding.ANY, "finite for an exclusive product, which begins with one"
    )

    def axis(self, op: Op) -> int:
        """The axis, counted from the front; it has to be constant."""
        axis = op.constant(1)
        assert axis is not None
        return int(axis.reshape(())) % rank_of(op.inputs[0])

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable if the axis is computed."""
        axis = op.constant(1)
        return Inapplicable("the axis is computed") if axis is None or axis.size != 1 else super().axes(op)

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """Finite for zeros under an exclusive product, which begins with one; else the transfer of the family."""
        starts_with_one = op.op_type == "CumProd" and op.integer("exclusive")
        return (
            (Padding.FINITE,) if starts_with_one and not inputs[0] else super().transfer_padding(op, signature, inputs)
        )

    @override
    def lower(self, op: Op, build: Builder) -> None:
        numbers = op.constant(1)
        assert numbers is not None
        (axis,) = positions(build.format(X), (self.axis(op),))
        lower_directly(op, build, inputs=[build.input(0), build.constant(numbers * 0 + axis, "axis")])


# --- Elements selected along one axis by value (TopK) or by a condition (Compress) ---


@register
class TopK(OneAxis):
    """The largest or smallest elements and their indices along the axis; their number is an attribute before opset 10."""

    family = "selection"
    ops = ("TopK",)
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, None, "indices are finite")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes by position; Inapplicable for unsorted elements, whose order depends on the runtime."""
        if not op.integer("sorted", 1):
            return Inapplicable("unsorted elements have no defined order")
        axes = super().axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        outputs = [slot for slot in op.slots() if slot.side == "out"]
        return dict.fromkeys((X, *outputs), axes[X])

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of x for the elements, finite for the indices; None for any, since NaN has no order."""
        return None if inputs[0] is Padding.ANY else (inputs[0], Padding.FINITE)


@register
class Compress(OneAxis):
    """The slices along an axis for which a condition is true."""

    family = "selection"
    ops = ("Compress",)
    padding = PADDING_KEPT

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable without an axis, since elements are then counted in row-major order."""
        return (
            super().axes(op)
            if "axis" in op.attributes
            else Inapplicable("without an axis it counts elements in row-major order")
        )


# --- spectrum ---
#
# The discrete Fourier transform along one axis; the last axis holds real and imaginary parts and stays innermost.


@register
class FourierTransform(OneAxis):
    """DFT: the axis is an attribute before opset 20, an input from then on."""

    family = "spectrum"
    ops = ("DFT",)
    formats = "any, real and imaginary parts innermost; the axis must not be blocked"
    padding = PaddingTransfer(Padding.ZERO, Padding.ANY, Padding.ANY)

    def axis(self, op: Op) -> int:
        """The axis, counted from the front: the second one by default before opset 20, the last one of the signal since."""
        rank = rank_of(op.inputs[0])
        if op.version < 20:
            return op.integer("axis", 1) % rank
        axis = op.constant(2)
        return (rank - 2 if axis is None else int(axis.reshape(()))) % rank

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The axes of x and y; Inapplicable if the axis is computed."""
        is_given = len(op.inputs) > 2 and op.inputs[2] is not None
        axis = op.constant(2)
        if is_given and (axis is None or axis.size != 1):
            return Inapplicable("the axis is computed")
        return super().axes(op)

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the axis of the op and the last axis cannot be blocked; empty for other axes."""
        is_last = axis == rank_of(op.inputs[0]) - 1
        return (
            "the axis of real and imaginary parts cannot be blocked"
            if is_last
            else super().unblockable_reason(op, axis, order)
        )

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if real and imaginary parts are innermost."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        for storage in (signature.inputs[0], signature.outputs[0]):
            if storage is not None and storage.format.parts[-1].axis != storage.format.rank - 1:
                return Inapplicable("real and imaginary parts have to be innermost")
        return signature

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(X), (self.axis(op),))
        length = build.input(1) if len(op.inputs) > 1 else None
        inputs: list[Value | None] = [build.input(0), length]
        attributes: dict[str, Attribute] = {}
        if op.version < 20:
            attributes["axis"] = axis
        else:
            inputs.append(build.constant(np.asarray(axis, dtype=np.int64), "axis"))
        lower_directly(op, build, attributes, inputs)


# --- One-hot rows of indices: the result has one axis more, which must not be blocked ---


@register
class OneHot(AxiswiseRule):
    """indices, depth, (off, on)  ->  indices with a new axis of extent depth."""

    family = "one_hot"
    ops = ("OneHot",)
    formats = "any; the new axis must not be blocked"
    padding = PaddingTransfer(
        Padding.FINITE, Padding.FINITE, Padding.FINITE, "zero if the values are; floating-point indices must be finite"
    )
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The new axis of the result."""
        return op.integer("axis", -1) % (rank_of(op.inputs[0]) + 1)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """All axes of the result are iteration axes; the indices have all but the new one."""
        all_axes = tuple(range(rank_of(op.inputs[0]) + 1))
        return {X: tuple(axis for axis in all_axes if axis != self.axis(op)), Y: all_axes}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the new axis cannot be blocked: its extent is the operand `depth`."""
        return "the new axis cannot be blocked" if axis == self.axis(op) else ""

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The state of the two values, if they are constants; a floating-point index that may be NaN is refused."""
        x, values = op.inputs[0], op.constant(2)
        if inputs[0] is Padding.ANY and (x is None or x.dtype is None or x.dtype.is_float):
            return None
        return super().transfer_padding(op, signature, inputs) if values is None else (state_of(values),)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(Y), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


# --- Reversal of sequences of different lengths in one tensor ---


@register
class ReverseSequence(AxiswiseRule):
    """Batch and time are the first two axes in either order, and outermost; the others may have any format."""

    family = "rearrangement"
    ops = ("ReverseSequence",)
    formats = "batch and time outermost, the others in any format"
    padding = PADDING_KEPT
    is_always_agnostic = True

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        x = op.inputs[0]
        if x is None or x.rank is None or x.rank < 2:
            return Inapplicable("the input is not known to have batch and time")
        return dict.fromkeys((X, Y), tuple(range(x.rank)))

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why batch and time cannot be blocked; empty for other axes."""
        return "batch and time cannot be blocked" if axis < 2 else ""

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if batch and time are outermost."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        x = signature.inputs[0]
        if x is None or {part.axis for part in x.format.parts[:2]} != {0, 1}:
            return Inapplicable("batch and time have to be the outermost axes")
        return signature

    @override
    def lower(self, op: Op, build: Builder) -> None:
        positions = {part.axis: position for position, part in enumerate(build.format(X).parts[:2])}
        batch, time = op.integer("batch_axis", 1), op.integer("time_axis", 0)
        lower_directly(op, build, {"batch_axis": positions[batch], "time_axis": positions[time]})


# --- Writes of keys and values into a cache, at one position per sequence of the batch ---


_UPDATE = Slot("in", 1)


@register
class CacheUpdate(OneAxis):
    """TensorScatter: the batch is the outermost axis, because the write positions are indexed by it."""

    family = "rearrangement"
    ops = ("TensorScatter",)
    default_axis = -2
    formats = "the batch outermost, the others in any format; the axis must not be blocked"
    padding = PADDING_KEPT
    ranks = MappingProxyType({X: 1, _UPDATE: 1})

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes of the cache, of the update and of the result correspond by position."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, _UPDATE: axes[X]}

    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        """The reason why the axis of the op and the batch cannot be blocked; empty for other axes."""
        return "the batch cannot be blocked" if axis == 0 else super().unblockable_reason(op, axis, order)

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if the batch is the outermost axis."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable):
            return signature
        storages = [storage for slot in (X, _UPDATE, Y) if (storage := signature[slot]) is not None]
        if any(storage.format.parts[0] != Part(0) for storage in storages):
            return Inapplicable("the batch has to be the outermost axis")
        return signature


# --- Elements selected or written by indices: Gather, GatherElements, GatherND, ScatterElements, ScatterND ---
#
# An index counts along a logical axis, so that axis must not be blocked; the others may have any format. GatherND and
# ScatterND index the first axes of the array, so those stay outermost.


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
