"""The order in which variants are tried: a coordinate descent on measured times.

A variant differs from the best version so far by one step of one knob. The steps of knobs with larger weights come first.

    faster       the variant becomes the best version; the next step in the same direction comes next, the other way is dropped
    not faster   the direction is dropped; it returns once, if a variant of other knobs has won since
    same file    nothing was measured: the next step in the same direction is tried later
    others       the direction is dropped

If a measurement differs from what prices predict, the cheapest new plan at learnt prices (`learning`) comes next, with those
settings of the best version that are not about its plan. After three such plans have been measured to be slower than the best
version and than another variant since it, there are no more until a variant wins or no knob has a setting left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from layoutopt.driver.tuning.knobs import Changes, Knob, learnt_prices, with_rank
from layoutopt.driver.tuning.learning import LearntPrices, Observation

Outcome: TypeAlias = Literal["faster", "not faster", "same file", "not possible", "failed"]
Stopped: TypeAlias = Literal["time", "no more variants", "interrupted"]

_CLOSE = 0.97
"""The speed-up over the best version from which a direction that has lost is tried again after another knob has won."""


_MAX_LOSSES = 3  # of plans at learnt prices since the last win


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of knobs.

    Attributes:
        settings: the knobs that differ from the compiler's own decisions, with the index of their setting.
    """

    settings: Mapping[Knob, int] = field(default_factory=dict)

    def with_setting(self, knob: Knob, setting: int) -> "Variant":
        """The variant with another setting of one knob."""
        others = {each: index for each, index in self.settings.items() if each is not knob}
        return Variant(others if setting == knob.default else {**others, knob: setting})

    def without_plan_settings(self) -> "Variant":
        """The variant without the settings that act by the plan only."""
        first = Changes().besides_plan
        pairs = self.settings.items()
        return Variant({knob: index for knob, index in pairs if knob.settings[index].changes.besides_plan != first})

    def with_plan_rank(self, rank: int) -> "Variant":
        """The variant whose plan has this rank at its prices, whatever the plans of earlier variants are."""
        return Variant({with_rank(knob, rank): index for knob, index in self.settings.items()})

    def setting(self, knob: Knob) -> int:
        """The index of a knob's setting."""
        return self.settings.get(knob, knob.default)

    @property
    def text(self) -> str:
        """The variant in words."""
        return ", ".join(knob.settings[index].text for knob, index in self.settings.items()) or "first plan"

    @property
    def changes(self) -> Changes:
        """The changes of all settings."""
        found = Changes()
        for knob, index in self.settings.items():
            found |= knob.settings[index].changes
        return found


@dataclass(frozen=True, slots=True)
class Trial:
    """A variant that was tried.

    Attributes:
        variant: its settings.
        outcome: faster than the best version until then, or not.
        gain: its median speed-up over that version; None if it was not measured.
        low: lower end of the confidence interval of the gain.
        high: upper end of it.
        over_original: the speed-up over the original: the product of measured ratios.
        over_first: the speed-up over the first plan, likewise; None if that was not measured.
        estimated_extra: the estimated extra time over the first plan, as a fraction, if the variant was measured and differs
            from it by the plan only.
        observation: the difference of its plan to that of the version until then, if nothing else differs.
        seconds: the time of the trial.
        reason: the reason why it was not measured, or why it failed.
    """

    variant: Variant
    outcome: Outcome
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    over_original: float | None = None
    over_first: float | None = None
    estimated_extra: float | None = None
    observation: Observation | None = None
    seconds: float = 0.0
    reason: str = ""


@dataclass(eq=False, slots=True)
class _Direction:
    """Settings of a knob that are tried one after the other until one loses.

    Attributes:
        knob: the knob.
        settings: their indices.
        priority: the direction with the largest one comes next.
        tried: the number of settings that were tried.
        lost: the speed-up of the setting that has lost; None if none has.
    """

    knob: Knob
    settings: Sequence[int]
    priority: float
    tried: int = 0
    lost: float | None = None

    @property
    def next(self) -> int:
        """The next setting of an open direction."""
        return self.settings[self.tried]

    @property
    def is_open(self) -> bool:
        """Whether there is a next setting, and no earlier one has lost."""
        return self.lost is None and self.tried < len(self.settings)


def _directions(knob: Knob) -> list[_Direction]:
    """The settings above and below the default; for a knob without an order each one behind it by itself."""
    above, below = range(knob.default + 1, len(knob.settings)), range(knob.default - 1, -1, -1)
    if knob.is_ordered:
        return [_Direction(knob, above, knob.weight), _Direction(knob, below, knob.weight)]
    return [_Direction(knob, [setting], knob.weight / number) for number, setting in enumerate(above, 1)]


