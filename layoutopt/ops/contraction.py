"""Contractions: two tensors multiplied, and summed over the axes that only they share."""

from abc import abstractmethod
from collections.abc import Collection, Mapping

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Lanes, Op, Signature, Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import LayoutRule
from layoutopt.ops.lanes import laned_axes
from layoutopt.ops.modes import A, B, Kind, Modes, kind_of, modes_of
from layoutopt.ops.passage import Passage
from layoutopt.ops.signatures import Inapplicable, Known, Y, signature_of

_MATRICES: dict[Slot, tuple[Kind, Kind]] = {A: ("rows", "summed"), B: ("summed", "columns"), Y: ("rows", "columns")}


class Contraction(LayoutRule):
    """A product of two tensors; each operand has a format of its own."""

    family = "matmul"
    formats = "a format for each operand, in any order of any digits"
    becomes = Passage(Lanes.ZERO, None, None)
    is_independent = True

    @abstractmethod
    def axes(self, op: Op) -> Axes | Inapplicable:
        """The iteration axis of every axis of a, b and y."""

    def roles(self, op: Op) -> Mapping[str, Slot]:
        """Operands a and b, result y."""
        return {"a": A, "b": B, "y": Y}

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """The known formats, canonical for the rest; but where one operand is a matrix, the result follows the other one.

        And if that matrix is a constant, it has its axes in the order that the others have them in.
        """
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        shapes = _shapes(op)
        formats = {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()} | dict(known)
        matrix = self._matrix(op, axes, shapes)
        if matrix is not None:
            data = A if matrix == B else B
            lead = next((slot for slot in (data, Y) if slot in known), None)
            if lead is not None and known[lead].fits(shapes[lead]) and not known[lead].has_padding(shapes[lead]):
                constant = op.inputs[matrix.index]
                slots = (data, Y, matrix) if constant is not None and constant.is_constant else (data, Y)
                others = [slot for slot in slots if slot not in known]
                formats |= {slot: following(known[lead], lead, slot, axes, shapes[slot]) for slot in others}
        signature = signature_of(op, formats)
        if isinstance(signature, Inapplicable):
            return signature
        for slot in (A, B, Y):
            if set(laned_axes(op.operand(slot), signature[slot])).difference(self.padded_axes(op, slot)):
                return Inapplicable(f"{slot} would have lanes in {signature[slot]}")
        return signature

    def _matrix(self, op: Op, axes: Axes, shapes: Mapping[Slot, Shape]) -> Slot | None:
        """The operand that shares no batch with the other one, a constant rather than another; None if there is none."""
        shared = {
            axis
            for slot, other in ((A, B), (B, A))
            for axis, dim in zip(axes[slot], shapes[slot], strict=True)
            if dim != 1 and axis in axes[Y] and axis in axes[other]
        }
        single = [
            slot
            for slot in (B, A)
            if not any(dim != 1 and axis in shared for axis, dim in zip(axes[slot], shapes[slot], strict=True))
        ]
        constants = [slot for slot in single if (value := op.inputs[slot.index]) is not None and value.is_constant]
        return next(iter(constants + single), None)

    def padded_axes(self, op: Op, slot: Slot) -> Collection[int]:
        """The axes of an operand that may have lanes."""
        del op, slot
        return ()

    def is_swapped(self, op: Op, slot: Slot) -> bool | None:
        """By what the last two axes are."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable) or len(axes[slot]) < 2:
            return None
        kinds = [kind_of(axes, axis) for axis in axes[slot][-2:]]
        matrix = list(_MATRICES[slot])
        return kinds == matrix[::-1] if kinds in (matrix, matrix[::-1]) else None

    def modes(self, op: Op, formats: Known) -> Modes | None:
        """Those of the axes; None where no kernel could read the operands as they lie."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return None
        shapes = _shapes(op)
        return modes_of(axes, formats, shapes) if all(slot in formats for slot in shapes) else None


def following(format: Format, source: Slot, target: Slot, axes: Axes, shape: Shape) -> Format:
    """The format of an operand of that shape with its axes where another one has them.

    An axis that only this one has stands where the other one has the first that this one has not, so that columns of the
    result stand where summed axes did; in a matrix that is read, rows come first and columns last.
    """
    position = {axis: place for place, axis in enumerate(axes[target])}
    parts: list[Part] = []
    places: list[int] = []
    for part in format.parts:
        place = position.get(axes[source][part.axis])
        if place is None:
            places.append(len(parts))
        elif not (part.block and shape[place] == 1):
            parts.append(Part(place, part.block, part.step))
    missing = [Part(place) for place, axis in enumerate(axes[target]) if axis not in axes[source]]
    at = places[0] if places and Y in (source, target) else len(parts)
    if target == A and source == B:
        at = 0
    return Format((*parts[:at], *missing, *parts[at:]))


def _shapes(op: Op) -> dict[Slot, Shape]:
    """The shapes of a, b and y."""
    values = {slot: op.operand(slot) for slot in (A, B, Y)}
    return {slot: value.shape for slot, value in values.items() if value is not None and value.shape is not None}


__all__ = ["A", "B", "Contraction", "following"]
