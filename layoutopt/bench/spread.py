"""Medians, quartiles and the confidence interval of a median.

Values come in blocks, and every block has sessions of its own. Runs of one session are not independent of each other: they
share where its memory lies, and what the machine is doing meanwhile. So the interval is that of the blocks' medians
x(1) <= ... <= x(n), by order statistics: the number of them below the true median is binomial, hence

    P(x(j) <= median <= x(n+1-j)) = 1 - 2 P(Bin(n, 1/2) < j)

whatever their distribution (Conover, Practical Nonparametric Statistics, 3.2). j is the largest with at least 95 %; six blocks
have 96.9 % with j = 1, which is their range; fewer have less.
"""

from collections.abc import Sequence
from math import comb
from typing import TypeAlias

import numpy as np

from layoutopt.bench.report import Ratio, Spread, Verdict

Blocks: TypeAlias = Sequence[Sequence[float]]

CONFIDENCE = 0.95


def spread(blocks: Blocks) -> Spread:
    """The spread of some values, at least one in each block."""
    values = [value for block in blocks for value in block]
    medians = sorted(float(np.median(block)) for block in blocks)
    rank = _rank(len(medians))
    lower, middle, upper = (float(each) for each in np.quantile(values, (0.25, 0.5, 0.75)))
    return Spread(
        median=middle,
        lower_quartile=lower,
        upper_quartile=upper,
        low=medians[rank - 1],
        high=medians[-rank],
        confidence=_covered(len(medians), rank),
        count=len(values),
    )


def ratio(baseline: Blocks, others: Blocks) -> Ratio:
    """The spread of baseline / others, value by value."""
    pairs = (zip(one, other, strict=True) for one, other in zip(baseline, others, strict=True))
    found = spread([[a / b for a, b in block] for block in pairs])
    return Ratio(**found.model_dump(), verdict=_verdict(found))


def _rank(count: int) -> int:
    """j of the formula above, or 1 if there is none."""
    enough = (rank for rank in range(count // 2, 0, -1) if _covered(count, rank) >= CONFIDENCE)
    return next(enough, 1)


def _covered(count: int, rank: int) -> float:
    return 1 - 2 * sum(comb(count, below) for below in range(rank)) / (1 << count)


def _verdict(found: Spread) -> Verdict:
    return "faster" if found.low > 1 else "slower" if found.high < 1 else "no difference shown"
