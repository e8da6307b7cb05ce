"""Checks of the numbers of a model against its budgets and its baseline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from layoutopt.cost.size_growth import SLACK
from layoutopt.gates.baseline import BaselineEntry
from layoutopt.gates.budgets import Budgets
from layoutopt.gates.findings import Finding, Rule
from layoutopt.gates.numbers import Numbers
from layoutopt.report.schema import RemainingMove
from layoutopt.report.units import size

BYTES_TOLERANCE = 0.01
"""The growth of the bytes moved, as a fraction of those of the baseline, up to which it is no regression."""

SPEED_UP_TOLERANCE = 0.02
"""The loss of estimated speed-up, as a fraction of that of the baseline, up to which it is no regression."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed-up that `min-speedup` limits.

    Attributes:
        value: the speed-up; None if there is none.
        high: the upper end of its confidence interval; None if it is an estimate.
        reason: the reason why there is no speed-up, or why it is not measured as requested; empty otherwise.
    """

    value: float | None
    high: float | None = None
    reason: str = ""


def check_budgets(numbers: Numbers, speed_up: SpeedUp, budgets: Budgets) -> list[Finding]:
    """Errors for the budgets that a model exceeds, and warnings for those that could not be checked as requested."""
    return [*_counted(numbers, budgets), *_speed_up(speed_up, budgets), *_size_growth(numbers, budgets)]


def _counted(numbers: Numbers, budgets: Budgets) -> Iterator[Finding]:
    limits = (
        (Rule.MAX_TRANSPOSES, numbers.transposes, budgets.max_transposes, "transposes"),
        (Rule.MAX_CASTS, numbers.casts, budgets.max_casts, "casts"),
        (Rule.MAX_BYTES_MOVED, numbers.bytes_moved, budgets.max_bytes_moved, "bytes moved"),
    )
    for rule, count, limit, label in limits:
        if limit is not None and count > limit:
            text = f"{label}: {count}, the budget is {int(limit)}"
            if rule is Rule.MAX_BYTES_MOVED:
                text = f"{label}: {size(count)}, {size(count - int(limit))} above the budget of {size(int(limit))}"
            yield Finding.of(rule, text)


def _speed_up(found: SpeedUp, budgets: Budgets) -> Iterator[Finding]:
    least = budgets.min_speedup
    if least is None:
        return
    if found.value is None:
        yield Finding.of(Rule.NOT_CHECKED, f"{Rule.MIN_SPEEDUP} is not checked: {found.reason}")
        return
    if found.reason:
        text = f"{Rule.MIN_SPEEDUP} is checked on the estimate, since the result was not measured: {found.reason}"
        yield Finding.of(Rule.NOT_MEASURED, text)
    if found.high is None and found.value < least:
        yield Finding.of(Rule.MIN_SPEEDUP, f"estimated speed-up: {found.value:.4g}, the budget is {least:g}")
    elif found.high is not None and found.high < least:
        text = f"measured speed-up: {found.value:.4g}, at most {found.high:.4g}, the budget is {least:g}"
        yield Finding.of(Rule.MIN_SPEEDUP, text)


def _size_growth(numbers: Numbers, budgets: Budgets) -> Iterator[Finding]:
    most = budgets.max_size_growth
    if most is not None and numbers.constants_after > most * numbers.constants_before + SLACK:
        change = f"from {numbers.constants_before} to {numbers.constants_after} bytes"
        text = f"constants grow {numbers.size_growth:.4g} times, {change}, the budget is {most:g}"
        yield Finding.of(Rule.MAX_SIZE_GROWTH, text)


def check_baseline(
    numbers: Numbers, sha256: str, sizes: Mapping[str, tuple[int, int]], entry: BaselineEntry | None
) -> list[Finding]:
    """Errors for regressions against the baseline, and warnings about the comparison.

    Args:
        numbers: the numbers of the result.
        sha256: the hash of the model file and its external data.
        sizes: the sizes of symbolic dimensions in the plan.
        entry: the entry of the baseline; None if it has none for the model.
    """
    if entry is None:
        return [Finding.of(Rule.NOT_IN_BASELINE, "not in the baseline; add it with --update-baseline")]
    return [*_warnings(numbers, sha256, sizes, entry), *_regressions(numbers, entry.numbers)]


def _warnings(
    numbers: Numbers, sha256: str, sizes: Mapping[str, tuple[int, int]], entry: BaselineEntry
) -> Iterator[Finding]:
    if entry.sha256 != sha256:
        text = f"the model has changed since the baseline (SHA-256 {entry.sha256[:12]}, now {sha256[:12]})"
        yield Finding.of(Rule.CHANGED_MODEL, f"{text}; it is compared all the same")
    if entry.sizes != sizes:
        then, now = (_sizes_text(each) for each in (entry.sizes, sizes))
        yield Finding.of(Rule.OTHER_SIZES, f"the baseline is for the sizes {then}, this plan for {now}")
    if entry.numbers.speed_up is not None and numbers.speed_up is None:
        text = "the estimated speed-up is not compared with the baseline: the model is optimised already"
        yield Finding.of(Rule.NOT_COMPARED, text)


def _regressions(now: Numbers, then: Numbers) -> Iterator[Finding]:
    counts = (
        ("transposes", now.transposes, then.transposes, 0.0),
        ("casts", now.casts, then.casts, 0.0),
        ("bytes moved", now.bytes_moved, then.bytes_moved, BYTES_TOLERANCE),
    )
    for label, count, before, tolerance in counts:
        if count > before * (1 + tolerance):
            yield Finding.of(Rule.REGRESSION, f"{label}: {count}, the baseline has {before}")
    if now.speed_up is None or then.speed_up is None:
        return
    if now.speed_up < then.speed_up * (1 - SPEED_UP_TOLERANCE):
        text = f"estimated speed-up: {now.speed_up:.4g}, the baseline has {then.speed_up:.4g}"
        yield Finding.of(Rule.REGRESSION, text)


def remaining_findings(moves: Sequence[RemainingMove]) -> list[Finding]:
    """A note for each op of the result that moves bytes."""
    rules = {"cast": Rule.REMAINING_CAST, "transpose": Rule.REMAINING_TRANSPOSE}
    return [
        Finding.of(
            rules[each.kind],
            f"{each.op_type} moves {each.bytes} bytes: {each.reason}",
            node=each.name,
            body=each.body,
        )
        for each in moves
    ]


def _sizes_text(sizes: Mapping[str, tuple[int, int]]) -> str:
    texts = (f"{name}={low}" if low == high else f"{name}={low}:{high}" for name, (low, high) in sizes.items())
    return ", ".join(texts) or "of the model"


__all__ = ["BYTES_TOLERANCE", "SPEED_UP_TOLERANCE", "SpeedUp", "check_baseline", "check_budgets", "remaining_findings"]
