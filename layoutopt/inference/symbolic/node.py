"""One node as the rules of symbolic inference see it: its attributes, and what is known of its operands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.helper

from layoutopt.formats import Extent
from layoutopt.ir.types import Array

Known: TypeAlias = Extent | None
"""An extent, or an element of an integer tensor; None where nothing is known of it."""

Dims: TypeAlias = tuple[Known, ...]
"""The extents of a tensor."""

Elements: TypeAlias = Array
"""The elements of a small integer tensor, of its shape: objects that are `Known`."""


@dataclass(slots=True)
class Node:
    """A node between its operands.

    Attributes:
        proto: the node.
        version: the opset of its domain.
        shapes: of the inputs, None where an input is absent or its rank unknown.
        elements: of the inputs, None where nothing is known of them or they are many.
        constants: the inputs that are small constants, of any element type.
        is_float: whether the results are fractions.
        bounds: what names are never below, where that is more than 1.
    """

    proto: onnx.NodeProto
    version: int
    shapes: list[Dims | None]
    elements: list[Elements | None]
    constants: list[Array | None]
    is_float: bool = False
    bounds: Mapping[str, int] = field(default_factory=dict)

    @property
    def op_type(self) -> str:
        """The operator."""
        return str(self.proto.op_type)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes as python values; those of a function's parameters are left out."""
        given = (each for each in self.proto.attribute if not each.ref_attr_name)
        return {each.name: onnx.helper.get_attribute_value(each) for each in given}

    def shape(self, index: int) -> Dims | None:
        """The extents of an input."""
        return self.shapes[index] if index < len(self.shapes) else None

    def has(self, index: int) -> bool:
        """Whether there is such an input."""
        return index < len(self.proto.input) and bool(self.proto.input[index])

    def vector(self, index: int) -> list[Known] | None:
        """The elements of an input that is a list, or one number."""
        found = self.elements[index] if index < len(self.elements) else None
        return None if found is None else list(found.reshape(-1))

    def integers(self, index: int, name: str = "") -> list[int] | None:
        """What an input, or an attribute before inputs were given instead, holds as numbers; None if not all are known."""
        if name and name in self.attributes:
            value = self.attributes[name]
            return [int(value)] if isinstance(value, int) else [int(each) for each in value]
        vector = self.vector(index)
        found = numbers(None if vector is None else tuple(vector))
        return None if found is None else list(found)

    def low(self, extent: Extent) -> int | None:
        """What a number is never below."""
        return extent.low(self.bounds, 1)

    def below(self, one: Extent, other: Extent) -> bool:
        """Whether one number is surely not above another."""
        low = self.low(other - one)
        return low is not None and low >= 0

    def constant(self, index: int) -> Array | None:
        """An input that is a constant."""
        return self.constants[index] if index < len(self.constants) else None


def as_elements(array: Array) -> Elements | None:
    """The elements of a constant, if they are whole numbers."""
    if array.dtype.kind not in "iubf":
        return None
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.array_equal(array, np.rint(array))):
        return None
    return objects([Extent.of(int(each)) for each in array.reshape(-1)], array.shape)


def objects(items: Sequence[Known], shape: tuple[int, ...]) -> Elements:
    """An array of these elements."""
    result = np.empty(len(items), dtype=object)
    result[:] = items
    return result.reshape(shape)


def numbers(dims: Dims | None) -> tuple[int, ...] | None:
    """Extents as numbers; None if not all are."""
    found = [None if dim is None else dim.number for dim in dims or ()]
    known = tuple(number for number in found if number is not None)
    return known if dims is not None and len(known) == len(found) else None


def times(dims: Iterable[Known]) -> Known:
    """The product of extents; None if one is not known."""
    total = Extent.of(1)
    for dim in dims:
        if dim is None:
            return None
        total = total * dim
    return total
