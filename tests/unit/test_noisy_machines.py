"""The estimator on simulated machines: how often the interval of a speed-up contains the true ratio, and how often it refuses.

Time is simulated: sessions advance a clock. Noise is a function of the time that is being simulated and of the model, 0 or 1,
which returns how much longer a run takes. Sessions of one model differ by their placement in memory, which blocks share with no
other. Printed and covered with 1,000 seeds per row, one thread, in %:

    noise                                                  printed   covered
    none                                                     99.2      95.1
    bursts                                                   98.9      94.4
    drift                                                    99.3      95.6
    neighbour                                                98.7      95.9
    drift of minutes                                         99.3      95.5
    load on the original only                                97.5      95.2
    load on the rewritten model only                         97.6      95.4

Load that affects one model from the first block to the last cannot be noticed: of loads of 3 s with pauses of 3 s, 86 % of the
intervals are printed, of which 75 % contain the true ratio.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sin
from typing import TypeAlias

import pytest

from layoutopt.timing.speed_up import Feed, SizedFeed, SpeedUp, measure_speed_up

Noise: TypeAlias = Callable[[float, int], float]
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

    def __init__(self, machine: Machine, seconds: float, model: int) -> None:
        machine.now += CREATION
        self.machine, self.model = machine, model
        self.seconds = seconds * exp(machine.generator.gauss(0, PLACEMENT))
        self.runs = 0

    def run(self, names: Sequence[str] | None, feeds: Feed) -> list[object]:
        machine = self.machine
        self.runs += 1
        first = 1.1 if self.runs <= 2 else 1.0
        jitter = exp(machine.generator.gauss(0, JITTER))
        machine.now += first * self.seconds * jitter * machine.noise(machine.now, self.model)
        return []


def switching(generator: random.Random, off: float, on: float, *factors: float) -> Noise:
    """Runs of each model take `factors` times as long in intervals of the mean length `on`, with pauses of `off` seconds."""
    is_on, until = False, generator.expovariate(1 / off)

    def noise(now: float, model: int) -> float:
        nonlocal is_on, until
        while now >= until:
            is_on = not is_on
            until += generator.expovariate(1 / (on if is_on else off))
        return factors[model] if is_on else 1.0

    return noise


def bursts(generator: random.Random) -> Noise:
    """Another program runs for 30 ms about three times a second, and triples the time of a run."""
    return switching(generator, 0.3, 0.03, 3.0, 3.0)


def drift(generator: random.Random) -> Noise:
    """The clock frequency falls by a tenth in a few seconds, and swings by 3 %."""
    period, phase = generator.uniform(0.3, 3.0), generator.uniform(0, 6)
    return lambda now, model: 1 + 0.1 * min(now / 3, 1) + 0.03 * sin(phase + now / period * 6.28)


def drift_of_minutes(generator: random.Random) -> Noise:
    """The clock frequency swings by 30 % in one to ten minutes."""
    period, phase = generator.uniform(60, 600), generator.uniform(0, 6)
    return lambda now, model: 1 + 0.3 * sin(phase + now / period * 6.28)


def neighbour(generator: random.Random) -> Noise:
    """Another process has the same core half of the time, and its caches: runs then take 6 % longer."""
    return switching(generator, 0.02, 0.02, 1.06, 1.06)


def load_on(model: int) -> Callable[[random.Random], Noise]:
    """Now and then, another program takes the cache that one of the models needs, for a block or for several."""

    def noise(generator: random.Random) -> Noise:
        factors = [1.0, 1.0]
        factors[model] = generator.uniform(1.5, 3.0)
        return switching(generator, generator.uniform(1.0, 4.0), generator.uniform(0.2, 1.0), *factors)

    return noise


def measured(make: Callable[[random.Random], Noise], true: float, seed: int, threads: int = 1) -> SpeedUp:
    generator = random.Random(seed)
    machine = Machine(make(generator), generator)
    (found,) = measure_speed_up(
        lambda: SimulatedSession(machine, RUN, 0),
        lambda: SimulatedSession(machine, RUN / true, 1),
        [SizedFeed({}, {})],
        threads,
        clock=machine.clock,
    )
    return found


@pytest.mark.parametrize(
    ("make", "threads"),
    [
        *((make, 1) for make in (bursts, drift, neighbour, drift_of_minutes, load_on(0), load_on(1))),
        *((make, 2) for make in (bursts, drift_of_minutes, load_on(0))),
    ],
)
def test_the_interval_contains_the_true_ratio_in_95_of_100_measurements(
    make: Callable[[random.Random], Noise], threads: int
) -> None:
    """In 93 to 97 of those that are not refused; with 600 of them, the standard error is 0.9. At most 5 in 100 are refused."""
    pairs = [(TRUE_RATIOS[seed % 4], measured(make, TRUE_RATIOS[seed % 4], seed, threads)) for seed in range(600)]
    accepted = [(true, found.runs) for true, found in pairs if not found.disturbance]
    covered = sum(runs.low <= true <= runs.high for true, runs in accepted) / len(accepted)
    assert 0.93 <= covered <= 0.98
    assert len(accepted) >= 0.95 * len(pairs)
    losses = sum(runs.verdict == "slower" for true, runs in accepted if true >= 1)
    assert losses <= 0.02 * len(accepted), "a gain is not taken away, and no loss is seen where there is none"


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda generator: lambda now, model: generator.uniform(1.0, 4.0), "the original is "),
        (
            lambda generator: switching(generator, 0.3, 0.6, 2.5, 1.0),
            "the speed-up may be ",
        ),  # the original is slowed down
    ],
)
def test_a_machine_that_is_too_busy_is_measured_for_up_to_three_times_as_long_and_refused(
    make: Callable[[random.Random], Noise], cause: str
) -> None:
    found = measured(make, 1.2, seed=0)
    assert found.disturbance.startswith(cause) and found.blocks == 36
