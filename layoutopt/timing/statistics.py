"""Geometric means of blocks with confidence intervals, ratios of times, and the checks of the machine.

Values come in blocks with separate sessions. Runs of one session are not independent: they share its memory addresses and
the load of the machine. The interval is therefore that of the logarithms of the n blocks with the mean m,

    exp(m - t s / sqrt(n)) to exp(m + t s / sqrt(n))

where s is their standard deviation and t the quantile of Student's distribution with n - 1 degrees of freedom.

Load only ever lengthens a run, and may lengthen those of one model more than those of the other: the one that needs more of
the cache, or that happens to run at the time. So the ratio of a block is that of the fastest runs of both models in it, and a
block is disturbed if its ratio differs by more than 10 % from that of the fastest runs of all blocks. Disturbed blocks do not
count, unless they are the half or more; then all count, and the machine is too busy. Some may have differed by chance, so that
an interval of k of n blocks is wider by n / k. Load that affects one model from the first block to the last cannot be noticed.
tests/unit/test_noisy_machines.py counts how often the interval contains the truth.
"""

from collections.abc import Sequence
from math import exp, log, log1p, sqrt
from statistics import fmean, stdev
from typing import Literal

from pydantic import Field

from layoutopt.report.schema import ReportModel

_MAX_WIDTH = 0.1  # of the interval of a speed-up, divided by the speed-up
_MAX_DEVIATION = 0.1  # relative difference of a block's ratio from that of the fastest runs

# fmt: off
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
    2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069,
    2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042, 2.040, 2.037, 2.035, 2.032, 2.030,
)
# fmt: on
"""Quantiles of Student's distribution for a two-sided interval of 95 %, with 1 to 35 degrees of freedom."""


class Ratio(ReportModel):
    """The speed-up: the baseline's time divided by this model's, from the fastest runs of each block."""

    value: float = Field(description="geometric mean of the blocks")
    low: float = Field(description="lower end of the 95 % confidence interval, from the spread of the blocks")
    high: float = Field(description="upper end of it")
    blocks: int = Field(description="the number of blocks")
    disturbed: int = Field(description="blocks that other load disturbed; they count only if they are the half or more")
    verdict: Literal["faster", "slower", "no difference shown"] = Field(
        description="whether the whole confidence interval is above or below 1"
    )

    @property
    def is_precise(self) -> bool:
        """Whether most blocks agree, and the interval is at most 10 % wide, or half as wide as the gain that it shows."""
        width = self.high - self.low
        return 2 * self.disturbed < self.blocks and width <= max(_MAX_WIDTH * self.value, (self.low - 1) / 2)


def ratio(baseline: Sequence[Sequence[float]], others: Sequence[Sequence[float]], widening: float = 1.0) -> Ratio:
    """The estimate of baseline / others from two blocks or more, each of which has values of both.

    The logarithmic width of the interval is that of the module's docstring times `widening`.
    """
    fastest = [(min(one), min(other)) for one, other in zip(baseline, others, strict=True)]
    reference = log(min(a for a, _ in fastest) / min(b for _, b in fastest))
    logs = [log(a / b) for a, b in fastest]
    agreeing = [each for each in logs if abs(each - reference) <= log1p(_MAX_DEVIATION)]
    counted = agreeing if 2 * len(agreeing) > len(logs) else logs
    middle = fmean(counted)
    widening *= len(logs) / len(counted)
    half_width = widening * _STUDENT[len(counted) - 2] * stdev(counted) / sqrt(len(counted))
    low, high = exp(middle - half_width), exp(middle + half_width)
    return Ratio(
        value=exp(middle),
        low=low,
        high=high,
        blocks=len(logs),
        disturbed=len(logs) - len(agreeing),
        verdict="faster" if low > 1 else "slower" if high < 1 else "no difference shown",
    )


def null_ratio(blocks: Sequence[Sequence[float]]) -> Ratio:
    """The null ratio: that of a model's own times, each divided by its neighbour's.

    The divisor is the later time in two blocks and the earlier one in the next two, and changes from pair to pair, so that
    drift cancels: in every other block the model begins the rounds.
    """
    first, second = (
        [
            [block[at + (number // 2 + at // 2 + offset) % 2] for at in range(0, len(block) - 1, 2)]
            for number, block in enumerate(blocks)
        ]
        for offset in (0, 1)
    )
    return ratio(first, second)
