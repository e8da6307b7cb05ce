"""The plan: the signature of every op, its estimated time, and the proof."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from layoutopt.ir.types import Op, Signature
from layoutopt.planner.deadline import PlanningStage
from layoutopt.planner.problem import TOLERANCE


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """The estimated times of a plan for several targets on one of them.

    Attributes:
        target: its name.
        seconds: estimated time under the plan.
        baseline: estimated time of the original graph.
        alone: estimated time under the best plan for this target alone, of the same candidates.
        signatures: the best plan for this target alone.
    """

    target: str
    seconds: float
    baseline: float
    alone: float
    signatures: Mapping[Op, Signature]

    @property
    def regret(self) -> float:
        """The relative extra time over the best plan for this target alone."""
        return self.seconds / self.alone - 1 if self.alone else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen signature of every op, the estimated time, and the proof of optimality.

    Attributes:
        signatures: the signature of every op of the graph and of its bodies.
        seconds: estimated time of all ops and casts under the plan; ops in bodies are weighted with their expected runs.
        baseline: estimated time of the graph before planning, with every op in canonical format.
        lower_bound: the time in seconds that no plan of the candidates can beat.
        gap: the largest possible distance of `seconds` to the best plan, as a fraction; 0 if the plan is proven optimal.
        optimal: whether the solver finished.
        notes: per op, the reasons why proposed formats are illegal.
        stopped: the stage that the time limit ended, or None. Before the stage `solver`, ops keep the model's formats, apart
            from pinned values, and the lower bound is 0 unless the formulation at the guard points was ended.
        cut: the number of formats and signatures beyond the limits of candidates, for which the bound does not hold.
        is_limited_by_guards: whether a faster plan was rejected because it is slower than the original graph at other sizes.
        outcomes: the times on each target of a plan for several targets. `seconds`, `baseline` and `lower_bound` are then means
            over the targets, and the gap is that of the worst ratio of the seconds to those of the best plan for
            that target alone.
    """

    signatures: Mapping[Op, Signature]
    seconds: float
    baseline: float
    lower_bound: float
    gap: float
    optimal: bool
    notes: Mapping[Op, list[str]] = field(default_factory=dict)
    outcomes: tuple[TargetOutcome, ...] = ()
    stopped: PlanningStage | None = None
    is_limited_by_guards: bool = False
    cut: int = 0

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal and not self.gap else f"gap {self.gap:.2%}"
        return f"Plan({len(self.signatures)} ops, {self.seconds:.3g} s, before {self.baseline:.3g} s, {proof})"

    @property
    def improves(self) -> bool:
        """Whether the plan is faster than the original graph; for several targets, whether its worst ratio is smaller."""
        if self.outcomes:
            before = max(each.baseline / (each.alone or 1.0) for each in self.outcomes)
            return max(each.regret for each in self.outcomes) + 1 < before * (1 - TOLERANCE)
        return self.seconds < self.baseline * (1 - TOLERANCE)
