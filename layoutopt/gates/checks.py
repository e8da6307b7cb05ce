"""Checks of the report of a model against its budgets and its baseline."""

from collections.abc import Iterator, Mapping

from layoutopt.cost.size_growth import SLACK
from layoutopt.gates.baseline import BaselineEntry
from layoutopt.gates.budgets import Budgets
from layoutopt.gates.report import BASELINE, Finding, Numbers
from layoutopt.report.facts import range_text

BYTES_TOLERANCE = 0.01
"""The growth of the bytes moved, as a fraction of those of the baseline, up to which it is no regression."""

SPEED_UP_TOLERANCE = 0.02
"""The loss of estimated speed-up, as a fraction of that of the baseline, up to which it is no regression."""

_COUNTED = {"transposes": 0.0, "casts": 0.0, "bytes_moved": BYTES_TOLERANCE}
"""The numbers that are limited from above, with their tolerances."""


def check_budgets(numbers: Numbers, budgets: Budgets) -> Iterator[Finding]:
    """Errors for the budgets that a model exceeds, and a warning about one that cannot be checked."""
    for name in _COUNTED:
        count, limit = getattr(numbers, name), getattr(budgets, f"max_{name}")
        if limit is not None and count > limit:
            yield _error(f"max-{name.replace('_', '-')}", f"{name.replace('_', ' ')}: {count}, the budget is {limit}")
    if (least := budgets.min_speedup) is not None:
        yield from _check_speed_up("min-speedup", numbers, least, f"the budget is {least:g}")
    most = budgets.max_size_growth
    if most is not None and numbers.constants_after > most * numbers.constants_before + SLACK:
        change = f"from {numbers.constants_before} to {numbers.constants_after} bytes"
        text = f"constants grow {numbers.size_growth:.4g} times, {change}, the budget is {most:g}"
        yield _error("max-size-growth", text)


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
        yield _warning(BASELINE, "not in the baseline; add it with --update-baseline")
        return
    if entry.sha256 != sha256:
        text = f"the model has changed since the baseline (SHA-256 {entry.sha256[:12]}, now {sha256[:12]})"
        yield _warning(BASELINE, f"{text}; it is compared all the same")
    if entry.sizes != sizes:
        before, after = (_sizes_text(each) for each in (entry.sizes, sizes))
        yield _warning(BASELINE, f"the baseline is for the sizes {before}, this plan for {after}")
    then = entry.numbers
    for name, tolerance in _COUNTED.items():
        count, past = getattr(numbers, name), getattr(then, name)
        if count > past * (1 + tolerance):
            yield _error(BASELINE, f"{name.replace('_', ' ')}: {count}, the baseline has {past}")
    if (past_speed_up := then.speed_up) is not None:
        least = past_speed_up * (1 - SPEED_UP_TOLERANCE)
        yield from _check_speed_up(BASELINE, numbers, least, f"the baseline has {past_speed_up:.4g}")


def _check_speed_up(check: str, numbers: Numbers, least: float, reference: str) -> Iterator[Finding]:
    if numbers.speed_up is None:
        yield _warning(check, "the estimated speed-up is not checked: the model is optimised already")
    elif numbers.speed_up < least:
        yield _error(check, f"estimated speed-up: {numbers.speed_up:.4g}, {reference}")


def _sizes_text(sizes: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name}={range_text(*range)}" for name, range in sizes.items()) or "of the model"


def _error(check: str, message: str) -> Finding:
    return Finding(check=check, level="error", message=message)


def _warning(check: str, message: str) -> Finding:
    return Finding(check=check, level="warning", message=message)
