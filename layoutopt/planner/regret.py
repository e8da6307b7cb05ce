"""The choice with the smallest worst regret over several planning problems.

The problems have the same ops, options and casts, and differ in prices. The regret of a choice in a problem is the relative
extra price over the best choice. An integer program finds the choice with

    min over choices  of  max over k  of  (its price in problem k) / (the best price in problem k)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import highspy
import numpy as np

from layoutopt.planner.problem import NO_DEADLINE, TOLERANCE, Choice, Deadline, Problem, Solution, search_limit
from layoutopt.planner.program import Program, highs, limit_columns
from layoutopt.planner.solver import solve


@dataclass(frozen=True, slots=True)
class MinimaxSolution:
    """A choice with a small worst regret over all problems.

    Attributes:
        choice: the number of the chosen option, per op.
        best_solutions: the best solution of each problem alone.
        gap: the largest possible distance of the worst ratio to the minimum, as a fraction; 0 if it is proven minimal.
    """

    choice: Choice
    best_solutions: tuple[Solution, ...]
    gap: float

    @property
    def is_optimal(self) -> bool:
        """Whether the solver has proven that no choice has a smaller worst ratio."""
        return self.gap == 0.0 and all(each.optimal for each in self.best_solutions)

    def unproven(self) -> "MinimaxSolution":
        """The same choice without bounds, for problems from which options were left out."""
        best_solutions = tuple(replace(each, lower_bound=0.0, optimal=False) for each in self.best_solutions)
        return MinimaxSolution(self.choice, best_solutions, 1.0)


def least_regret(
    problems: Sequence[Problem], start: Sequence[int], deadline: Deadline = NO_DEADLINE
) -> MinimaxSolution:
    """The choice with the smallest worst regret.

    Args:
        problems: planning problems with the same ops, options and casts.
        start: a feasible choice, which is returned if no other is better.
        deadline: after it the best choice so far is returned, with its gap.
    """
    best_solutions = tuple(solve(problem, start, deadline.remaining) for problem in problems)
    if len(best_solutions) == 1:
        return MinimaxSolution(best_solutions[0].choice, best_solutions, best_solutions[0].gap)
    scales = [each.price or 1.0 for each in best_solutions]

    def worst_ratio(choice: Choice) -> float:
        return max(problem.price(choice) / scale for problem, scale in zip(problems, scales, strict=True))

    best = min((tuple(start), *(each.choice for each in best_solutions)), key=worst_ratio)
    worst = worst_ratio(best)
    if not isfinite(worst):
        return MinimaxSolution(best_solutions[0].choice, best_solutions, 1.0)
    bound = max(each.lower_bound / scale for each, scale in zip(best_solutions, scales, strict=True))
    if worst > bound * (1 + TOLERANCE):
        found, proven = _search(problems, scales, best, worst, bound, deadline)
        best, bound = min(best, found, key=worst_ratio), max(bound, proven)
        worst = worst_ratio(best)
    return MinimaxSolution(best, best_solutions, 0.0 if worst <= bound * (1 + TOLERANCE) else (worst - bound) / worst)


def _search(
    problems: Sequence[Problem], scales: Sequence[float], start: Choice, worst: float, bound: float, deadline: Deadline
) -> tuple[Choice, float]:
    """Solve the integer program: min t, t >= the ratio in every problem.

    A better choice contains no price above the worst ratio so far, so that larger prices are clamped.

    Args:
        problems: of the same ops, options and casts.
        scales: the best price in each problem.
        start: the best choice so far, which is returned if no other is found.
        worst: its worst ratio.
        bound: a lower bound on the worst ratio of all choices.
        deadline: the end of the time.

    Returns:
        A choice, and the bound that the search proves.
    """
    lower_bounds = [problem.lower_bound() for problem in problems]
    limits = [max(worst * scale - lower, TOLERANCE * scale) for scale, lower in zip(scales, lower_bounds, strict=True)]
    programs = [Program(problem, limit) for problem, limit in zip(problems, limits, strict=True)]
    model = programs[0].model(integral=True)
    model.col_cost_ = np.zeros(model.num_col_)
    solver = highs(mip_rel_gap=TOLERANCE, **search_limit(deadline.remaining))
    solver.passModel(model)
    solver.addCol(1.0, bound, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
    for program, limit, lower, scale in zip(programs, limits, lower_bounds, scales, strict=True):
        limit_columns(solver, np.append(program.prices * (limit / scale), -1.0), -lower / scale)
    programs[0].set_start(solver, start)
    solver.run()
    return programs[0].found(solver) or start, float(solver.getInfo().mip_dual_bound)
