"""Comparison of arrays with a fixed tolerance per element type, independent of the rounding spread of verification."""

from dataclasses import dataclass
from typing import Any

from layoutopt.verification.difference import difference, element_type, largest_magnitude

TOLERANCES: dict[str, float] = {
    "float64": 1e-7,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "float8": 0.25,
    "int8": 0.02,
    "uint8": 0.02,
}


@dataclass(frozen=True)
class ToleranceComparison:
    """The difference of one output and its tolerance, both relative to its largest magnitude."""

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.error <= self.tolerance


def compare(expected: Any, actual: Any) -> ToleranceComparison:
    """The comparison of an output with the expected one."""
    dtype = element_type(expected)
    tolerance = next((limit for prefix, limit in TOLERANCES.items() if dtype.startswith(prefix)), 0.0)
    if dtype in ("int8", "uint8") and largest_magnitude(expected):
        tolerance = max(
            tolerance, 1.01 / largest_magnitude(expected)
        )  # one step, where a sum in another order is rounded otherwise
    return ToleranceComparison(difference(expected, actual).largest, tolerance)
