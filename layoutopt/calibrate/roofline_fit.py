"""Fitting a roofline to measured times.

    seconds = overhead + max(operations / rate, bytes / bandwidth)      where they overlap
    seconds = overhead + operations / rate + bytes / bandwidth          where they do not

Overhead, rate and bandwidth are chosen to minimise

    sum over kernels of |ln(predicted / measured)|

which weights relative errors symmetrically and is robust to outliers: with one free parameter the optimum is the median of the
ratios. At an optimum the curve passes through as many measurements as it has parameters, so the candidates are the rates and
bandwidths at which one kernel would be bound by that term alone, after an overhead from a geometric series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from layoutopt.ir.types import Array

_OVERHEADS = 20  # candidates
_LARGEST = 4e-6  # seconds; upper bound of an overhead, which a fit to few small kernels could exceed
_MOST = 60  # candidates for a rate or a bandwidth
_CLEARLY = 0.95  # largest ratio of the losses at which the sum is preferred to the maximum


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel and its time.

    Attributes:
        operations: arithmetic.
        nbytes: read and written.
        seconds: measured.
    """

    operations: float
    nbytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """A fit. A rate or bandwidth that never binds is infinite.

    Attributes:
        overhead: seconds.
        rate: operations per second.
        bandwidth: bytes per second.
        overlaps: whether it is the first of the two formulas.
        loss: mean of |ln(predicted / measured)|.
    """

    overhead: float
    rate: float
    bandwidth: float
    overlaps: bool
    loss: float

    def seconds(self, sample: Sample) -> float:
        """The prediction."""
        arithmetic, traffic = sample.operations / self.rate, sample.nbytes / self.bandwidth
        return self.overhead + (max(arithmetic, traffic) if self.overlaps else arithmetic + traffic)


def fit(samples: Sequence[Sample], *, least_overhead: float = 0.0, is_streaming: bool = False) -> Roofline:
    """The roofline with the smallest loss for one or more measurements.

    Args:
        samples: the measurements.
        least_overhead: lower bound of the overhead, in seconds.
        is_streaming: whether arithmetic is negligible.
    """
    with_overlap = _search(samples, least_overhead, is_streaming, overlaps=True)
    if is_streaming:
        return with_overlap
    without = _search(samples, least_overhead, is_streaming, overlaps=False)
    return without if without.loss < with_overlap.loss * _CLEARLY else with_overlap


def _search(samples: Sequence[Sample], least_overhead: float, is_streaming: bool, *, overlaps: bool) -> Roofline:
    operations, nbytes, measured = (
        np.asarray([getattr(each, name) for each in samples]) for name in ("operations", "nbytes", "seconds")
    )
    join = np.maximum if overlaps else np.add
    best = Roofline(0.0, inf, inf, overlaps, inf)
    for overhead in _overheads(measured, least_overhead):
        rest = np.maximum(measured - overhead, measured * 1e-3)
        rates = np.asarray([inf]) if is_streaming else _candidates(operations, rest)
        bandwidths = _candidates(nbytes, rest)
        # axes: rates, bandwidths, kernels
        predicted = overhead + join(operations / rates[:, None, None], nbytes / bandwidths[None, :, None])
        losses = np.abs(np.log(np.maximum(predicted, 1e-12) / measured)).mean(axis=2)
        row, column = np.unravel_index(int(losses.argmin()), losses.shape)
        if losses[row, column] < best.loss - 1e-9:
            loss = float(losses[row, column])
            best = Roofline(float(overhead), float(rates[row]), float(bandwidths[column]), overlaps, loss)
    return best


def _overheads(measured: Array, least: float) -> list[float]:
    """Candidates from the lower bound to the time of the fastest kernel."""
    most = max(min(float(measured.min()), _LARGEST), least)
    if most <= least:
        return [least]
    return [least, *np.geomspace(max(least, most / 50), most * 0.98, _OVERHEADS).tolist()]


def _candidates(amounts: Array, rest: Array) -> Array:
    """For each kernel, the fraction of the peak if this resource alone were the bound, and 1.0, if it never is."""
    found = np.unique(amounts[amounts > 0] / rest[amounts > 0])
    if found.size > _MOST:
        found = found[np.linspace(0, found.size - 1, _MOST).round().astype(int)]
    return np.append(found, inf)
