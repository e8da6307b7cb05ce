"""Geometric means of blocks with confidence intervals, and the check of the machine.

Values come in blocks with separate sessions. Runs of one session are not independent: they share its memory addresses and
the load of the machine. The interval is therefore that of the logarithms of the blocks' medians. A sixth of them at either
end is trimmed, for other programs that run now and then: with n blocks, of which h remain with the mean m, it is (Yuen 1974)

    exp(m - t s sqrt(n) / h) to exp(m + t s sqrt(n) / h)

where s is the standard deviation of all, with those trimmed replaced by the nearest that remain, and t the quantile of
Student's distribution. Its degrees of freedom are h - 1 if nothing is trimmed and h - 2 otherwise: h - 1 then is too narrow
on the simulated machines of tests/unit/test_noisy_machines.py, which counts how often the interval contains the truth.
"""

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field

from layoutopt.report.schema import ReportModel

Blocks: TypeAlias = Sequence[Sequence[float]]

Verdict: TypeAlias = Literal["faster", "slower", "no difference shown"]

CONFIDENCE = 0.95

MAX_NULL_WIDTH = 0.03
"""The width of the interval of the null ratio above which a machine is too busy for a measurement."""

# fmt: off
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
    2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069,
)
# fmt: on
"""Quantiles of Student's distribution for a two-sided interval of 95 %, with 1 to 23 degrees of freedom, up to 36 blocks."""


class Estimate(ReportModel):
    """The trimmed geometric mean of the blocks' medians, with its confidence interval and the quartiles of all values."""

    value: float = Field(description="geometric mean of the blocks' medians, without a sixth of them at either end")
    low: float = Field(description="lower end of the 95 % confidence interval, from the spread of the blocks")
    high: float = Field(description="upper end of it")
    lower_quartile: float
    upper_quartile: float
    count: int


class Ratio(Estimate):
    """The speed-up: the baseline's time divided by this model's within each round."""

    verdict: Verdict = Field(description="whether the whole confidence interval is above or below 1")


def estimate(blocks: Blocks) -> Estimate:
    """The estimate of positive values in two blocks or more, each of which has a value."""
    logs = sorted(median(map(log, block)) for block in blocks)
    count, trimmed = len(logs), len(logs) // 6
    kept = logs[trimmed : count - trimmed]
    deviation = stdev([kept[0]] * trimmed + kept + [kept[-1]] * trimmed)
    middle, freedom = fmean(kept), len(kept) - (2 if trimmed else 1)
    half_width = _STUDENT[freedom - 1] * deviation * sqrt(count) / len(kept)
    values = [value for block in blocks for value in block]
    lower, upper = (float(each) for each in np.quantile(values, (0.25, 0.75)))
    return Estimate(
        value=exp(middle),
        low=exp(middle - half_width),
        high=exp(middle + half_width),
        lower_quartile=lower,
        upper_quartile=upper,
        count=len(values),
    )


def ratio(baseline: Blocks, others: Blocks) -> Ratio:
    """The estimate of baseline / others, value by value."""
    pairs = (zip(one, other, strict=True) for one, other in zip(baseline, others, strict=True))
    found = estimate([[a / b for a, b in block] for block in pairs])
    verdict: Verdict = "faster" if found.low > 1 else "slower" if found.high < 1 else "no difference shown"
    return Ratio(**found.model_dump(), verdict=verdict)


def null_ratio(blocks: Blocks) -> Ratio | None:
    """The null ratio: that of a model's own times, each divided by its neighbour's; None if a block has only one time.

    The divisor is the later time in two blocks and the earlier one in the next two, and changes from pair to pair, so that
    drift cancels: in every other block the model begins the rounds.
    """
    if min(map(len, blocks)) < 2:
        return None
    first, second = (
        [
            [block[at + (number // 2 + at // 2 + offset) % 2] for at in range(0, len(block) - 1, 2)]
            for number, block in enumerate(blocks)
        ]
        for offset in (0, 1)
    )
    return ratio(first, second)


def is_quiet(null: Ratio) -> bool:
    """Whether the null ratio shows a machine that is quiet enough: its interval contains 1 and is at most 3 % wide."""
    return null.verdict == "no difference shown" and null.high - null.low <= MAX_NULL_WIDTH
