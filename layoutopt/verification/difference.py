"""The measure of verification: how far one output is from another, relative to the scale of the output.

    largest = max |a - b| / scale        rms = sqrt(mean |a - b|^2) / scale        scale = max |a|

Rounding errors and wrong weights are told apart by comparing two such numbers, so the scale cancels out. Integers, booleans and
strings have no magnitude: their difference is the share of the elements that differ.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutopt.ir.types import Array


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two outputs, without a unit.

    Attributes:
        largest: of any element; infinite where shapes, types or the places of infinities and NaNs differ.
        rms: the root of the mean square over all elements.
    """

    largest: float = 0.0
    rms: float = 0.0

    def __or__(self, other: "Difference") -> "Difference":
        """The larger one of both numbers."""
        return Difference(max(self.largest, other.largest), max(self.rms, other.rms))

    def scaled(self, factor: float) -> "Difference":
        """Both numbers multiplied by a factor."""
        return Difference(self.largest * factor, self.rms * factor)

    def is_within(self, limit: "Difference") -> bool:
        """Whether neither number exceeds that of a limit."""
        return self.largest <= limit.largest and self.rms <= limit.rms


INFINITE = Difference(np.inf, np.inf)


def maximum(differences: Iterable[Difference]) -> Difference:
    """The largest of each number; zero for none."""
    result = Difference()
    for each in differences:
        result |= each
    return result


def leaves(value: Any) -> list[Any]:
    """The arrays of an output: of a sequence or map those of its elements, and the keys; other objects as they are."""
    if isinstance(value, Mapping):
        return [tuple(value), *(leaf for each in value.values() for leaf in leaves(each))]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [np.asarray(value, np.float32) if isinstance(value, float) else value]


def difference(want: Any, got: Any, scale: float | None = None) -> Difference:
    """The difference of two outputs: tensors, sequences, maps or scalars.

    Args:
        want: the output of the original.
        got: the output of the rewritten model.
        scale: what to divide by; by default the largest finite magnitude in `want`.
    """
    wants, gots = leaves(want), leaves(got)
    if len(wants) != len(gots) or type(want) is not type(got):
        return INFINITE
    return maximum(_of_arrays(a, b, scale) for a, b in zip(wants, gots, strict=True))


def _of_arrays(want: Any, got: Any, scale: float | None) -> Difference:
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        is_same = type(want) is type(got) and not isinstance(want, np.ndarray) and bool(want == got)
        return Difference() if is_same else INFINITE
    if want.shape != got.shape or want.dtype != got.dtype:
        return INFINITE
    if want.size == 0:
        return Difference()
    if is_number(want):
        return _of_numbers(want, got, scale)
    share = float(np.count_nonzero(want != got)) / want.size
    return Difference(share, share)


def is_number(array: Array) -> bool:
    """Whether an array has magnitudes: floating-point numbers, or quantised values of 8 bits and fewer."""
    return array.dtype.kind in "fcV" or str(array.dtype).startswith(
        ("bfloat", "float", "int8", "uint8", "int4", "uint4")
    )


def _of_numbers(want: Array, got: Array, scale: float | None) -> Difference:
    a, b = _computable(want), _computable(got)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a - b)
        largest = float(distance.max())
        if not np.isfinite(largest):  # infinities and NaNs have to be in the same places
            finite = np.isfinite(a)
            if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                return INFINITE
            a, distance = a[finite], distance[finite]
            largest = float(distance.max(initial=0.0))
        if largest == 0.0:
            return Difference()
        divisor = scale if scale is not None else float(np.abs(a).max())
    if not divisor:
        return INFINITE
    distance = distance.ravel() / distance.dtype.type(largest)  # in between, squares of small numbers would be lost
    return Difference(largest / divisor, largest / divisor * float(np.sqrt(np.dot(distance, distance) / distance.size)))


def _computable(array: Array) -> Array:
    """The array in a type that numpy computes with quickly and that holds its values."""
    if array.dtype in (np.float32, np.float64) or np.iscomplexobj(array):
        return array
    return array.astype(np.float32)


__all__ = ["INFINITE", "Difference", "difference", "is_number", "leaves", "maximum"]
