"""Plans that are not slower than the original model at other sizes of symbolic dimensions.

The fastest plan at the inferred sizes of dimensions may be slower than the original model at other sizes: a Transpose of a
product with one row, for example, is free. A plan is therefore compared with the baseline (the original graph) at the guard
points. If it is slower at one of them, the planner searches the cheapest plan among those that are not:

    minimise     price at the planned sizes
    subject to   price at guard k <= price of the baseline at guard k     for every k
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeAlias

from layoutopt.cost import CostModel
from layoutopt.planner.candidates import Candidates
from layoutopt.planner.deadline import NO_DEADLINE, Deadline, OutOfTimeError, PlanningStage
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.problem import Choice, Problem, Solution
from layoutopt.planner.side_constraints import GuardLimit, cheapest_within

Formulate: TypeAlias = Callable[[CostModel, Candidates, Deadline], Formulation]
"""The planning problem of a graph with the prices of a cost model and some candidates, or an OutOfTimeError."""


@dataclass(frozen=True, slots=True)
class GuardedSolution:
    """A solution whose choice is not slower than the baseline at any guard point.

    Attributes:
        solution: the choice with its price at the sizes that are planned for.
        is_replaced: whether the cheapest choice at these sizes is slower at a guard point, so that another one replaces it.
        limits: the limits of guards that it meets; empty if it is the cheapest choice.
        stopped: the stage that the deadline ended before other choices were searched; the choice is then the baseline.
    """

    solution: Solution
    is_replaced: bool
    limits: tuple[GuardLimit, ...] = ()
    stopped: PlanningStage | None = None


def guarded_solution(
    formulate: Formulate,
    candidates: Candidates,
    problem: Problem,
    guards: Sequence[CostModel],
    baseline: Choice,
    solution: Solution,
    deadline: Deadline = NO_DEADLINE,
) -> GuardedSolution:
    """The solution if it is not slower than the baseline at any guard point; otherwise the best such choice.

    Whether the solution is slower is decided whatever the deadline, since that takes the prices of two choices only.

    Args:
        formulate: returns the planning problem at a guard point.
        candidates: the candidates of every unit.
        problem: the problem at the sizes that are planned for.
        guards: the cost model at each guard point.
        baseline: the choice of the original graph.
        solution: the cheapest choice.
        deadline: the end of the time for the search, after which the baseline is returned.
    """
    if solution.choice == baseline or not guards or not isfinite(problem.price(baseline)):
        return GuardedSolution(solution, is_replaced=False)
    pair = _pair(candidates, baseline, solution.choice)
    if not any(_is_slower(formulate(guard, pair, NO_DEADLINE).problem, baseline, solution.choice) for guard in guards):
        return GuardedSolution(solution, is_replaced=False)
    try:
        problems = [formulate(guard, candidates, deadline).problem for guard in guards]
    except OutOfTimeError as error:
        unchanged = Solution(baseline, problem.price(baseline), solution.lower_bound, False).with_optimality()
        return GuardedSolution(unchanged, is_replaced=True, stopped=error.stage)
    limits = tuple(GuardLimit(each, each.price(baseline)) for each in problems)
    ceiling = problem.price(baseline)
    choice, bound = cheapest_within(problem, limits, baseline, ceiling, deadline.remaining)
    price = problem.price(choice)
    if price > ceiling or not all(limit.allows(choice) for limit in limits):
        choice, price = baseline, ceiling
    found = Solution(choice, price, max(bound, solution.lower_bound), False).with_optimality()
    return GuardedSolution(found, is_replaced=True, limits=limits)


def _pair(candidates: Candidates, baseline: Choice, choice: Choice) -> Candidates:
    """The candidates of the baseline and of the choice only, so that few prices are computed."""
    units = candidates.signatures.items()
    pairs = {unit: [each[a], each[b]] for (unit, each), a, b in zip(units, baseline, choice, strict=True)}
    return replace(candidates, signatures=pairs)


def _is_slower(problem: Problem, baseline: Choice, choice: Choice) -> bool:
    """Whether the second of two candidates per op is slower than the first, in a problem of these two."""
    first, second = (0,) * len(baseline), (1,) * len(choice)
    return not GuardLimit(problem, problem.price(first)).allows(second)


__all__ = ["GuardLimit", "GuardedSolution", "guarded_solution"]