class Search:
    """Proposes variants, and learns from their outcomes.

    Attributes:
        best: the settings of the best version.
        prices: the learnt prices.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        """Start at the compiler's own decisions."""
        self.best = Variant()
        self.prices = LearntPrices()
        self._directions = [each for knob in knobs for each in _directions(knob)]
        self._has_won = False
        self._tried: _Direction | None = None
        self._proposed = Variant()
        self._has_new_observation = False
        self._has_contradiction = False
        self._num_losses = 0
        self._fastest = 0.0  # speed-up over the best version of the variants since then, at most 1

    def next(self) -> Variant | None:
        """The next variant; None if there is none."""
        learnt = self._at_learnt_prices() if self._has_contradiction and self._num_losses < _MAX_LOSSES else None
        self._tried = None if learnt is not None else self._next_direction()
        if self._tried is not None:
            self._proposed = self.best.with_setting(self._tried.knob, self._tried.next)
            return self._proposed
        learnt = learnt or self._at_learnt_prices()
        if learnt is not None:
            self._proposed, self._has_new_observation, self._has_contradiction = learnt, False, False
        return learnt

    def _at_learnt_prices(self) -> Variant | None:
        """The variant with the cheapest new plan at learnt prices, if something was learnt since the last one."""
        changes = self.prices.changes
        if not self._has_new_observation or not changes.has_factors or self.best.changes.has_target_prices:
            return None
        knob = learnt_prices(changes, len(self.prices.observations))
        return self.best.without_plan_settings().with_setting(knob, 1)

    def _next_direction(self) -> _Direction | None:
        """The open direction with the largest priority; the first of several."""
        if not any(each.is_open for each in self._directions) and self._has_won:
            self._reopen()
        return max((each for each in self._directions if each.is_open), key=lambda each: each.priority, default=None)

    def learn(
        self,
        outcome: Outcome,
        gain: float | None = None,
        observation: Observation | None = None,
        variant: Variant | None = None,
    ) -> None:
        """Take the outcome of the variant that `next` has returned last into account.

        Args:
            outcome: whether it has become the best version.
            gain: its speed-up.
            observation: the measured difference of its plan to that of the best version; None if other things differ.
            variant: its settings after planning, if they are others.
        """
        if observation is not None:
            self._has_new_observation = True
            self._has_contradiction |= self.prices.add(observation)
        if outcome == "faster":
            self.best, self._has_won, self._num_losses = variant or self._proposed, True, 0
        elif self._tried is None and outcome != "same file" and (gain or 0.0) < self._fastest:
            self._num_losses += 1
        self._fastest = 1.0 if outcome == "faster" else min(1.0, max(self._fastest, gain or 0.0))
        if self._tried is not None:
            self._learn_of_direction(self._tried, outcome, gain)

    def _learn_of_direction(self, tried: _Direction, outcome: Outcome, gain: float | None) -> None:
        """Take the outcome of the next setting of a direction into account."""
        if outcome == "faster":
            if tried.knob.is_ordered:
                self._directions = [each for each in self._directions if each.knob is not tried.knob or each is tried]
            tried.priority = 1.0 + (gain or 0.0)
        elif outcome != "same file":
            tried.lost = gain or 0.0
            if outcome == "not possible" and not tried.knob.is_ordered:
                self._close(tried.knob)
        else:
            tried.priority /= 2
        tried.tried += 1

    def _close(self, knob: Knob) -> None:
        """Drop the settings of a knob that were not tried."""
        for each in self._directions:
            if each.knob is knob and each.is_open:
                each.lost = 0.0

    def _reopen(self) -> None:
        """Try directions that were close again on the best version, from its settings on."""
        self._has_won = False
        for each in self._directions:
            if each.lost is not None and each.lost >= _CLOSE:
                setting = self.best.setting(each.knob)
                each.tried = each.settings.index(setting) + 1 if setting in each.settings else 0
                each.priority, each.lost = each.lost, None


def run_trials(
    search: Search,
    evaluate: Callable[[Variant], Trial],
    seconds: float,
    clock: Callable[[], float],
    confirmation: float = 0.0,
) -> tuple[list[Trial], Stopped]:
    """All trials, and the reason why there are no more.

    No variant begins that would exceed the time if it took as long as the shortest one that was measured. Ctrl-C ends the
    search.

    Args:
        search: proposes the variants.
        evaluate: tries one.
        seconds: the time for all of them.
        clock: seconds now.
        confirmation: the time to leave after a win; no more than that of the winning trial is left.
    """
    found: list[Trial] = []
    begin = clock()
    try:
        while True:
            shortest = min((each.seconds for each in found if each.gain is not None), default=0.0)
            left = min(confirmation, max((each.seconds for each in found if each.outcome == "faster"), default=0.0))
            if clock() - begin + shortest + left >= seconds:
                return found, "time"
            variant = search.next()
            if variant is None:
                return found, "no more variants"
            trial = evaluate(variant)
            found.append(trial)
            search.learn(trial.outcome, trial.gain, trial.observation, trial.variant)
    except KeyboardInterrupt:
        return found, "interrupted"


__all__ = ["Outcome", "Search", "Stopped", "Trial", "Variant", "run_trials"]
