"""Results of verification: one comparison per output and set of test inputs, and the verdict over all of them."""

from collections.abc import Iterable, Sequence
from math import isinf
from typing import Any, Literal, Self

from msgspec.structs import replace

from layoutopt.record import Record
from layoutopt.report.schema import DataMovementReport
from layoutopt.runtime.errors import is_about_the_model
from layoutopt.verification.difference import EPSILONS, Difference, element_type

SPREAD_FACTOR = 3
"""The accepted difference of a value, as a multiple of the rounding spread, which a few perturbations only sample."""

ULPS = 4
"""Accepted difference in units in the last place (ulps) of the largest magnitude, where perturbations change no output."""

WEAK_SPREAD = 1e-4
"""Rounding spread above which a comparison of the whole model can miss faults: wrong weights may move the output by less."""


class Comparison(Record):
    """The comparison of one output on one set of test inputs.

    Attributes:
        name: of the output.
        dtype: its element type.
        difference: of the rewritten model's output from the original's.
        spread: the rounding spread, the largest difference that rounding alone makes in the original.
        limit: the largest accepted difference.
        at_sizes: the sizes of symbolic dimensions as text, such as " at batch=2"; empty without symbolic dimensions.
    """

    name: str
    dtype: str
    difference: Difference
    spread: Difference
    limit: Difference
    at_sizes: str = ""

    @classmethod
    def against_spread(
        cls,
        name: str,
        expected: Any,
        found: Difference,
        spread: Difference,
        *,
        factor: float = SPREAD_FACTOR,
        at_sizes: str = "",
    ) -> Self:
        """The comparison whose limit follows from the rounding spread and the element type of the output.

        Args:
            name: of the output.
            expected: the original's output.
            found: the difference of the rewritten model's output from it.
            spread: the rounding spread of the output.
            factor: the accepted multiple of the spread.
            at_sizes: the sizes of symbolic dimensions as text.
        """
        return cls(name, element_type(expected), found, spread, Difference(), at_sizes).within(spread, factor)

    def within(self, spread: Difference, factor: float = SPREAD_FACTOR) -> Self:
        """The comparison with another rounding spread, of which `factor` is the accepted multiple."""
        floor = ULPS * EPSILONS.get(self.dtype, _quantisation_step(self.dtype))
        return replace(self, spread=spread, limit=spread.scaled(factor) | Difference(floor, floor))

    @property
    def error(self) -> float:
        """The largest difference of an element, relative to the output's largest magnitude."""
        return self.difference.largest

    @property
    def tolerance(self) -> float:
        """The largest accepted error."""
        return self.limit.largest

    @property
    def passed(self) -> bool:
        """Whether the difference is within the limit."""
        return self.difference.is_within(self.limit)

    @property
    def is_conclusive(self) -> bool:
        """Whether the difference is within the spread, and the spread is small enough to distinguish faults from rounding."""
        within = self.spread | self.limit.scaled(1 / SPREAD_FACTOR)
        return self.difference.is_within(within) and self.spread.largest <= WEAK_SPREAD

    @property
    def limit_ratio(self) -> float:
        """The difference as a multiple of the limit."""
        pairs = ((self.difference.largest, self.limit.largest), (self.difference.rms, self.limit.rms))
        return max(value / (limit or 1e-300) if value else 0.0 for value, limit in pairs)

    @property
    def difference_text(self) -> str:
        """The difference, in one line."""
        if isinf(self.error):
            return f"{self.name} has another shape or type{self.at_sizes}, or infinities and NaNs in other positions"
        return f"{self.name} differs by {self.error:.2g}{self.at_sizes}"

    @property
    def description(self) -> str:
        """The difference and the rounding spread, in one line."""
        rounding = "" if isinf(self.error) else f", where rounding alone moves it by {self.spread.largest:.2g}"
        return f"{self.difference_text}{rounding}"


def _quantisation_step(dtype: str) -> float:
    """One step of an element type of 8 bits or fewer, relative to its largest magnitude; 0 for types compared exactly."""
    if dtype.startswith("float8"):
        return 2.0**-4
    return 0.01 / ULPS if dtype in ("int8", "uint8") else 0.0


class Verification(Record):
    """The result of a verification.

    Attributes:
        status: "passed", "failed", or "not verified" where a model could not be run.
        reason: why the status is not "passed", or which second comparison passed; one line.
        comparisons: one per output and set of test inputs.
        depends_on_inputs: whether at least one output depends on the inputs; if none does, "passed" is weak evidence.
        sizes: the sizes of symbolic dimensions at which the models were compared.
        tensors: the tensors of the original that are computed in the segments that differ; empty if these are unknown.
        defined_block: channels per block of the operators that ran by definition, because this machine's kernels have other
            blocks; 0 if kernels ran.
        misdeclared: the outputs whose computed shape contradicts the original's declaration, if the status follows from that.
        moved_before: the data movement that onnxruntime executes for the original; None if it was not measured.
        moved_after: the same for the rewritten model.
    """

    status: Literal["passed", "failed", "not verified"]
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    depends_on_inputs: bool = True
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()
    misdeclared: tuple[str, ...] = ()
    moved_before: DataMovementReport | None = None
    moved_after: DataMovementReport | None = None
    defined_block: int = 0
    tensors: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        comparisons: Iterable[Comparison],
        depends_on_inputs: bool = True,
        sizes: Sequence[tuple[tuple[str, int], ...]] = (),
    ) -> Self:
        """The verdict that follows from comparisons: "passed" if all of them passed, otherwise "failed"."""
        found = tuple(comparisons)
        failed = [each for each in found if not each.passed]
        if not failed:
            return cls("passed", "", found, depends_on_inputs, tuple(sizes))
        worst = max(failed, key=lambda each: each.limit_ratio)
        return cls("failed", worst.description, found, depends_on_inputs, tuple(sizes))

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the largest difference for its limit."""
        return max(self.comparisons, key=lambda each: each.limit_ratio, default=None)

    @property
    def refusal(self) -> str:
        """The reason why onnxruntime refuses to run the model; empty if it lacks a kernel, time, memory or values for it."""
        is_refused = self.status == "not verified" and is_about_the_model(self.reason)
        return self.reason.removeprefix("the original ") if is_refused else ""

    @property
    def spread(self) -> float | None:
        """The rounding spread of the output of `worst`; None without a comparison."""
        return self.worst.spread.largest if self.worst is not None else None

    @property
    def is_conclusive(self) -> bool:
        """Whether every output is within its rounding spread, and no spread is large enough to hide faults."""
        return self.status == "passed" and all(each.is_conclusive for each in self.comparisons)
