"""The choice with the smallest worst regret over several planning problems.

The problems have the same ops, options and casts, and differ in prices. The regret of a choice in a problem is the relative
extra price over the best choice. An integer program finds the choice with

    min over choices  of  max over k  of  (its price in problem k) / (the best price in problem k)
"""

from collections.abc import Sequence
from functools import partial
from math import isfinite

import highspy
import numpy as np
from msgspec.structs import replace

from layoutopt.planner.problem import NO_DEADLINE, TOLERANCE, Choice, Deadline, Problem, Solution, search_limit
from layoutopt.planner.program import Program, highs, limit_columns
from layoutopt.planner.solver import solve


def least_regret(
    problems: Sequence[Problem], start: Sequence[int], deadline: Deadline = NO_DEADLINE
) -> tuple[Solution, tuple[Solution, ...]]:
    """The choice with the smallest worst regret, and the best solution of each problem alone.

    The price and the lower bound of the choice are those of its worst ratio, if there are several problems.

    Args:
        problems: planning problems with the same ops, options and casts.
        start: a feasible choice, which is returned if no other is better.
        deadline: after it the best choice so far is returned, with its gap.
    """
    best_solutions = tuple(solve(problem, start, deadline) for problem in problems)
    if len(best_solutions) == 1:
        return best_solutions[0], best_solutions
    scales = [each.price or 1.0 for each in best_solutions]
    ratio = partial(worst_ratio, problems, best_solutions)
    best = min((tuple(start), *(each.choice for each in best_solutions)), key=ratio)
    worst = ratio(best)
    if not isfinite(worst):
        return replace(best_solutions[0], lower_bound=0.0, optimal=False), best_solutions
    bound = max(each.lower_bound / scale for each, scale in zip(best_solutions, scales, strict=True))
    if worst > bound * (1 + TOLERANCE):
        found, proven = _search(problems, scales, best, worst, bound, deadline)
        best, bound = min(best, found, key=ratio), max(bound, proven)
        worst = ratio(best)
    agreement = Solution(best, worst, bound, False).with_optimality()
    is_proven = agreement.optimal and all(each.optimal for each in best_solutions)
    return replace(agreement, optimal=is_proven), best_solutions


def worst_ratio(problems: Sequence[Problem], best_solutions: Sequence[Solution], choice: Choice) -> float:
    """The largest ratio of the price of a choice in a problem to the best price in that problem."""
    pairs = zip(problems, best_solutions, strict=True)
    return max(problem.price(choice) / (best.price or 1.0) for problem, best in pairs)


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
