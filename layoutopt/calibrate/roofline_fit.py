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

_OVERHEAD_CANDIDATES = 20
_MAX_OVERHEAD = 4e-6  # seconds; a fit to few small kernels could have a larger one
_MAX_CANDIDATES = 60  # candidates for a rate or a bandwidth
_MAX_LOSS_RATIO = 0.95  # of the sum to the maximum of both terms, at which the sum is preferred


@dataclass(frozen=True, slots=True)
class KernelSample:
    """A kernel and its time.

    Attributes:
        operations: arithmetic operations.
        nbytes: bytes read and written.
        seconds: measured time.
    """

    operations: float
    nbytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The fitted parameters. A rate or bandwidth that is never the bound is infinite.

    Attributes:
        overhead: constant time in seconds.
        rate: operations per second.
        bandwidth: bytes per second.
        overlaps: whether arithmetic and memory traffic overlap, as in the first formula.
        loss: mean of |ln(predicted / measured)|.
    """

    overhead: float
    rate: float
    bandwidth: float
    overlaps: bool
    loss: float

    def seconds(self, sample: KernelSample) -> float:
        """The prediction."""
        arithmetic, traffic = sample.operations / self.rate, sample.nbytes / self.bandwidth
        return self.overhead + (max(arithmetic, traffic) if self.overlaps else arithmetic + traffic)


def fit(samples: Sequence[KernelSample], *, least_overhead: float = 0.0, is_memory_bound: bool = False) -> Roofline:
    """The roofline with the smallest loss for one or more measurements.

    Args:
        samples: the measurements.
        least_overhead: lower bound of the overhead, in seconds.
        is_memory_bound: whether arithmetic is negligible.
    """
    with_overlap = _search(samples, least_overhead, is_memory_bound, overlaps=True)
    if is_memory_bound:
        return with_overlap
    without = _search(samples, least_overhead, is_memory_bound, overlaps=False)
    return without if without.loss < with_overlap.loss * _MAX_LOSS_RATIO else with_overlap


def _search(
    samples: Sequence[KernelSample], least_overhead: float, is_memory_bound: bool, *, overlaps: bool
) -> Roofline:
    operations, nbytes, measured = (
        np.asarray([getattr(each, name) for each in samples]) for name in ("operations", "nbytes", "seconds")
    )
    join = np.maximum if overlaps else np.add
    best = Roofline(0.0, inf, inf, overlaps, inf)
    for overhead in _overheads(measured, least_overhead):
        rest = np.maximum(measured - overhead, measured * 1e-3)
        rates = np.asarray([inf]) if is_memory_bound else _candidates(operations, rest)
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
    most = max(min(float(measured.min()), _MAX_OVERHEAD), least)
    if most <= least:
        return [least]
    return [least, *np.geomspace(max(least, most / 50), most * 0.98, _OVERHEAD_CANDIDATES).tolist()]


def _candidates(amounts: Array, rest: Array) -> Array:
    """For each kernel the rate or bandwidth if this term alone were the bound, and infinity, if it never is."""
    found = np.unique(amounts[amounts > 0] / rest[amounts > 0])
    if found.size > _MAX_CANDIDATES:
        found = found[np.linspace(0, found.size - 1, _MAX_CANDIDATES).round().astype(int)]
    return np.append(found, inf)
