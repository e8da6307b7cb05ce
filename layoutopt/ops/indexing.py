"""Elements picked or written by indices: Gather, GatherElements, GatherND, ScatterElements, ScatterND.

An index counts along a logical axis, so that axis has to be whole; the others may lie in any format. GatherND and ScatterND
take their indices along the first axes of the array, so those stay in front.
"""

from layoutopt.formats import Format, Part, Shape, product, propagate_reshape
from layoutopt.ir.types import Lanes, Op, Signature, Slot, TensorType
from layoutopt.ops.axis import OneAxis, positions
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.passage import KEPT, Passage
from layoutopt.ops.signatures import Inapplicable, Known, X, Y, signature_of

INDICES, UPDATES = Slot("in", 1), Slot("in", 2)


@register
class Gather(OneAxis):
    """Slices picked along one axis. The axes of the indices take its place.

    With more than one of those the result is seen as if they were one axis, and its format is carried to them.
    """

    family = "rearrangement"
    ops = ("Gather",)
    becomes = KEPT
    default_axis = 0

    def axes(self, op: Op) -> Axes | Inapplicable:
        """A scalar index drops the axis, a list keeps it."""
        axes = super().axes(op)
        indices = op.inputs[1]
        if isinstance(axes, Inapplicable) or indices is None or indices.rank is None or indices.rank > 1:
            return Inapplicable("the indices are not known to be a scalar or a list")
        every = axes[X]
        return {X: every, Y: every if indices.rank else tuple(axis for axis in every if axis != self.axis(op))}

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """By the axes, or carried from one side to the other."""
        shapes = self._with_one_index(op)
        if shapes is None:
            return super().complete(op, known)
        lead = X if X in known else Y
        if lead not in known:
            return Inapplicable("neither side is given")
        formats = self._carried(known[lead], lead, *shapes)
        if formats is None:
            return Inapplicable(f"{known[lead]} cannot be carried to the other side")
        if formats[X].block(self.axis(op)) > 1:
            return Inapplicable("the axis is worked along and cannot be blocked")
        return signature_of(op, formats)

    def physical_formats(self, op: Op) -> dict[Slot, Format]:
        """Both sides in one order, where one of them stands as the canonical format that it comes to."""
        formats, shapes = super().physical_formats(op), self._with_one_index(op)
        lead = next((slot for slot in (Y, X) if not formats[slot].is_canonical), None)
        if shapes is None or lead is None:
            return formats
        return {**formats, **(self._carried(formats[lead], lead, *shapes) or {})}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """They stay as they are."""
        return (inputs[0],)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op along the physical axis."""
        if self._with_one_index(op) is None:
            super().lower(op, build)
            return
        x, indices, target = build.input(0), build.input(1), build.output_type(0)
        assert x is not None and x.shape is not None and indices is not None and indices.shape is not None
        assert target is not None and target.shape is not None
        (place,) = positions(build.format(X), (self.axis(op),))
        type = TensorType(target.dtype, (*x.shape[:place], *indices.shape, *x.shape[place + 1 :]))
        (result,) = build.op(op.op_type, [x, indices], [type], {**op.attributes, "axis": place})
        build.set_output(0, build.reshape(result, target.shape))

    def _with_one_index(self, op: Op) -> tuple[Shape, Shape] | None:
        """The shape of y if all indices were on one axis, and as it is; None if they are, or are a scalar, or unknown."""
        x, indices, y = op.inputs[0], op.inputs[1], op.outputs[0]
        if x is None or not x.shape or indices is None or indices.shape is None or len(indices.shape) < 2:
            return None
        if y is None or y.shape is None:
            return None
        axis = self.axis(op)
        return (*x.shape[:axis], product(indices.shape), *x.shape[axis + 1 :]), y.shape

    def _carried(self, format: Format, side: Slot, single: Shape, y: Shape) -> dict[Slot, Format] | None:
        before, after = (single, y) if side == X else (y, single)
        other = propagate_reshape(format, before, after) if format.fits(before) else None
        return None if other is None else {side: format, Y if side == X else X: other}


class _ElementsAlongAxis(OneAxis):
    """One index for every element; indices and the array correspond by position along all axes but one."""

    family = "rearrangement"
    default_axis = 0

    def may_block(self, op: Op, axis: int, order: IterationOrder) -> str:
        """Not the axis, nor one of which the indices have a part only: their blocks would end elsewhere."""
        x, indices = op.inputs[0], op.inputs[1]
        if x is None or x.shape is None or indices is None or indices.shape is None:
            return "a shape is unknown"
        if x.shape[axis] != indices.shape[axis]:
            return "the indices do not have all of a blocked axis"
        return super().may_block(op, axis, order)


@register
class GatherElements(_ElementsAlongAxis):
    """Elements picked along one axis."""

    ops = ("GatherElements",)
    becomes = Passage(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "indices must have zero lanes")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, INDICES: axes[X]}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Those of the array, if the indices that pick them are zero and not any number."""
        return None if inputs[1] else (inputs[0],)


