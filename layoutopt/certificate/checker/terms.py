"""Terms: expressions over values of the original model, in which the checker states what a node computes."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

from layoutopt.errors import CertificateError

Array: TypeAlias = np.ndarray[Any, Any]
Extent: TypeAlias = int | str
Shape: TypeAlias = tuple[Extent, ...]

LEAF, CONSTANT, VIEW = "leaf", "constant", "view"
FLOATS = (1, 10, 11, 16)  # onnx.TensorProto: float32, float16, double, bfloat16
NUMBERS = (*FLOATS, 2, 3, 4, 5, 6, 7, 9, 12, 13)  # and integers, of 8 to 64 bits, and bool


class UnprovableError(CertificateError):
    """A term cannot be formed, e.g. since extents do not agree for all sizes, or two terms differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One tensor, as an expression.

    Attributes:
        op: an operator of ONNX in its newest form, or `leaf`, `constant` or `view`.
        args: operands; a missing optional operand is None.
        attributes: sorted pairs; values are hashable. Every attribute is present, with its default where a node has none.
        shape: extents; a symbolic extent is a string.
        dtype: the element type, a number of onnx.TensorProto.
        array: the elements of a constant; floating-point numbers are float64.
        bound: for every element of a constant the sum of the absolute values that a lemma has added.
        key: a text that is equal for terms that can be equal; constants are in it by type only.
    """

    op: str
    args: tuple["Term | None", ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    shape: Shape = ()
    dtype: int = 1
    array: Array | None = None
    bound: Array | None = None
    key: str = field(default="", compare=False)

    def __getitem__(self, name: str) -> Any:
        """The attribute of that name; None if there is none."""
        return next((value for key, value in self.attributes if key == name), None)

    @property
    def is_static(self) -> bool:
        """Whether all extents are numbers."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def elements(self) -> Array:
        """The elements of a constant."""
        assert self.array is not None
        return self.array

    @property
    def magnitudes(self) -> Array:
        """The bound of a constant."""
        return np.abs(self.elements) if self.bound is None else self.bound


def leaf(name: str, shape: Shape, dtype: int, is_sum: bool = False) -> Term:
    """The value of that name of the original model; `is_sum` if a convolution or matrix product computes it."""
    return Term(LEAF, (), (("is_sum", is_sum), ("name", name)), shape, dtype, key=f"leaf {name!r}")


def constant(array: Array, dtype: int, bound: Array | None = None) -> Term:
    """A tensor of known elements."""
    if dtype not in NUMBERS:
        raise UnprovableError("constants of texts, complex numbers or fewer than 8 bits have no terms")
    if dtype in FLOATS:
        array = np.asarray(array, np.float64)
    bound = None if bound is None else np.broadcast_to(bound, array.shape)
    return Term(CONSTANT, (), (), tuple(array.shape), dtype, array, bound, f"constant {dtype}")


def apply(op: str, args: tuple[Term | None, ...], shape: Shape, dtype: int, /, **attributes: Any) -> Term:
    """A term of an operator."""
    pairs = tuple(sorted(attributes.items()))
    keys = ", ".join("-" if arg is None else arg.key for arg in args)
    key = f"{op}{pairs}{shape}{dtype}({keys})"
    return Term(op, args, pairs, shape, dtype, None, None, key if len(key) < 400 else sha256(key.encode()).hexdigest())
