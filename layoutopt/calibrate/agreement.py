"""Agreement of predicted and measured times.

The rank correlation is Spearman's: the correlation of the ranks, with the mean rank for ties. It measures whether the faster of
two kernels is predicted to be faster, as a planner needs; the median error measures the distance of the times.
"""

from collections.abc import Sequence

import numpy as np

from layoutopt.ir.types import Array


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation, from -1 to 1; None for fewer than four values or equal values."""
    a, b = _ranks(one), _ranks(other)
    if len(a) < 4 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def median_error(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """The median of |predicted - measured| / measured; None without measurements."""
    if not len(measured):
        return None
    found, truth = np.asarray(predicted), np.asarray(measured)
    return float(np.median(np.abs(found - truth) / truth))


def _ranks(values: Sequence[float]) -> Array:
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
