"""The order in which tuning tries variants, on a fake clock."""

from collections.abc import Mapping

import numpy as np
import pytest

from layoutopt.driver.tuning.knobs import (
    Knob,
    Setting,
)
from layoutopt.driver.tuning.search import Outcome, Search, Trial, Variant, run_trials


class FakeMachine:
    """Measures variants: the speed of a variant is the product of the speeds of its settings, 1 without one."""

    def __init__(self, speeds: Mapping[str, float], *, seconds: float = 1.0) -> None:
        self.now, self.best, self.speeds, self.seconds = 0.0, 1.0, speeds, seconds
        self.tried: list[str] = []

    def clock(self) -> float:
        return self.now

    def evaluate(self, variant: Variant) -> Trial:
        self.tried.append(variant.text)
        self.now += self.seconds
        names = [knob.settings[index].text for knob, index in variant.settings.items()]
        if any(self.speeds.get(name) == 0.0 for name in names):
            return Trial(variant, "same file")
        speed = float(np.prod([self.speeds.get(name, 1.0) for name in names]))
        gain, outcome = speed / self.best, "not faster"
        if gain > 1.01:
            self.best, outcome = speed, "faster"
        return Trial(variant, outcome, gain, seconds=self.seconds)  # type: ignore[arg-type]


def knob(name: str, weight: float, *, size: int = 3) -> Knob:
    """A knob with the settings a0, a1, a2, of which the middle one is the compiler's."""
    return Knob(tuple(Setting(f"{name}{index}") for index in range(size)), size // 2, weight)


def tried(
    machine: FakeMachine, *knobs: Knob, seconds: float = 100.0, confirmation: float = 0.0
) -> tuple[list[str], str, str]:
    """The variants that were tried, the reason for the end, and the best one."""
    search = Search(knobs)
    found, stopped = run_trials(search, machine.evaluate, seconds, machine.clock, confirmation)
    assert [each.variant.text for each in found] == machine.tried
    return machine.tried, stopped, search.best.text


def test_knobs_with_larger_weights_come_first_and_losses_end_a_direction() -> None:
    machine = FakeMachine({"a2": 0.5, "a0": 0.5, "b2": 0.5, "b1": 0.5})
    found, stopped, best = tried(machine, knob("b", 0.1, size=5), knob("a", 0.9))
    assert found == ["a2", "a0", "b3", "b1"]
    assert (stopped, best) == ("no more variants", "first plan")


def test_a_win_goes_on_in_its_direction_and_is_combined() -> None:
    machine = FakeMachine({"b3": 1.2, "b4": 1.3, "a2": 1.1})
    found, _, best = tried(machine, knob("b", 0.9, size=5), knob("a", 0.5))
    assert found == ["b3", "b4", "b4, a2"]
    assert best == "b4, a2"


def test_a_setting_with_the_same_file_is_passed_over_later() -> None:
    machine = FakeMachine({"b3": 0.0, "b4": 1.2, "b1": 0.0, "b0": 0.9, "a2": 0.9, "a0": 0.9})
    found, _, best = tried(machine, knob("b", 0.9, size=5), knob("a", 0.6))
    assert found == ["b3", "b1", "a2", "a0", "b4"]
    assert best == "b4"


def test_settings_without_an_order_are_tried_by_themselves() -> None:
    """A loss of one ends no other, and a win neither; they come later the larger their number is."""
    plans = Knob(tuple(Setting(f"p{index}") for index in range(4)), 0, 0.9, is_ordered=False)
    machine = FakeMachine({"p1": 0.5, "p2": 1.2, "p3": 1.1})
    found, _, best = tried(machine, plans, knob("a", 0.5))
    assert found == ["p1", "a2", "a0", "p2", "p3", "p2, a2", "p2, a0"]
    assert best == "p2"


def test_a_plan_that_is_not_possible_ends_those_behind_it() -> None:
    search = Search([Knob(tuple(Setting(f"p{index}") for index in range(4)), 0, 0.9, is_ordered=False)])
    assert search.next().text == "p1"  # type: ignore[union-attr]
    search.learn("not possible")
    assert search.next() is None


def test_a_close_loss_is_tried_again_after_a_win() -> None:
    machine = FakeMachine({"a2": 1.0, "a0": 0.8, "b2": 1.2, "b0": 0.8})
    found, _, _ = tried(machine, knob("a", 0.9), knob("b", 0.5))
    assert found == ["a2", "a0", "b2", "b2, a2"]


def test_the_search_ends_in_time() -> None:
    """A variant begins only if the shortest one that was measured would end in time; the first one always begins."""
    assert tried(FakeMachine({}), knob("a", 0.9), knob("b", 0.8), seconds=2.5)[:2] == (["a2", "a0"], "time")
    assert tried(FakeMachine({}, seconds=10.0), knob("a", 0.9), seconds=0.5)[:2] == (["a2"], "time")


def test_time_is_left_to_confirm_a_win() -> None:
    """No more than the winning trial took."""
    knobs = [knob("a", 0.9), knob("b", 0.8)]
    assert tried(FakeMachine({"a2": 1.5}), *knobs, seconds=3.5, confirmation=8.0)[0] == ["a2", "a2, b2"]
    assert tried(FakeMachine({}), *knobs, seconds=3.5, confirmation=8.0)[0] == ["a2", "a0", "b2"]


def test_an_interruption_keeps_the_best_version() -> None:
    machine = FakeMachine({"a2": 1.5})

    def evaluate(variant: Variant) -> Trial:
        if machine.tried:
            raise KeyboardInterrupt
        return machine.evaluate(variant)

    search = Search([knob("a", 0.9), knob("b", 0.5)])
    found, stopped = run_trials(search, evaluate, 100.0, machine.clock)
    assert (len(found), stopped, search.best.text) == (1, "interrupted", "a2")


@pytest.mark.parametrize("outcome", ["failed", "not possible"])
def test_a_failure_ends_a_direction(outcome: Outcome) -> None:
    search = Search([knob("a", 0.9, size=5)])
    assert search.next().text == "a3"  # type: ignore[union-attr]
    search.learn(outcome)
    assert search.next().text == "a1"  # type: ignore[union-attr]
    search.learn(outcome)
    assert search.next() is None
