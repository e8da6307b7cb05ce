"""Learning of prices: corrections by hand, and a machine whose true prices differ from the estimates."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from layoutopt.driver.tuning.knobs import Changes, Knob, Setting, conversion_price, target_prices
from layoutopt.driver.tuning.learning import LearntPrices, MeasuredRatio, Observation, expected_corrections
from layoutopt.driver.tuning.plan_parts import PartKey, PlanPart
from layoutopt.driver.tuning.search import Search, Trial, Variant, run_trials
from layoutopt.planner import NoFurtherPlanError
from layoutopt.planner.problem import Choice

STATES = 3


def measured(speed_up: float, noise: float = 0.0) -> MeasuredRatio:
    """A measured speed-up, from six blocks."""
    return MeasuredRatio.of(speed_up, speed_up * (1 - noise), speed_up * (1 + noise), 0.97)


def parts(seconds: Mapping[PartKey, float]) -> dict[PartKey, PlanPart]:
    return {key: PlanPart(each) for key, each in seconds.items()}


def observed(
    best: Mapping[PartKey, float], variant: Mapping[PartKey, float], speed_up: float, noise: float = 0.0
) -> Observation:
    return Observation.of(parts(best), parts(variant), measured(speed_up, noise), lambda part: 0.4)


def test_a_slower_variant_has_dearer_parts_than_estimated_and_the_best_version_cheaper_ones() -> None:
    """A quarter of the run in one op: estimated equal, measured 10 % slower; parts of both plans are not corrected."""
    common = {("a", "NCHW"): 3.0}
    best, variant = {**common, ("b", "NCHW"): 1.0}, {**common, ("b", "NHWC"): 1.0}
    observation = observed(best, variant, 1 / 1.1)
    assert observation.excess == pytest.approx(0.4) and set(observation.seconds) == {("b", "NCHW"), ("b", "NHWC")}
    found = expected_corrections([observation])
    assert found["b", "NHWC"] == pytest.approx(-found["b", "NCHW"]) and 0.19 < found["b", "NHWC"] < 0.2


def test_the_uncertain_part_takes_the_blame() -> None:
    best, variant = parts({("b", "timed"): 1.0}), parts({("b", "estimated"): 1.0})
    timed = best["b", "timed"]
    found = expected_corrections(
        [Observation.of(best, variant, measured(0.8), lambda part: 0.15 if part is timed else 0.4)]
    )
    assert found["b", "estimated"] == pytest.approx(-found["b", "timed"] * (0.4 / 0.15) ** 2)


def test_noise_is_not_learnt() -> None:
    best, variant = {("b", "x"): 1.0, ("a", "x"): 20.0}, {("b", "y"): 1.0, ("a", "x"): 20.0}
    sharp, vague = (expected_corrections([observed(best, variant, 0.98, noise)])["b", "y"] for noise in (0.0, 0.1))
    assert sharp > 0.2 and 0 < vague < 0.06
    prices = LearntPrices()
    assert not prices.add(observed(best, variant, 1.0, 0.1)) and prices.add(observed(best, variant, 0.9))
    assert not prices.add(observed(best, variant, 0.9))  # no surprise any more


def test_ratios_over_one_version() -> None:
    """A standard deviation is half of an interval of 68 %, and about a quarter of one of 95 %."""
    assert MeasuredRatio.of(1.0, 0.98, 1.02, 0.6827).deviation == pytest.approx(0.02, rel=1e-3)
    assert MeasuredRatio.of(1.0, 0.98, 1.02, 0.9545).deviation == pytest.approx(0.01, rel=1e-3)
    found = MeasuredRatio(1.2, 0.03).over(MeasuredRatio(0.8, 0.04))
    assert (found.median, found.deviation) == (pytest.approx(1.5), pytest.approx(0.05))


def test_the_solution_is_that_of_ridge_regression() -> None:
    rng = np.random.default_rng(0)
    keys: list[PartKey] = [(f"op{number}", "NHWC") for number in range(6)]
    observations = [
        Observation(
            dict(zip(keys, rng.normal(size=6).tolist(), strict=True)), dict.fromkeys(keys, 0.3), rng.normal(), 0.1
        )
        for _ in range(4)
    ]
    sums = np.asarray([[each.seconds[key] for key in keys] for each in observations]) / 0.1
    right = np.asarray([each.excess for each in observations]) / 0.1
    expected = np.linalg.solve(sums.T @ sums + np.eye(6) / 0.09, sums.T @ right)
    np.testing.assert_allclose(list(expected_corrections(observations).values()), expected, rtol=1e-8)


def test_the_changes_of_learnt_prices() -> None:
    prices = LearntPrices()
    assert prices.changes == Changes()
    prices.corrections = {("op", "NHWC"): 0.2, ("x", "NCHW", "NHWC"): -0.9, ("other", "NHWC"): 0.001}
    assert prices.changes == Changes(planned={("op", "NHWC"): 1.2}, conversions={("x", "NCHW", "NHWC"): 0.25})
    assert prices.changes.factors.largest == 1.2


LENGTH = 6
CHOICES = np.asarray(list(product(range(STATES), repeat=LENGTH)))


class Machine:
    """Six ops in a row, each in one of three formats, on a machine whose true prices differ from the estimates.

    Attributes:
        estimated: the estimated prices: of the ops, by op and format, and of the conversions between them.
        true: the true ones.
        best: the plan of the best version.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.estimated = rng.uniform(0.8, 1.2, (LENGTH, STATES)), rng.uniform(0.1, 0.3, (LENGTH - 1, STATES, STATES))
        self.true = self.estimated
        self.known: set[Choice] = set()
        self.best, self.now = self.plan(Changes())[0], 0.0
        self.known.add(self.best)

    def with_random_prices(self, seed: int) -> "Machine":
        """True prices differ by about 25 %."""
        rng = np.random.default_rng(seed)
        kernels, moves = self.estimated
        self.true = kernels * rng.lognormal(0, 0.25, kernels.shape), moves * rng.lognormal(0, 0.25, moves.shape)
        return self

    def with_dear_kernel(self, seed: int) -> "Machine":
        """A kernel of the first plan takes 1.5 times as long as estimated."""
        kernels = self.estimated[0].copy()
        op = seed % LENGTH
        kernels[op, self.best[op]] *= 1.5
        self.true = kernels, self.estimated[1]
        return self

    @staticmethod
    def seconds(prices: tuple[Any, Any]) -> Any:
        """The time of every plan."""
        kernels, moves = prices
        found = sum(kernels[op, CHOICES[:, op]] for op in range(LENGTH))
        for op in range(LENGTH - 1):
            before, after = CHOICES[:, op], CHOICES[:, op + 1]
            found = found + np.where(before == after, 0.0, moves[op, before, after])
        return found

    def plan(self, changes: Changes) -> tuple[Choice, int]:
        """The plan of a variant, and its rank; every plan differs from those before it."""
        kernels, moves = (each.copy() for each in self.estimated)
        for (op, state), factor in changes.planned.items():
            kernels[int(op), int(state)] *= factor
        for (tensor, before, after), factor in changes.conversions.items():
            moves[int(tensor), int(before), int(after)] *= factor
        found: list[Choice] = []
        for number in np.argsort(self.seconds((kernels, moves)), kind="stable"):
            choice = tuple(CHOICES[number].tolist())
            if all(sum(np.not_equal(each, choice)) > 1 for each in found):
                if len(found) >= changes.rank and not (changes.is_new_plan and choice in self.known):
                    return choice, len(found)
                found.append(choice)
        raise NoFurtherPlanError("there is none")

    def parts(self, choice: Choice) -> dict[PartKey, PlanPart]:
        kernels, moves = self.estimated
        found: dict[PartKey, float] = {(str(op), str(state)): kernels[op, state] for op, state in enumerate(choice)}
        for tensor, (before, after) in enumerate(pairwise(choice)):
            if before != after:
                found[str(tensor), str(before), str(after)] = moves[tensor, before, after]
        return parts(found)

    def evaluate(self, variant: Variant) -> Trial:
        self.now += 1.0
        choice, rank = self.plan(variant.changes)
        variant = variant.with_plan_rank(rank)
        if choice in self.known:
            return Trial(variant, "same file")
        self.known.add(choice)
        gain = self.true_seconds(self.best) / self.true_seconds(choice)
        observation = Observation.of(
            self.parts(self.best), self.parts(choice), measured(gain, 0.003), lambda part: 0.25
        )
        is_faster = gain > 1.01
        self.best = choice if is_faster else self.best
        return Trial(variant, "faster" if is_faster else "not faster", gain, observation=observation, seconds=1.0)

    def true_seconds(self, choice: Choice) -> float:
        return float(self.seconds(self.true)[(choice == CHOICES).all(axis=1)][0])

    @property
    def excess(self) -> float:
        """The relative extra time of the best version over the truly fastest plan."""
        return self.true_seconds(self.best) / self.seconds(self.true).min() - 1


