"""The estimator on simulated machines: how often the interval of a speed-up contains the true ratio, with noise of three kinds.

Time is simulated: sessions advance a clock. A kind of noise is a function of the time that is being simulated, which returns
how much longer a run takes. Sessions of one model differ by their placement in memory, which blocks share with no other.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sin
from typing import TypeAlias

import pytest

from layoutopt.timing.speed_up import Feed, SizedFeed, SpeedUp, measure_speed_up

Noise: TypeAlias = Callable[[float], float]
TRUE_RATIOS = (0.9, 1.0, 1.05, 1.6)
RUN, CREATION = 0.01, 0.03  # seconds
PLACEMENT, JITTER = 0.01, 0.004  # standard deviations


@dataclass
class Machine:
    """A simulated clock, and the noise of the machine."""

    noise: Noise
    generator: random.Random
    now: float = 0.0

    def clock(self) -> float:
        return self.now


class SimulatedSession:
    """A session whose runs take `seconds`, by its placement and the noise; the first two take longer."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        machine.now += CREATION
        self.machine, self.seconds = machine, seconds * exp(machine.generator.gauss(0, PLACEMENT))
        self.runs = 0

    def run(self, names: Sequence[str] | None, feeds: Feed) -> list[object]:
        machine = self.machine
        self.runs += 1
        first = 1.1 if self.runs <= 2 else 1.0
        machine.now += first * self.seconds * exp(machine.generator.gauss(0, JITTER)) * machine.noise(machine.now)
        return []


def switching(generator: random.Random, off: float, on: float, factor: float) -> Noise:
    """Runs take `factor` times as long in intervals of the mean length `on`, that of the pauses is `off` seconds."""
    is_on, until = False, generator.expovariate(1 / off)

    def noise(now: float) -> float:
        nonlocal is_on, until
        while now >= until:
            is_on = not is_on
            until += generator.expovariate(1 / (on if is_on else off))
        return factor if is_on else 1.0

    return noise


def bursts(generator: random.Random) -> Noise:
    """Another program runs for 30 ms about three times a second, and triples the time of a run."""
    return switching(generator, off=0.3, on=0.03, factor=3.0)


def drift(generator: random.Random) -> Noise:
    """The clock frequency falls by a tenth in a few seconds, and swings by 3 %."""
    period, phase = generator.uniform(0.3, 3.0), generator.uniform(0, 6)
    return lambda now: 1 + 0.1 * min(now / 3, 1) + 0.03 * sin(phase + now / period * 6.28)


def neighbour(generator: random.Random) -> Noise:
    """Another process has the same core half of the time, and its caches: runs then take 6 % longer."""
    return switching(generator, off=0.02, on=0.02, factor=1.06)


def measured(make: Callable[[random.Random], Noise], true: float, seed: int, threads: int = 1) -> SpeedUp:
    generator = random.Random(seed)
    machine = Machine(make(generator), generator)
    (found,) = measure_speed_up(
        lambda: SimulatedSession(machine, RUN),
        lambda: SimulatedSession(machine, RUN / true),
        [SizedFeed({}, {})],
        threads,
        clock=machine.clock,
    )
    return found


@pytest.mark.parametrize(("make", "most_rejected"), [(bursts, 0.05), (drift, 0.05), (neighbour, 0.1)])
def test_the_interval_contains_the_true_ratio_in_95_of_100_measurements(
    make: Callable[[random.Random], Noise], most_rejected: float
) -> None:
    """In 93 to 97 of those that the null ratio does not reject; with 1000 of them, the standard error is 0.7."""
    pairs = [(TRUE_RATIOS[seed % 4], measured(make, TRUE_RATIOS[seed % 4], seed)) for seed in range(1000)]
    accepted = [(true, found.runs) for true, found in pairs if found.is_measured]
    covered = sum(runs.low <= true <= runs.high for true, runs in accepted) / len(accepted)
    assert 0.93 <= covered <= 0.97
    assert 1 - len(accepted) / len(pairs) <= most_rejected
    losses = sum(runs.verdict == "slower" for true, runs in accepted if true >= 1)
    assert losses <= 0.02 * len(accepted), "a gain is not taken away, and no loss is seen where there is none"


def test_on_a_machine_that_is_too_busy_nothing_is_measured() -> None:
    """The measurement goes on up to three times as long."""
    found = measured(lambda generator: switching(generator, off=0.05, on=0.05, factor=4.0), 1.2, seed=0)
    assert (found.is_measured, found.blocks) == (False, 36)


@pytest.mark.parametrize("make", [drift, neighbour])
def test_sessions_one_after_the_other_have_an_interval_as_well(make: Callable[[random.Random], Noise]) -> None:
    found = [measured(make, 1.05, seed, threads=2) for seed in range(100)]
    assert sum(each.runs.low <= 1.05 <= each.runs.high for each in found) >= 88
