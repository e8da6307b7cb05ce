"""Difference of two outputs, relative to the largest magnitude of the first.

    largest = max |a - b| / scale        rms = sqrt(mean |a - b|^2) / scale        scale = max |a|

Verification compares the difference of two models with the difference that rounding makes, so the scale cancels out. Integers
of more than 8 bits, booleans and strings are compared for equality: their difference is the share of the elements that differ.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from layoutopt.ir.types import Array
from layoutopt.record import Record


class Difference(Record):
    """The dimensionless difference of two outputs.

    Attributes:
        largest: the largest difference of an element; infinite where shapes, types or positions of infinities and NaNs differ.
        rms: the root mean square over all elements.
    """

    largest: float = 0.0
    rms: float = 0.0

    def __or__(self, other: "Difference") -> "Difference":
        """The larger `largest` and the larger `rms` of two differences."""
        return Difference(max(self.largest, other.largest), max(self.rms, other.rms))

    def scaled(self, factor: float) -> "Difference":
        """Both numbers multiplied by a factor."""
        return Difference(self.largest * factor, self.rms * factor)

    def is_within(self, limit: "Difference") -> bool:
        """Whether neither `largest` nor `rms` exceeds that of the limit."""
        return self.largest <= limit.largest and self.rms <= limit.rms


EPSILONS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex64": 2.0**-23}
"""The machine epsilon of each floating-point type: one unit in the last place of 1."""

INFINITE = Difference(np.inf, np.inf)


def maximum(differences: Iterable[Difference]) -> Difference:
    """The largest `largest` and the largest `rms` of all differences; zero without differences."""
    result = Difference()
    for each in differences:
        result |= each
    return result


def leaves(value: Any) -> list[Any]:
    """The leaves of an output: those of all elements of a sequence; the tuple of keys of a map, then those of its values.

    A tensor is one leaf. A Python float is a leaf of type float32. Any other object is one leaf, unchanged.
    """
    if isinstance(value, Mapping):
        return [tuple(value), *(leaf for each in value.values() for leaf in leaves(each))]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [np.asarray(value, np.float32) if isinstance(value, float) else value]


def difference(expected: Any, actual: Any, scale: float | None = None) -> Difference:
    """The difference of two outputs: tensors, sequences, maps or scalars.

    Args:
        expected: the output of the original.
        actual: the output of the rewritten model.
        scale: the divisor; by default the largest finite magnitude in `expected`.
    """
    expected_leaves, actual_leaves = leaves(expected), leaves(actual)
    if len(expected_leaves) != len(actual_leaves) or type(expected) is not type(actual):
        return INFINITE
    return maximum(_of_arrays(a, b, scale) for a, b in zip(expected_leaves, actual_leaves, strict=True))


def _of_arrays(expected: Any, actual: Any, scale: float | None) -> Difference:
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        is_same = type(expected) is type(actual) and not isinstance(expected, np.ndarray) and bool(expected == actual)
        return Difference() if is_same else INFINITE
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return INFINITE
    if expected.size == 0:
        return Difference()
    if has_magnitude(expected):
        return _of_numbers(expected, actual, scale)
    share = float(np.count_nonzero(expected != actual)) / expected.size
    return Difference(share, share)


def has_magnitude(array: Array) -> bool:
    """Whether elements are compared by distance: floating point, or integers of at most 8 bits, which may be quantised."""
    return array.dtype.kind in "fcV" or str(array.dtype).startswith(
        ("bfloat", "float", "int8", "uint8", "int4", "uint4")
    )


def _of_numbers(expected: Array, actual: Array, scale: float | None) -> Difference:
    a, b = _upcast(expected), _upcast(actual)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.asarray(a - b)
        distance = np.abs(distance, out=None if np.iscomplexobj(distance) else distance)
        largest = float(distance.max())
        if not np.isfinite(largest):  # infinities and NaNs must have the same positions
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
    distance = distance.ravel()
    distance /= distance.dtype.type(largest)  # avoids underflow of squares
    return Difference(largest / divisor, largest / divisor * float(np.sqrt(np.dot(distance, distance) / distance.size)))


def _upcast(array: Array) -> Array:
    """The array as float32; arrays of float32, float64 and complex numbers as they are."""
    if array.dtype in (np.float32, np.float64) or np.iscomplexobj(array):
        return array
    return array.astype(np.float32)


def element_type(value: Any) -> str:
    """The element type of an output; for a sequence or map, the element type of its first element."""
    while isinstance(value, list | dict) and value:
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return str(value.dtype) if isinstance(value, np.ndarray) else "float32" if isinstance(value, float) else "object"


def largest_magnitude(value: Any) -> float:
    """The largest finite magnitude in an output that is a tensor of numbers; 0 for other outputs."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
        return 0.0
    magnitudes = np.abs(value.astype(np.complex128 if np.iscomplexobj(value) else np.float64))
    return float(magnitudes.max(initial=0.0, where=np.isfinite(magnitudes)))