def tuned(machine: Machine, knobs: list[Knob], trials: int) -> tuple[float, Search]:
    """The excess of the best version after a number of trials, and the search."""
    search = Search(knobs)
    run_trials(search, machine.evaluate, trials, lambda: machine.now)
    return machine.excess, search


RANKS = Knob(
    (Setting(""), *(Setting(f"rank {rank}", Changes(rank=rank)) for rank in range(1, 20))), 0, 0.5, is_ordered=False
)


@pytest.mark.parametrize("block", range(4))
def test_a_wrong_price_is_learnt_and_the_truly_fastest_plan_is_found(block: int) -> None:
    """Within 1 %, in eight trials; the first plans are up to 13 % slower."""
    before = []
    for seed in range(block, 40, 4):
        machine = Machine(seed).with_dear_kernel(seed + 1000)
        before.append(machine.excess)
        excess, search = tuned(machine, [RANKS], 8)
        assert excess < 0.01, seed
        assert search.best.text == "first plan" or machine.best == machine.plan(search.best.changes)[0], seed
    assert sum(before) / len(before) > 0.03


def test_learning_finds_faster_plans_than_the_order_of_the_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all prices are wrong by about 25 %, on average over machines, with equally many trials."""

    def mean_excess() -> float:
        found = [tuned(Machine(seed).with_random_prices(seed + 1000), [RANKS], 12)[0] for seed in range(24)]
        return sum(found) / len(found)

    learnt = mean_excess()
    monkeypatch.setattr(Search, "_at_learnt_prices", lambda self: None)
    assert learnt < 0.9 * mean_excess() < 0.05


def test_a_plan_at_learnt_prices_drops_settings_of_the_plan_and_keeps_others() -> None:
    others = Knob((Setting("as it is"), Setting("without a pass", Changes(omitted=frozenset(["a pass"])))), 0, 0.9)
    search = Search([others, conversion_price(0.5)])
    assert search.next().text == "without a pass"  # type: ignore[union-attr]
    search.learn("faster", 1.1)
    assert search.next().text == "without a pass, conversions at 2x their price"  # type: ignore[union-attr]
    search.learn("faster", 1.1, observed({("a", "x"): 1.0}, {("a", "y"): 1.0}, 1.1))
    learnt = search.next()
    assert learnt is not None and learnt.text == "without a pass, plan at prices learnt from 1 run"
    assert learnt.changes.is_new_plan and learnt.changes.conversion == 1.0
    assert learnt.changes.planned == {
        ("a", "x"): pytest.approx(1.05, abs=0.01),
        ("a", "y"): pytest.approx(0.95, abs=0.01),
    }
    fixed = learnt.with_plan_rank(2)
    assert fixed.changes.rank == 2 and not fixed.changes.is_new_plan and fixed.text == learnt.text
    search.learn("faster", 1.1, variant=fixed)
    assert search.best is fixed
    assert search.next().text == learnt.text + ", conversions at 4x their price"  # type: ignore[union-attr]


def test_plans_at_learnt_prices_come_last_after_three_losses() -> None:
    search = Search([replace(RANKS, settings=RANKS.settings[:4])])
    found = []
    for number in range(7):
        variant = search.next()
        assert variant is not None
        found.append(variant.text)
        gain = 0.9 - number / 100
        search.learn("not faster", gain, observed({("a", "x"): 1.0}, {("a", f"y{number}"): 1.0}, gain))
    assert found == [
        "rank 1",
        *(f"plan at prices learnt from {n} run{'s' * (n > 1)}" for n in (1, 2, 3)),
        "rank 2",
        "rank 3",
        "plan at prices learnt from 6 runs",
    ]
    assert search.next().text == "plan at prices learnt from 7 runs"  # type: ignore[union-attr]
    search.learn("not possible")
    assert search.next() is None


def test_a_plan_at_learnt_prices_that_is_the_fastest_one_so_far_is_no_loss() -> None:
    search = Search([RANKS])
    found = []
    for number in range(6):
        found.append(search.next().text)  # type: ignore[union-attr]
        gain = 0.7 + number / 100
        search.learn("not faster", gain, observed({("a", "x"): 1.0}, {("a", f"y{number}"): 1.0}, gain))
    assert found[-1] == "plan at prices learnt from 5 runs"


def test_nothing_is_learnt_on_top_of_the_prices_of_the_target() -> None:
    search = Search([target_prices(0.9), RANKS])
    assert search.next().text == "prices of the target"  # type: ignore[union-attr]
    search.learn("faster", 1.1)
    assert search.next().text == "prices of the target, rank 1"  # type: ignore[union-attr]
    search.learn("not faster", 0.9, observed({("a", "x"): 1.0}, {("a", "y"): 1.0}, 0.9))
    assert search.next().text == "prices of the target, rank 2"  # type: ignore[union-attr]
