"""One plan for several targets: the one whose worst regret is the smallest.

The regret of a plan on a target is how much longer it takes there than the target's own best plan, as a fraction.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from layoutopt.cost import CostModel, Several
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import with_unified_formats
from layoutopt.planner.candidates import Candidates, propose
from layoutopt.planner.deadline import NO_DEADLINE, Deadline, within
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.guards import guarded
from layoutopt.planner.integers import integers_of
from layoutopt.planner.nest import Nest
from layoutopt.planner.pins import check_pins, enforce_pins
from layoutopt.planner.plan import Outcome, Plan, torn
from layoutopt.planner.problem import Problem, Solution
from layoutopt.planner.regret import least_regret


def make_compromise(
    graph: Graph,
    targets: Several,
    *,
    pins: Mapping[Value, Format] | None = None,
    free_constants: bool = True,
    whole_units: bool = False,
    deadline: Deadline = NO_DEADLINE,
    guards: Sequence[CostModel] = (),
) -> Plan:
    """Choose a signature for every op that is good on all targets.

    Args:
        graph: the graph, unplanned.
        targets: the targets.
        pins: formats that values must have.
        free_constants: whether constants are converted ahead of time, at no cost.
        whole_units: whether quantised units stay as they are.
        deadline: the end of the time for planning; after it the best plan so far, with its gap.
        guards: the cost models at other sizes, at which the plan may not be slower than the graph as it is.

    Returns:
        A plan whose `outcomes` say what it means for each target.

    Raises:
        PinError: if no plan meets a pin.
    """
    pins = dict(pins or {})
    check_pins(graph, pins)
    nest = Nest(graph)
    integers = integers_of(nest.runs, targets, whole=whole_units)

    def formulate(deadline: Deadline, spreads: bool) -> tuple[Candidates, Formulation, list[Problem]]:
        candidates = propose(nest, targets, pins, integers, whole_units, deadline, spreads)
        enforce_pins(nest, candidates, pins)
        mean, *others = (
            Formulation(nest, model, candidates, integers, pins, free_constants, deadline)
            for model in (targets, *targets.models)
        )
        return candidates, mean, [each.problem for each in others]

    (candidates, mean, problems), stopped = within(deadline, formulate)

    def formulate_guard(model: CostModel, offered: Candidates) -> Formulation:
        return Formulation(nest, model, offered, integers, pins, free_constants)

    def signatures(choice: Sequence[int]) -> dict[Op, Signature]:
        chosen = {unit: candidates.signatures[unit][index] for unit, index in zip(nest.units, choice, strict=True)}
        return with_unified_formats(nest.runs, integers, nest.signatures(chosen))

    start = tuple(mean.start)
    agreement = least_regret(problems, start, NO_DEADLINE if stopped else deadline)
    if stopped:
        agreement = agreement.unproven()
    elif deadline.is_over and not agreement.is_optimal:
        stopped = "solver"
    price = mean.problem.price(agreement.choice)
    agreed = Solution(agreement.choice, price, 0.0, agreement.is_optimal)
    checked = guarded(formulate_guard, candidates, mean.problem, _each(guards), start, agreed, deadline.left)
    is_other = pins or checked.solution.choice != start
    choice = tuple(mean.tightened(mean.packed(checked.solution.choice))) if is_other else start
    if not all(isfinite(problem.price(choice)) for problem in problems):
        raise torn(graph, pins)
    outcomes = tuple(
        Outcome(model.name, problem.price(choice), problem.price(start), alone.price, signatures(alone.choice))
        for model, problem, alone in zip(targets.models, problems, agreement.own, strict=True)
    )
    return Plan(
        signatures(choice),
        seconds=_mean(each.seconds for each in outcomes),
        baseline=_mean(each.baseline for each in outcomes),
        lower_bound=_mean(each.lower_bound for each in agreement.own),
        gap=agreement.gap,
        optimal=not checked.is_other and agreement.is_optimal,
        notes=candidates.notes,
        outcomes=outcomes,
        stopped=stopped,
        is_guarded=checked.is_other,
    )


def _each(models: Iterable[CostModel]) -> list[CostModel]:
    """Each target by itself, at each of the other sizes."""
    return [one for model in models for one in (model.models if isinstance(model, Several) else (model,))]


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
