"""Einsum of two tensors: a contraction whose equation names the iteration axes. Each letter is one iteration axis.

An Einsum of one tensor that permutes its axes is a Transpose (`patterns.permuted_axes`); all others run in canonical format.

    bhsd, bhtd -> bhst      rows s, columns t, summed d, batches b and h
    ...ij, jk  -> ...ik

On physical arrays it is an Einsum with a letter for every digit that the formats cut the axes into.
"""

import re
from collections.abc import Sequence
from itertools import chain
from string import ascii_letters

from typing_extensions import override

from layoutopt.formats import Dim, Shape, quotient
from layoutopt.ir.types import Op, Signature, TensorType, Value
from layoutopt.ops.axiswise import Axes
from layoutopt.ops.base import Builder, register
from layoutopt.ops.contraction import A, B, Contraction
from layoutopt.ops.interfaces.contraction_modes import AxisDigit, digits_of
from layoutopt.ops.operands import present, present_type, shape_of
from layoutopt.ops.signatures import Inapplicable, OperandFormats, Y, estimated_extent, is_canonical

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@register
class Einsum(Contraction):
    """An Einsum of two operands without repeated letters in one operand and without letters that only one operand has."""

    ops = ("Einsum",)
    is_always_agnostic = True

    def axes(self, op: Op) -> Axes | Inapplicable:
        """A number for every letter; axes under an ellipsis are counted from the right."""
        values = (*op.inputs, *op.outputs)
        shapes = [value.shape for value in values if value is not None and value.shape is not None]
        if len(op.inputs) != 2 or len(shapes) != 3:
            return Inapplicable("it does not have two operands of known rank")
        terms = _terms(str(op.attributes.get("equation", "")), shapes)
        if terms is None:
            return Inapplicable("a letter occurs twice in an operand, or the number of letters is not the rank")
        a, b, y = map(set, terms)
        if not a | b >= y or (a | b) - (a & b) - y:
            return Inapplicable("an axis of only one operand is summed")
        numbers = {name: number for number, name in enumerate(dict.fromkeys((*terms[2], *terms[0], *terms[1])))}
        for name, number in numbers.items():
            dims = {
                dim
                for term, shape in zip(terms, shapes, strict=True)
                for other, dim in zip(term, shape, strict=True)
                if other == name and dim != 1
            }
            if len(dims) > 1:
                return Inapplicable(f"the extents {sorted(map(str, dims))} of axis {number} may differ")
        return {slot: tuple(numbers[name] for name in term) for slot, term in zip((A, B, Y), terms, strict=True)}

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The signature of the contraction; Inapplicable if blocks of operands do not divide, or need more than 52 letters."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable) or is_canonical(signature):
            return signature
        digits = self._digits(op, {slot: storage.format for slot in (A, B, Y) if (storage := signature[slot])})
        if digits is None or len({digit for operand_digits in digits for digit in operand_digits}) > len(ascii_letters):
            return Inapplicable("the blocks of two operands do not divide each other, or need more than 52 letters")
        return signature

    def _digits(self, op: Op, formats: OperandFormats) -> list[list[AxisDigit]] | None:
        axes = self.axes(op)
        assert not isinstance(axes, Inapplicable)
        shapes = {slot: value.shape or () for slot in (A, B, Y) if (value := op.operand(slot)) is not None}
        digits = digits_of(axes, formats, shapes)
        return None if digits is None else [digits[slot] for slot in (A, B, Y)]

    @override
    def lower(self, op: Op, build: Builder) -> None:
        axes, formats = self.axes(op), {slot: build.format(slot) for slot in (A, B, Y)}
        digits = self._digits(op, formats)
        assert digits is not None and not isinstance(axes, Inapplicable)
        names = {digit: ascii_letters[number] for number, digit in enumerate(dict.fromkeys(chain(*digits)))}
        terms = ["".join(names[digit] for digit in operand_digits) for operand_digits in digits]
        operands: list[Value | None] = []
        for slot, operand_digits in zip((A, B), digits[:2], strict=True):
            extents = _extents(operand_digits, digits, axes[slot], shape_of(op.operand(slot)))
            operands.append(build.reshape(present(build.input(slot.index)), extents))
        target = present_type(build.output_type(0))
        type = TensorType(target.dtype, _extents(digits[2], digits, axes[Y], shape_of(op.outputs[0])))
        (result,) = build.op("Einsum", operands, [type], {"equation": f"{terms[0]},{terms[1]}->{terms[2]}"})
        build.set_output(0, build.reshape(result, shape_of(target)))

    def flops(self, op: Op) -> float:
        """Two for every element of the iteration."""
        axes = self.axes(op)
        if isinstance(axes, Inapplicable):
            return super().flops(op)
        extents: dict[int, int] = {}
        for slot, numbers in axes.items():
            value = op.operand(slot)
            for axis, dim in zip(numbers, (value.shape if value is not None else None) or (), strict=True):
                extents[axis] = max(extents.get(axis, 1), estimated_extent(dim))
        total = 2.0
        for count in extents.values():
            total *= count
        return total


def permutation(op: Op) -> tuple[int, ...] | None:
    """The `perm` of the Transpose that an Einsum of one operand computes; None if it computes anything else."""
    x, y = op.inputs[0], op.outputs[0]
    if len(op.inputs) != 1 or x is None or x.shape is None or y is None or y.shape is None:
        return None
    terms = _terms(str(op.attributes.get("equation", "")), (x.shape, y.shape))
    if terms is None or sorted(terms[0]) != sorted(terms[1]):
        return None
    return tuple(terms[0].index(name) for name in terms[1])


def _extents(
    operand_digits: Sequence[AxisDigit], digits: Sequence[Sequence[AxisDigit]], axes: Sequence[int], shape: Shape
) -> Shape:
    """The extents of the digits of an operand.

    Args:
        operand_digits: the digits, outermost first.
        digits: those of all operands and of the result.
        axes: the iteration axes of the operand.
        shape: its logical shape.
    """
    dims = dict(zip(axes, shape, strict=True))
    spans = {digit for each in digits for digit in each}
    found: list[Dim] = []
    for axis, span in operand_digits:
        above = min((wider for other, wider in spans if other == axis and wider > span), default=None)
        dim = dims[axis] if above is None else above
        found.append(quotient(dim, span))
    return tuple(found)


def _terms(equation: str, shapes: Sequence[Shape]) -> list[list[str]] | None:
    """The axis names of each operand and, last, of the result; None if the equation does not fit the shapes.

    Without an arrow the result has the axes of an ellipsis, then the letters that occur once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if not arrow:
        letters = [letter for letter in sorted(set(left) - set(".,")) if left.count(letter) == 1]
        right = ("..." if "..." in left else "") + "".join(letters)
    texts.append(right)
    if len(texts) != len(shapes) or not all(map(_TERM.fullmatch, texts)):
        return None
    terms = [_names(text, len(shape)) for text, shape in zip(texts, shapes, strict=True)]
    if any(len(set(term)) != len(term) or len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        return None
    return terms


def _names(text: str, rank: int) -> list[str]:
    """The axis names of one operand: its letters, and the axes of an ellipsis counted from the right."""
    before, ellipsis, behind = text.partition("...")
    count = rank - len(before) - len(behind) if ellipsis else 0
    return [*before, *(f"...{position}" for position in range(count, 0, -1)), *behind]


__all__ = ["Einsum", "permutation"]
