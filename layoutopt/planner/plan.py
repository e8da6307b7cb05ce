"""The plan: the signature of every op, its estimated time, and the proof."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from layoutopt.ir.types import Op, Signature
from layoutopt.planner.deadline import Stage
from layoutopt.planner.problem import TOLERANCE


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan for several targets, on one of them.

    Attributes:
        target: its name.
        seconds: estimated time under the plan.
        baseline: estimated time of the graph as it is.
        alone: estimated time under the plan that is the best for this target, of the same candidates.
        signatures: that plan.
    """

    target: str
    seconds: float
    baseline: float
    alone: float
    signatures: Mapping[Op, Signature]

    @property
    def regret(self) -> float:
        """How much longer it takes than the target's own plan, as a fraction."""
        return self.seconds / self.alone - 1 if self.alone else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen signature of every op, what it costs, and the proof.

    Attributes:
        signatures: per op of the graph that was planned and of the bodies in it.
        seconds: estimated time of all ops and casts under the plan; those in bodies as often as they are expected to run.
        baseline: the same for the graph as it is, every op in canonical format.
        lower_bound: no assignment of the candidates takes less, in seconds.
        gap: how far `seconds` may be above the best, as a fraction; 0 if proven.
        optimal: whether the solver finished.
        notes: per op, why a format that was proposed to it was not applicable.
        stopped: the stage that the time limit ended, if it did. Before the solver began, ops keep the model's formats, pinned
            values aside, and the lower bound is 0.
        is_guarded: whether a faster plan was rejected, because it is slower than the graph as it is at other sizes.
        outcomes: the plan on each target where it is for several. Then `seconds`, `baseline` and `lower_bound` are means over
            them, and the gap is that of the worst ratio of seconds to those of the target's own plan.
    """

    signatures: Mapping[Op, Signature]
    seconds: float
    baseline: float
    lower_bound: float
    gap: float
    optimal: bool
    notes: Mapping[Op, list[str]] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()
    stopped: Stage | None = None
    is_guarded: bool = False

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal and not self.gap else f"gap {self.gap:.2%}"
        return f"Plan({len(self.signatures)} ops, {self.seconds:.3g} s, before {self.baseline:.3g} s, {proof})"

    @property
    def improves(self) -> bool:
        """Whether the plan is better than leaving the graph as it is; for several targets, where that is worst."""
        if self.outcomes:
            before = max(each.baseline / (each.alone or 1.0) for each in self.outcomes)
            return max(each.regret for each in self.outcomes) + 1 < before * (1 - TOLERANCE)
        return self.seconds < self.baseline * (1 - TOLERANCE)
