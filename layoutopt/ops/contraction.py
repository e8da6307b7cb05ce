"""Contractions: products of two tensors, summed over the axes that both have and the result has not."""

from abc import abstractmethod
from collections.abc import Collection, Mapping

from typing_extensions import override

from layoutopt.formats import Format, Part, Shape
from layoutopt.ir.types import Op, Padding, Signature, Slot
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import LayoutRule
from layoutopt.ops.interfaces.contraction_modes import A, B, ContractionModes, ContractionOp, kind_of, modes_of
from layoutopt.ops.padding_state import padded_axes_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, Y, format_text, signature_of

_KINDS = {A: ("rows", "summed"), B: ("summed", "columns"), Y: ("rows", "columns")}


class Contraction(LayoutRule, ContractionOp):
    """A product of two tensors; each operand has a format of its own."""

    family = "matmul"
    formats = "a format for each operand, in any order of any digits"
    padding = PaddingTransfer(Padding.ZERO, None, None)
    has_independent_operands = True

    @abstractmethod
    def axes(self, op: Op) -> Axes | Inapplicable:
        """The iteration axes of a, b and y, for an op whose operands have the required ranks."""

    def iteration_axes(self, op: Op) -> Axes | Inapplicable:
        """The axes, or the reason why there are none, for any op."""
        return self.missing_rank(op) or self.axes(op)

    @override
    def roles(self, op: Op) -> Mapping[str, Slot]:
        return {"a": A, "b": B, "y": Y}

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The known formats, canonical for the other operands.

        If one operand is a matrix without shared batches, the result takes the order of axes of the other operand, and so does
        the matrix if it is a constant.
        """
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return axes
        shapes = _shapes(op)
        formats = {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()} | dict(known)
        matrix = self._matrix(op, axes, shapes)
        if matrix is not None:
            data = A if matrix == B else B
            source = next((slot for slot in (data, Y) if slot in known), data)
            format, shape = known.get(source), shapes[source]
            if format is not None and format.fits(shape) and not format.has_padding(shape):
                constant = op.inputs[matrix.index]
                slots = (data, Y, matrix) if constant is not None and constant.is_constant else (data, Y)
                others = [slot for slot in slots if slot not in known]
                formats |= {slot: aligned_format(format, source, slot, axes, shapes[slot]) for slot in others}
        signature = signature_of(op, formats)
        if isinstance(signature, Inapplicable):
            return signature
        for slot in (A, B, Y):
            storage = signature[slot]
            padded = set(padded_axes_of(op.operand(slot), storage)).difference(self.padded_axes(op, slot))
            if storage is not None and padded:
                return Inapplicable(f"{slot} would have padding in {format_text(op, slot, storage.format)}")
        return signature

    def _matrix(self, op: Op, axes: Axes, shapes: Mapping[Slot, Shape]) -> Slot | None:
        """The slot of the operand without shared batches, preferably a constant; None if both have some."""
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
        """The axes of an operand that may have padding."""
        del op, slot
        return ()

    @override
    def is_transposed(self, op: Op, slot: Slot) -> bool | None:
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable) or len(axes[slot]) < 2:
            return None
        kinds = [kind_of(axes, axis) for axis in axes[slot][-2:]]
        matrix = list(_KINDS[slot])
        return kinds == matrix[::-1] if kinds in (matrix, matrix[::-1]) else None

    def modes(self, op: Op, formats: OperandFormats) -> ContractionModes | None:
        """The modes of the iteration axes."""
        axes = self.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return None
        shapes = _shapes(op)
        return modes_of(axes, formats, shapes) if all(slot in formats for slot in shapes) else None


def aligned_format(format: Format, source: Slot, target: Slot, axes: Axes, shape: Shape) -> Format:
    """The format of operand `target` with its axes in the positions that they have in operand `source`.

    Axes missing from `source` take the position of the first source axis missing from `target`, so that columns of the result
    take the position of the summed axes. Between a and b they are rows, which come first, or columns, which come last.
    """
    target_axes = {axis: target_axis for target_axis, axis in enumerate(axes[target])}
    parts: list[Part] = []
    positions: list[int] = []
    for part in format.parts:
        target_axis = target_axes.get(axes[source][part.axis])
        if target_axis is None:
            positions.append(len(parts))
        elif not (part.block and shape[target_axis] == 1):
            parts.append(Part(target_axis, part.block, part.step))
    missing = [Part(target_axis) for target_axis, axis in enumerate(axes[target]) if axis not in axes[source]]
    at = positions[0] if positions and Y in (source, target) else len(parts)
    if target == A and source == B:
        at = 0
    return Format((*parts[:at], *missing, *parts[at:]))


def _shapes(op: Op) -> dict[Slot, Shape]:
    """The shapes of a, b and y."""
    values = {slot: op.operand(slot) for slot in (A, B, Y)}
    return {slot: value.shape for slot, value in values.items() if value is not None and value.shape is not None}


__all__ = ["A", "B", "Contraction", "aligned_format"]