@register
class ScatterElements(_ElementsAlongAxis):
    """Elements written along one axis."""

    ops = ("ScatterElements", "Scatter")
    becomes = Passage(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "indices must have zero lanes; what is reduced becomes any")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Axes correspond by position."""
        axes = super().axes(op)
        return axes if isinstance(axes, Inapplicable) else {**axes, INDICES: axes[X], UPDATES: axes[X]}

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...] | None:
        """Lanes are written into lanes, where the indices are zero; reductions make anything of them."""
        if inputs[1]:
            return None
        reduces = op.attributes.get("reduction", "none") != "none"
        return (Lanes.ANY if reduces and max(inputs) else max(inputs[0], inputs[2]),)


class _IndexedInFront(AxiswiseRule):
    """Tuples of indices along the first axes of an array; the other axes go along in any format."""

    family = "rearrangement"
    formats = "indexed axes outermost, the others in any format"
    becomes = KEPT

    def whole_axes(self, op: Op) -> int | None:
        """How many axes of the array are indexed, those of batches included; None if that is not known."""
        indices = op.inputs[1]
        depth = indices.shape[-1] if indices is not None and indices.shape else None
        return depth + op.integer("batch_dims") if isinstance(depth, int) else None

    def in_front(self, op: Op, slot: Slot) -> int:
        """How many axes of an operand have to be in front."""
        raise NotImplementedError

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """As the axes say, if those that are indexed, or count indices, are whole and in front."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        for slot, format in known.items():
            count = self.in_front(op, slot) if slot in axes else 0
            if format.parts[:count] != tuple(map(Part, range(count))) or any(a < count for a in format.blocked_axes):
                return Inapplicable(f"the axes that are indexed are not in front in {format}")
        return super().complete(op, known)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Always: the first axes are what they were."""
        return True

    def lower(self, op: Op, build: Builder) -> None:
        """The same op on the arrays."""
        inputs = [build.input(index) for index in range(len(op.inputs))]
        (result,) = build.op(op.op_type, inputs, [build.output_type(0)], op.attributes)
        build.set_output(0, result)


@register
class GatherND(_IndexedInFront):
    """Slices picked by tuples of indices."""

    ops = ("GatherND",)

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Those of the array behind the indexed ones are the last of the result."""
        x, y, whole = op.inputs[0], op.outputs[0], self.whole_axes(op)
        if x is None or x.rank is None or y is None or y.rank is None or whole is None:
            return Inapplicable("the rank or the number of indices is unknown")
        rest = range(whole, x.rank)
        return {X: tuple(range(x.rank)), Y: (*range(x.rank, x.rank + y.rank - len(rest)), *rest)}

    def in_front(self, op: Op, slot: Slot) -> int:
        """The indexed ones of the array, and those of the indices in the result."""
        x, y, whole = op.inputs[0], op.outputs[0], self.whole_axes(op) or 0
        assert x is not None and x.rank is not None and y is not None and y.rank is not None
        return whole if slot == X else y.rank - (x.rank - whole)

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """They stay as they are."""
        return (inputs[0],)


@register
class ScatterND(_IndexedInFront):
    """Slices written by tuples of indices."""

    ops = ("ScatterND",)
    becomes = Passage(Lanes.ZERO, Lanes.FINITE, Lanes.ANY, "what is reduced becomes any")

    def axes(self, op: Op) -> Axes | Inapplicable:
        """Array and result correspond; the updates have the axes behind the indexed ones."""
        x, updates, whole = op.inputs[0], op.inputs[2], self.whole_axes(op)
        if x is None or x.rank is None or updates is None or updates.rank is None or whole is None:
            return Inapplicable("the rank or the number of indices is unknown")
        every, rest = tuple(range(x.rank)), range(whole, x.rank)
        return {X: every, Y: every, UPDATES: (*range(x.rank, x.rank + updates.rank - len(rest)), *rest)}

    def in_front(self, op: Op, slot: Slot) -> int:
        """The indexed ones of the array, and those of the indices in the updates."""
        x, updates, whole = op.inputs[0], op.inputs[2], self.whole_axes(op) or 0
        assert x is not None and x.rank is not None and updates is not None and updates.rank is not None
        return updates.rank - (x.rank - whole) if slot == UPDATES else whole

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Lanes are written into lanes; reductions make anything of them."""
        reduces = op.attributes.get("reduction", "none") != "none"
        return (Lanes.ANY if reduces and max(inputs) else max(inputs[0], inputs[2]),)


__all__ = ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]
