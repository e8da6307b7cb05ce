"""Symbolic extents as numbers, computed at run time from shapes and elements of operands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from layoutopt.formats import Dim, Extent
from layoutopt.formats.extent import Atom, FloorDiv
from layoutopt.ir.types import DType, TensorType, Value
from layoutopt.ops import is_computable

if TYPE_CHECKING:
    from layoutopt.dialects.builder import OpBuilder

_ONE = TensorType(DType.INT64, (1,))


class RuntimeExtents:
    """Records the ops that compute extents, each as a tensor of one element.

    Args:
        build: the builder that records the ops.
        arrays: values of the lowered graph from whose shapes extents are read.
        operands: operands of the planned op, whose elements may be extents; the last of `arrays` are their lowered values.
    """

    def __init__(self, build: "OpBuilder", arrays: Sequence[Value | None], operands: Sequence[Value | None]) -> None:
        """Begin with no recorded ops."""
        self._build = build
        self._axis_of: dict[Extent, tuple[Value, int]] = {}
        self._elements: dict[Extent, tuple[Value, int]] = {}
        self._shapes: dict[Value, Value] = {}
        self._lists: dict[Value, Value] = {}
        for value in (each for each in arrays if each is not None):
            for axis, dim in enumerate(value.shape or ()):
                if isinstance(dim, Extent):
                    self._axis_of.setdefault(dim, (value, axis))
        for operand, array in zip(operands, arrays[-len(operands) :] if operands else (), strict=True):
            for position, element in enumerate((operand.elements if operand is not None else None) or ()):
                if isinstance(element, Extent) and array is not None:
                    self._elements.setdefault(element, (array, position))
        self._known = {*self._axis_of, *self._elements}

    def of(self, dim: Dim) -> Value | None:
        """An extent as a tensor; None if it cannot be computed."""
        return self._extent(Extent.of(dim)) if is_computable(dim, self._known) else None

    def _extent(self, extent: Extent) -> Value:
        if extent.number is not None:
            return self._build.constant(np.asarray([extent.number], dtype=np.int64), "extent")
        if (found := self._read_extent(extent)) is not None:
            return found
        total: Value | None = None
        for factors, coefficient in reversed(extent.terms):
            term = self._product(factors, coefficient)
            total = term if total is None else self._arithmetic("Add", total, term)
        assert total is not None
        return total

    def _product(self, factors: tuple[Atom, ...], coefficient: int) -> Value:
        pieces = [self._atom(factor) for factor in factors]
        if coefficient != 1 or not pieces:
            pieces.append(self._extent(Extent.of(coefficient)))
        whole = pieces[0]
        for piece in pieces[1:]:
            whole = self._arithmetic("Mul", whole, piece)
        return whole

    def _atom(self, atom: Atom) -> Value:
        extent = Extent.of_atom(atom)
        if isinstance(atom, FloorDiv) and self._read_extent(extent) is None:
            return self._arithmetic("Div", self._extent(atom.dividend), self._extent(atom.divisor))
        return self._extent(extent)

    def _arithmetic(self, op_type: str, one: Value, other: Value) -> Value:
        (result,) = self._build.op(op_type, [one, other], [_ONE])
        return result

    def _read_extent(self, dim: Extent) -> Value | None:
        """An extent that is an extent or an element of an operand; None if there is no such operand."""
        if dim in self._axis_of:
            value, axis = self._axis_of[dim]
            return self._element(self._shape(value), axis)
        if dim in self._elements:
            value, position = self._elements[dim]
            return self._element(self._as_list(value), position)
        return None

    def _element(self, numbers: Value, position: int) -> Value:
        if numbers.shape == (1,):
            return numbers
        (result,) = self._build.op(
            "Gather", [numbers, self._build.constant(np.asarray([position], np.int64), "index")], [_ONE]
        )
        return result

    def _shape(self, value: Value) -> Value:
        if value not in self._shapes:
            assert value.shape is not None
            (self._shapes[value],) = self._build.op("Shape", [value], [TensorType(DType.INT64, (len(value.shape),))])
        return self._shapes[value]

    def _as_list(self, value: Value) -> Value:
        """An operand with extents as a vector of int64."""
        if value not in self._lists:
            assert value.shape is not None
            result = value if value.shape else self._build.reshape(value, (1,))
            if value.dtype is not DType.INT64:
                (result,) = self._build.op("Cast", [result], [TensorType(DType.INT64, result.shape)], {"to": 7})
            self._lists[value] = result
        return self._lists[value]
