"""The argument of type functions: an op with its attributes, and the types and small constants of its operands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from layoutopt.formats import Extent
from layoutopt.ir.types import Array, DType, OpaqueType, TensorType

MaybeExtent: TypeAlias = Extent | None
"""An extent, or an element of an integer tensor; None if it is unknown."""

Extents: TypeAlias = tuple[Extent, ...]
"""The extents of an operand; an unknown extent has a unique name."""

Dims: TypeAlias = tuple[MaybeExtent, ...]
"""The extents of a result."""

Elements: TypeAlias = Array
"""The elements of a small integer tensor, of its shape: objects that are `MaybeExtent`."""


class ContradictionError(Exception):
    """The operands or attributes of a node contradict each other, so that the op fails when it runs."""


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ContradictionError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ContradictionError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def require(is_consistent: bool, fault: str) -> None:
    """Check a condition that holds for every op that can run.

    Raises:
        ContradictionError: it does not hold.
    """
    if not is_consistent:
        raise ContradictionError(fault)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An input of a node.

    Attributes:
        type: its type.
        symbolic_elements: the elements of a small tensor of whole numbers, as extents; None if they are unknown.
        constant: the elements of a small tensor of any type, if all are known numbers.
    """

    type: TensorType | OpaqueType
    symbolic_elements: Elements | None = None
    constant: Array | None = None

    @property
    def dims(self) -> Extents | None:
        """The extents; None if the rank is unknown."""
        shape = self.type.shape if isinstance(self.type, TensorType) else None
        return None if shape is None else tuple(map(Extent.of, shape))

    def is_same(self, other: "Operand") -> bool:
        """Whether another operand has the same type and the same known elements."""
        if self.type != other.type or (self.symbolic_elements is None) != (other.symbolic_elements is None):
            return False
        if self.symbolic_elements is not None and other.symbolic_elements is not None:
            return self.symbolic_elements.shape == other.symbolic_elements.shape and list(
                self.symbolic_elements.flat
            ) == list(other.symbolic_elements.flat)
        if self.constant is None or other.constant is None:
            return self.constant is other.constant
        return self.constant.dtype == other.constant.dtype and np.array_equal(
            self.constant, other.constant, equal_nan=True
        )

    @property
    def dtype(self) -> DType | None:
        """The element type; None if the operand is no tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None


@dataclass(slots=True)
class Node:
    """An op with the types of its operands.

    Attributes:
        op_type: the operator.
        domain: its domain.
        version: the opset of the domain.
        attributes: attributes as python values.
        operands: the inputs, None where one is absent.
        outputs: for each output, whether it is present.
        bounds: lower bounds of named dimensions, where these are above 1.
        has_used_bounds: whether a type function has read the bounds.
    """

    op_type: str
    domain: str
    version: int
    attributes: Mapping[str, Any]
    operands: Sequence[Operand | None]
    outputs: tuple[bool, ...] = (True,)
    bounds: Mapping[str, int] = field(default_factory=dict)
    has_used_bounds: bool = False

    @property
    def kind(self) -> str:
        """The op type, with its domain in front unless that is ai.onnx."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def operand(self, index: int) -> Operand | None:
        """An input; None if it is absent."""
        return self.operands[index] if index < len(self.operands) else None

    def has_input(self, index: int) -> bool:
        """Whether the input is present."""
        return self.operand(index) is not None

    def shape(self, index: int) -> Extents | None:
        """The extents of an input."""
        operand = self.operand(index)
        return None if operand is None else operand.dims

    def elements(self, index: int = 0) -> Elements | None:
        """The elements of an input, as extents."""
        operand = self.operand(index)
        return None if operand is None else operand.symbolic_elements

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a small constant."""
        operand = self.operand(index)
        return None if operand is None else operand.constant

    def vector(self, index: int) -> list[MaybeExtent] | None:
        """The elements of an input that is a list, or one number."""
        found = self.elements(index)
        return None if found is None else list(found.reshape(-1))

    def integers(self, index: int, name: str = "") -> list[int] | None:
        """The elements of an input, or of the attribute that older opsets have for it, if all are known numbers."""
        if name and name in self.attributes:
            value = self.attributes[name]
            return [int(value)] if isinstance(value, int) else [int(each) for each in value]
        vector = self.vector(index)
        found = as_integers(None if vector is None else tuple(vector))
        return None if found is None else list(found)

    def low(self, extent: Extent) -> int | None:
        """A lower bound of an extent, given that every tensor that the results depend on has elements."""
        self.has_used_bounds = True
        return extent.low(self.bounds, 1)

    def is_at_most(self, one: Extent, other: Extent) -> bool:
        """Whether one extent is at most another for all sizes of dimensions."""
        low = self.low(other - one)
        return low is not None and low >= 0


def as_elements(array: Array) -> Elements | None:
    """The elements of a constant, if they are integers."""
    if array.dtype.kind not in "iubf":
        return None
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.array_equal(array, np.rint(array))):
        return None
    return element_array([Extent.of(int(each)) for each in array.reshape(-1)], array.shape)


def element_array(items: Sequence[MaybeExtent], shape: tuple[int, ...]) -> Elements:
    """An array of objects with these elements and this shape."""
    result = np.empty(len(items), dtype=object)
    result[:] = items
    return result.reshape(shape)


def as_integers(dims: Dims | None) -> tuple[int, ...] | None:
    """Extents as numbers; None if one is symbolic or unknown."""
    found = [None if dim is None else dim.number for dim in dims or ()]
    known = tuple(number for number in found if number is not None)
    return known if dims is not None and len(known) == len(found) else None


def product_of(dims: Iterable[Extent]) -> Extent:
    """The product of extents."""
    return prod(dims, start=Extent.of(1))


__all__ = [
    "ContradictionError",
    "Dims",
    "Elements",
    "Extents",
    "MaybeExtent",
    "Node",
    "Operand",
    "as_elements",
    "as_integers",
    "axis_of",
    "element_array",
    "product_of",
    "require",
]
