"""Checks of the report of a model against its budgets and its baseline."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from layoutopt.cost.size_growth import SLACK
from layoutopt.gates.baseline import BaselineEntry
from layoutopt.gates.budgets import Budgets
from layoutopt.gates.report import Finding, Numbers, Rule
from layoutopt.report.schema import Report
from layoutopt.report.units import size

BYTES_TOLERANCE = 0.01
"""The growth of the bytes moved, as a fraction of those of the baseline, up to which it is no regression."""

SPEED_UP_TOLERANCE = 0.02
"""The loss of estimated speed-up, as a fraction of that of the baseline, up to which it is no regression."""

_COUNTED = {"transposes": 0.0, "casts": 0.0, "bytes_moved": BYTES_TOLERANCE}
"""The numbers that are limited from above, with their tolerances."""


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

    @classmethod
    def of(cls, report: Report, *, is_measured: bool) -> "SpeedUp":
        """The measured speed-up if it was requested and possible, at the sizes of the plan; else the estimated one."""
        measurement, reason = report.measurement, ""
        if is_measured and report.plan is not None:
            if not report.changed:
                return cls(1.0, 1.0)
            if measurement is not None and measurement.sizes:
                return cls(round(measurement.sizes[0].speed_up, 4), measurement.sizes[0].high)
            reason = "nothing was rewritten" if measurement is None else measurement.reason
        estimated = Numbers.of(report).speed_up
        if estimated is None:
            return cls(None, reason=report.reason or "the plan has no estimated time")
        return cls(estimated, reason="LAYOUTOPT_NO_MEASURE is set" if reason == "off" else reason)


def check_budgets(numbers: Numbers, speed_up: SpeedUp, budgets: Budgets) -> Iterator[Finding]:
    """Errors for the budgets that a model exceeds, and warnings for those that could not be checked as requested."""
    for name in _COUNTED:
        count, limit = getattr(numbers, name), getattr(budgets, f"max_{name}")
        if limit is not None and count > limit:
            rule = Rule[f"MAX_{name.upper()}"]
            text = f"{count}, the budget is {limit}"
            if rule is Rule.MAX_BYTES_MOVED:
                text = f"{size(count)}, {size(count - limit)} above the budget of {size(limit)}"
            yield Finding.of(rule, f"{name.replace('_', ' ')}: {text}")
    if budgets.min_speedup is not None:
        yield from _check_speed_up(speed_up, budgets.min_speedup)
    most = budgets.max_size_growth
    if most is not None and numbers.constants_after > most * numbers.constants_before + SLACK:
        change = f"from {numbers.constants_before} to {numbers.constants_after} bytes"
        text = f"constants grow {numbers.size_growth:.4g} times, {change}, the budget is {most:g}"
        yield Finding.of(Rule.MAX_SIZE_GROWTH, text)


def _check_speed_up(found: SpeedUp, least: float) -> Iterator[Finding]:
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


def check_baseline(
    numbers: Numbers, sha256: str, sizes: Mapping[str, tuple[int, int]], entry: BaselineEntry | None
) -> Iterator[Finding]:
    """Errors for regressions against the baseline, and warnings about the comparison.

    Args:
        numbers: the numbers of the result.
        sha256: the hash of the model file and its external data.
        sizes: the sizes of symbolic dimensions in the plan.
        entry: the entry of the baseline; None if it has none for the model.
    """
    if entry is None:
        yield Finding.of(Rule.NOT_IN_BASELINE, "not in the baseline; add it with --update-baseline")
        return
    if entry.sha256 != sha256:
        text = f"the model has changed since the baseline (SHA-256 {entry.sha256[:12]}, now {sha256[:12]})"
        yield Finding.of(Rule.CHANGED_MODEL, f"{text}; it is compared all the same")
    if entry.sizes != sizes:
        before, after = (_sizes_text(each) for each in (entry.sizes, sizes))
        yield Finding.of(Rule.OTHER_SIZES, f"the baseline is for the sizes {before}, this plan for {after}")
    then = entry.numbers
    for name, tolerance in _COUNTED.items():
        count, past = getattr(numbers, name), getattr(then, name)
        if count > past * (1 + tolerance):
            yield Finding.of(Rule.REGRESSION, f"{name.replace('_', ' ')}: {count}, the baseline has {past}")
    if then.speed_up is None:
        return
    if numbers.speed_up is None:
        text = "the estimated speed-up is not compared with the baseline: the model is optimised already"
        yield Finding.of(Rule.NOT_COMPARED, text)
    elif numbers.speed_up < then.speed_up * (1 - SPEED_UP_TOLERANCE):
        text = f"estimated speed-up: {numbers.speed_up:.4g}, the baseline has {then.speed_up:.4g}"
        yield Finding.of(Rule.REGRESSION, text)


def _sizes_text(sizes: Mapping[str, tuple[int, int]]) -> str:
    texts = (f"{name}={low}" if low == high else f"{name}={low}:{high}" for name, (low, high) in sizes.items())
    return ", ".join(texts) or "of the model"


def remaining_findings(report: Report) -> Iterator[Finding]:
    """A note for each op of the result that moves bytes."""
    rules = {"transpose": Rule.REMAINING_TRANSPOSE, "cast": Rule.REMAINING_CAST}
    for each in report.moves:
        text = f"{each.op_type} moves {each.bytes} bytes: {each.reason}"
        yield Finding.of(rules[each.kind], text, node=each.name, body=each.body)
