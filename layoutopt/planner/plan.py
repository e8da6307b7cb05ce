"""From a graph to a plan: candidates, prices, the problem, its solution, and what it means for the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isinf

from layoutopt.cost import CostModel
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import with_unified_formats
from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.deadline import NO_DEADLINE, Deadline, Stage, within
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.guards import guarded
from layoutopt.planner.integers import integers_of
from layoutopt.planner.nest import Nest
from layoutopt.planner.pins import check_pins, enforce_pins
from layoutopt.planner.problem import TOLERANCE
from layoutopt.planner.solver import solve


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan for several targets means for one of them.

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
        outcomes: what the plan means for each target where it is for several. Then seconds are means over them, the bound is
            that of each by itself, and the gap is that of the worst ratio of seconds to what the target would take alone.
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


def make_plan(
    graph: Graph,
    cost_model: CostModel,
    *,
    pins: Mapping[Value, Format] | None = None,
    free_constants: bool = True,
    whole_units: bool = False,
    deadline: Deadline = NO_DEADLINE,
    by_runs: bool = True,
    guards: Sequence[CostModel] = (),
) -> Plan:
    """Choose a signature for every op, in bodies too.

    Args:
        graph: the graph, unplanned.
        cost_model: the target.
        pins: formats that values must have: graph inputs, graph outputs, or values in between.
        free_constants: whether constants are converted ahead of time, at no cost.
        whole_units: whether quantised units stay as they are.
        deadline: the end of the time for planning; after it the best plan so far, with its gap.
        by_runs: whether bodies count as often as they are expected to run, or once.
        guards: the cost model at other sizes, at which the plan may not be slower than the graph as it is.

    Raises:
        PinError: if no plan meets a pin.
    """
    pins = dict(pins or {})
    check_pins(graph, pins)
    nest = Nest(graph, by_runs=by_runs)
    integers = integers_of(nest.runs, cost_model, whole=whole_units)

    def formulate(deadline: Deadline, spreads: bool) -> tuple[Candidates, Formulation]:
        candidates = propose(nest, cost_model, pins, integers, whole_units, deadline, spreads)
        enforce_pins(nest, candidates, pins)
        return candidates, Formulation(nest, cost_model, candidates, integers, pins, free_constants, deadline)

    (candidates, formulation), stopped = within(deadline, formulate)

    def formulate_guard(model: CostModel, offered: Candidates) -> Formulation:
        return Formulation(nest, model, offered, integers, pins, free_constants)

    problem = formulation.problem
    start = formulation.start
    baseline = problem.price(start)
    solution = solve(problem, start, None if stopped else deadline.left)
    if stopped:  # the bound is one of the few candidates that are left
        solution = replace(solution, lower_bound=0.0, optimal=False)
    elif not solution.optimal and deadline.is_over:
        stopped = "solver"
    checked = guarded(formulate_guard, candidates, problem, guards, tuple(start), solution, deadline.left)
    solution = checked.solution
    better = pins or solution.price < baseline * (1 - TOLERANCE)
    choice = formulation.tightened(formulation.packed(solution.choice)) if better else start
    if isinf(problem.price(choice)):
        raise torn(graph, pins)
    chosen = {unit: candidates.signatures[unit][index] for unit, index in zip(nest.units, choice, strict=True)}
    return Plan(
        with_unified_formats(nest.runs, integers, nest.signatures(chosen)),
        problem.price(choice),
        baseline,
        solution.lower_bound,
        solution.gap,
        solution.optimal,
        candidates.notes,
        stopped=stopped,
        is_guarded=checked.is_other,
    )


def torn(graph: Graph, pins: Mapping[Value, Format]) -> PinError:
    """What to say where every plan needs a cast inside of a quantised unit."""
    return PinError(
        "no plan meets it: a quantised unit would have to be torn apart",
        where=", ".join(value.name for value in pins) or graph.name,
        hint="pin the integers before or behind the unit, or a graph input or output",
    )
