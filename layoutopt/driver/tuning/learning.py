"""Prices that are learnt from measured runs of whole models.

A variant that differs from the best version until then by its plan only is an observation of the prices of the kernels and
conversions that only one of the two plans has:

    sum of  price * (1 if the variant has the part, -1 if the best version has it) * correction
        =  measured difference - estimated difference  +  noise

If the best version is the original, which has no plan, the first plan takes its place, by its own measurement.

Corrections are relative, independent and normal with mean 0, and a standard deviation of 15 % for kernels timed alone, 40 % for
estimates and for conversions. The noise is that of the measurement, and 20 % of the estimated difference, since the errors of
kernels of one class have a part in common. The expected corrections given all observations (ridge regression) are

    D A' (A D A' + N)^-1 e        D, N: variances of corrections and of noise; A: the sums, row by row; e: right sides
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from statistics import NormalDist
from typing import Any

import numpy as np

from layoutopt.driver.tuning.knobs import Changes
from layoutopt.driver.tuning.plan_parts import PartKey, PlanPart, differing_keys, total_seconds

TIMED_DEVIATION = 0.15
"""The standard deviation of the corrections of kernels that were timed alone, as a fraction of their price."""

ESTIMATE_DEVIATION = 0.4
"""The same for estimates, and for conversions."""

_SESSION_NOISE = 0.005  # of a run: new sessions of one file differ by about 1 %
_COMMON_ERROR = 0.2  # of the estimated difference of two plans
_SMALLEST_FACTOR, _LARGEST_FACTOR = 0.25, 4.0
_NEGLIGIBLE = 0.01  # smaller corrections do not change prices

Parts = Mapping[PartKey, PlanPart]


@dataclass(frozen=True, slots=True)
class MeasuredRatio:
    """A measured speed-up with its standard deviation."""

    median: float
    deviation: float

    @classmethod
    def of(cls, median: float, low: float, high: float, confidence: float) -> "MeasuredRatio":
        """The ratio with a confidence interval."""
        half_width = NormalDist().inv_cdf((1 + min(confidence, 0.99)) / 2) if confidence > 0 else 0.5
        return cls(median, (high - low) / 2 / half_width)

    def over(self, other: "MeasuredRatio") -> "MeasuredRatio":
        """The speed-up over another version, if both speed-ups are over the same one."""
        return MeasuredRatio(self.median / other.median, hypot(self.deviation, other.deviation))


@dataclass(frozen=True, slots=True)
class Observation:
    """The measured difference of two plans.

    Attributes:
        seconds: the estimated seconds of the parts that only one plan has, negative if the variant has them not.
        deviations: the standard deviations of their corrections.
        excess: the measured difference in seconds of a run, less the estimated one.
        noise: the standard deviation of the excess that corrections of single parts do not explain, in seconds.
    """

    seconds: Mapping[PartKey, float]
    deviations: Mapping[PartKey, float]
    excess: float
    noise: float

    @classmethod
    def of(
        cls, base: Parts, variant: Parts, ratio: MeasuredRatio, deviation: Callable[[PlanPart], float]
    ) -> "Observation":
        """The observation of a measurement.

        Args:
            base: the parts of the plan of the version that the variant is compared with.
            variant: those of the variant.
            ratio: the measured speed-up of the variant over that version.
            deviation: the standard deviation of the correction of a part.
        """
        keys = list(differing_keys(base, variant))
        scale = total_seconds(base)
        estimated = total_seconds(variant) - scale
        return cls(
            {key: variant[key].seconds if key in variant else -base[key].seconds for key in keys},
            {key: deviation(variant[key] if key in variant else base[key]) for key in keys},
            scale * (1 / ratio.median - 1) - estimated,
            hypot(scale * ratio.deviation, scale * _SESSION_NOISE, _COMMON_ERROR * estimated),
        )


@dataclass(slots=True)
class LearntPrices:
    """The corrections of prices that explain the observations.

    Attributes:
        observations: in the order in which they were made.
        corrections: the relative correction of each part that an observation is about.
    """

    observations: list[Observation] = field(default_factory=list)
    corrections: Mapping[PartKey, float] = field(default_factory=dict)

    def add(self, observation: Observation) -> bool:
        """Learn from an observation; returns whether it differs from the prices learnt before by more than its noise."""
        expected = sum(seconds * self.corrections.get(key, 0.0) for key, seconds in observation.seconds.items())
        self.observations.append(observation)
        self.corrections = expected_corrections(self.observations)
        return abs(observation.excess - expected) > observation.noise

    @property
    def factors(self) -> dict[PartKey, float]:
        """The factors of prices, without negligible ones."""
        return {
            key: min(max(1 + each, _SMALLEST_FACTOR), _LARGEST_FACTOR)
            for key, each in self.corrections.items()
            if abs(each) >= _NEGLIGIBLE
        }

    @property
    def changes(self) -> Changes:
        """The changes of a variant that is planned at these prices."""
        factors = self.factors
        return Changes(
            planned={key: factor for key, factor in factors.items() if len(key) == 2},
            conversions={key: factor for key, factor in factors.items() if len(key) == 3},
        )


def expected_corrections(observations: Sequence[Observation]) -> dict[PartKey, float]:
    """The expected correction of every part, given observations; those of one part have the same standard deviation."""
    keys = list(dict.fromkeys(key for each in observations for key in each.seconds))
    sums: Any = np.zeros((len(observations), len(keys)))
    variances: Any = np.zeros(len(keys))
    numbers = {key: number for number, key in enumerate(keys)}
    for row, each in enumerate(observations):
        for key, seconds in each.seconds.items():
            sums[row, numbers[key]] = seconds
            variances[numbers[key]] = each.deviations[key] ** 2
    excess = np.asarray([each.excess for each in observations])
    noise = np.diag([each.noise**2 for each in observations])
    weights = np.linalg.lstsq(sums * variances @ sums.T + noise, excess, rcond=None)[0]
    return dict(zip(keys, (variances * (sums.T @ weights)).tolist(), strict=True))


__all__ = [
    "ESTIMATE_DEVIATION",
    "TIMED_DEVIATION",
    "LearntPrices",
    "MeasuredRatio",
    "Observation",
    "Parts",
    "expected_corrections",
]
