"""Medians, quartiles and the confidence interval of a median.

Values come in blocks with separate sessions. Runs of one session are not independent: they share its memory addresses and
the load of the machine. The interval is therefore that of the blocks' medians x(1) <= ... <= x(n), by order statistics: the
number of them below the true median is binomial, hence

    P(x(j) <= median <= x(n+1-j)) = 1 - 2 P(Bin(n, 1/2) < j)

for every distribution (Conover, Practical Nonparametric Statistics, 3.2). j is the largest with at least 95 %; six blocks
have 96.9 % with j = 1, the range of the medians; fewer blocks have less.
"""

from collections.abc import Sequence
from math import comb
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field

from layoutopt.report.schema import ReportModel

Blocks: TypeAlias = Sequence[Sequence[float]]

Verdict: TypeAlias = Literal["faster", "slower", "no difference shown"]

CONFIDENCE = 0.95


class MedianEstimate(ReportModel):
    """A median with its confidence interval and quartiles."""

    median: float
    lower_quartile: float
    upper_quartile: float
    low: float = Field(description="lower end of the confidence interval, by order statistics of the blocks' medians")
    high: float = Field(description="upper end of it")
    confidence: float = Field(description="confidence of the interval; 0.97 with six blocks, less with fewer")
    count: int


class Ratio(MedianEstimate):
    """The speed-up: the baseline's time divided by this model's within each round."""

    verdict: Verdict = Field(description="whether the whole confidence interval is above or below 1")


def median_estimate(blocks: Blocks) -> MedianEstimate:
    """The median of values with its confidence interval; every block has at least one value."""
    values = [value for block in blocks for value in block]
    medians = sorted(float(np.median(block)) for block in blocks)
    rank = _rank(len(medians))
    lower, middle, upper = (float(each) for each in np.quantile(values, (0.25, 0.5, 0.75)))
    return MedianEstimate(
        median=middle,
        lower_quartile=lower,
        upper_quartile=upper,
        low=medians[rank - 1],
        high=medians[-rank],
        confidence=_confidence(len(medians), rank),
        count=len(values),
    )


def ratio(baseline: Blocks, others: Blocks) -> Ratio:
    """The median of baseline / others, value by value, with its confidence interval."""
    pairs = (zip(one, other, strict=True) for one, other in zip(baseline, others, strict=True))
    found = median_estimate([[a / b for a, b in block] for block in pairs])
    return Ratio(**found.model_dump(), verdict=_verdict(found))


def _rank(count: int) -> int:
    """The largest j with the required confidence; 1 if there is none."""
    enough = (rank for rank in range(count // 2, 0, -1) if _confidence(count, rank) >= CONFIDENCE)
    return next(enough, 1)


def _confidence(count: int, rank: int) -> float:
    return 1 - 2 * sum(comb(count, below) for below in range(rank)) / (1 << count)


def _verdict(found: MedianEstimate) -> Verdict:
    return "faster" if found.low > 1 else "slower" if found.high < 1 else "no difference shown"
