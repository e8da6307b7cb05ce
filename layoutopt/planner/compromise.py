"""One plan for several targets: the one whose worst regret is the smallest.

The regret of a plan on a target is how much longer it takes there than the target's own best plan, as a fraction.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from layoutopt.cost import CostModel, Several
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import respelled
from layoutopt.planner.candidates import propose
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.integers import integers_of
from layoutopt.planner.nest import Nest
from layoutopt.planner.pins import check_pins, enforce_pins
from layoutopt.planner.plan import Outcome, Plan, torn
from layoutopt.planner.regret import least_regret


def make_compromise(
    graph: Graph,
    targets: Several,
    *,
    pins: Mapping[Value, Format] | None = None,
    free_constants: bool = True,
    whole_units: bool = False,
    time_limit: float | None = None,
) -> Plan:
    """Choose a signature for every op that is good on all targets.

    Args:
        graph: the graph, unplanned.
        targets: the targets.
        pins: formats that values must have.
        free_constants: whether constants are converted ahead of time, at no cost.
        whole_units: whether quantised units stay as they are.
        time_limit: seconds for the solver in all; past it the best plan so far, with its gap.

    Returns:
        A plan whose `outcomes` say what it means for each target.

    Raises:
        PinError: if no plan meets a pin.
    """
    pins = dict(pins or {})
    check_pins(graph, pins)
    nest = Nest(graph)
    integers = integers_of(nest.runs, targets, whole=whole_units)
    candidates = propose(nest, targets, pins, integers, whole_units)
    enforce_pins(nest, candidates, pins)

    def formulated(model: CostModel) -> Formulation:
        return Formulation(nest, model, candidates, integers, pins, free_constants)

    def signatures(choice: Sequence[int]) -> dict[Op, Signature]:
        chosen = {unit: candidates.signatures[unit][index] for unit, index in zip(nest.units, choice, strict=True)}
        return respelled(nest.runs, integers, nest.signatures(chosen))

    mean, problems = formulated(targets), [formulated(model).problem for model in targets.models]
    start = tuple(mean.start)
    agreement = least_regret(problems, start, time_limit)
    is_other = pins or agreement.choice != start
    choice = tuple(mean.tightened(mean.packed(agreement.choice))) if is_other else start
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
        optimal=agreement.gap == 0.0 and all(each.optimal for each in agreement.own),
        notes=candidates.notes,
        outcomes=outcomes,
    )


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
