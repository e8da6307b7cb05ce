"""What verification reports: one comparison per output and test input, and the verdict over all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Literal

from layoutopt.verification.difference import Difference

FACTOR = 3
"""A rewrite may differ from the original by so many times the rounding spread.

Measured on 60 networks without a fault, the ratio is at most 1.8: a few perturbations only sample what rounding can do.
What lies between the spread and this limit is decided segment by segment where the model can be cut."""

UNITS = 4
"""Units in the last place of the largest magnitude by which two outputs may differ even if perturbations do not move them."""

WEAK = 1e-4
"""A rounding spread above which a comparison of the whole model says little: wrong weights may move the output by less."""

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex64": 2.0**-23}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output on one test input.

    Attributes:
        name: of the output.
        dtype: its element type.
        difference: of the rewritten model's output from the original's.
        spread: the largest difference that rounding alone makes in the original.
        limit: the largest difference that is accepted.
        place: at which sizes, in words, where the model has symbolic dimensions.
        magnitude: the largest magnitude in the original's output.
    """

    name: str
    dtype: str
    difference: Difference
    spread: Difference
    limit: Difference
    place: str = ""
    magnitude: float = 0.0

    @property
    def error(self) -> float:
        """The largest difference of an element, relative to the output's largest magnitude."""
        return self.difference.largest

    @property
    def tolerance(self) -> float:
        """The largest error that is accepted."""
        return self.limit.largest

    @property
    def passed(self) -> bool:
        """Whether the difference is within the limit."""
        return self.difference.is_within(self.limit)

    @property
    def is_conclusive(self) -> bool:
        """Whether the difference is within the spread itself, and the spread small enough to tell a fault from rounding."""
        within = self.spread | self.limit.scaled(1 / FACTOR)
        return self.difference.is_within(within) and self.spread.largest <= WEAK

    @property
    def badness(self) -> float:
        """The difference as a multiple of the limit."""
        pairs = ((self.difference.largest, self.limit.largest), (self.difference.rms, self.limit.rms))
        return max(value / (limit or 1e-300) if value else 0.0 for value, limit in pairs)


def judged(
    name: str, dtype: str, difference: Difference, spread: Difference, *, factor: float = FACTOR, units: float = UNITS
) -> Comparison:
    """A comparison whose limit follows from the rounding spread and the element type."""
    floor = units * _EPSILON.get(dtype, _narrow(dtype))
    limit = spread.scaled(factor) | Difference(floor, floor)
    return Comparison(name, dtype, difference, spread, limit)


def _narrow(dtype: str) -> float:
    """One step of an element type of 8 bits or fewer, relative to its largest magnitude; 0 for what has to be equal."""
    if dtype.startswith("float8"):
        return 2.0**-4
    return 0.01 / UNITS if dtype in ("int8", "uint8") else 0.0


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification.

    Attributes:
        status: "passed", "failed", or "not verified" where a model could not be run.
        reason: why it is not "passed", or by which second comparison it is; one line.
        comparisons: every output on every test input.
        sensitive: whether some output depends on the inputs; if not, passing says little.
        sizes: the sizes of symbolic dimensions at which the models were compared.
        misdeclared: the outputs whose shapes are other ones than the original declares, where that is why nothing was verified.
    """

    status: Literal["passed", "failed", "not verified"]
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    sensitive: bool = True
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()
    misdeclared: tuple[str, ...] = ()

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the largest difference for its limit."""
        return max(self.comparisons, key=lambda each: each.badness, default=None)

    @property
    def spread(self) -> float | None:
        """By how much rounding alone moves the output that `worst` is about; None without a comparison."""
        return self.worst.spread.largest if self.worst is not None else None

    @property
    def is_conclusive(self) -> bool:
        """Whether every output is within the spread that rounding alone makes, and none of the spreads hides faults."""
        return self.status == "passed" and all(each.is_conclusive for each in self.comparisons)


def concluded(
    comparisons: Iterable[Comparison],
    sensitive: bool = True,
    sizes: Sequence[tuple[tuple[str, int], ...]] = (),
    reason: str = "",
) -> Verification:
    """The verdict that follows from comparisons."""
    found = tuple(comparisons)
    failed = [each for each in found if not each.passed]
    if not failed:
        return Verification("passed", reason, found, sensitive, tuple(sizes))
    worst = max(failed, key=lambda each: each.badness)
    return Verification("failed", described(worst), found, sensitive, tuple(sizes))


def described(comparison: Comparison) -> str:
    """The difference of an output and what rounding alone makes of it, in words."""
    name, error, spread = comparison.name, comparison.error, comparison.spread.largest
    if isinf(error):
        return f"{name} has another shape or type{comparison.place}, or infinities and NaNs in other places"
    return f"{name} differs by {error:.2g}{comparison.place}, where rounding alone moves it by {spread:.2g}"


__all__ = ["FACTOR", "UNITS", "WEAK", "Comparison", "Verification", "concluded", "described", "judged"]
