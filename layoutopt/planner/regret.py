"""The choice with the smallest worst regret over several planning problems.

The problems have the same ops, options and casts, and differ in prices. The regret of a choice in a problem is the relative
extra price over the best choice. Every choice has a point of ratios r_k = (its price in problem k) / (the best price in
problem k); for weights w that sum to one

    max over w  of  min over choices  of  sum of w_k r_k     <=     min over choices  of  max over k  of  r_k

The inner minimum is a planning problem with weighted prices. The outer maximum is found by cutting planes (Kelley, 1960): every
choice found so far is a line over the weights, and a small linear program finds the next weights at the maximum of their lower
envelope. If no single choice attains the maximum, a gap remains, and the integer program of the right side closes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import highspy
import numpy as np

from layoutopt.planner.problem import (
    NO_DEADLINE,
    TOLERANCE,
    Choice,
    Deadline,
    Option,
    Problem,
    Solution,
    Tensor,
    search_limit,
)
from layoutopt.planner.program import Program, highs
from layoutopt.planner.solver import solve

MAX_CUTTING_PLANES = 24  # two problems need about six


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
    search = _MinimaxSearch(problems, best_solutions, deadline)
    for choice in (tuple(start), *(solution.choice for solution in best_solutions)):
        search.add(choice)
    if not search.found:
        return MinimaxSolution(best_solutions[0].choice, best_solutions, 1.0)
    choice, gap = search.run()
    return MinimaxSolution(choice, best_solutions, gap)


class _MinimaxSearch:
    """The search for the smallest worst ratio, by upper and lower bounds.

    Args:
        problems: one per target, of the same ops, options and casts; only prices differ.
        best_solutions: the best solution of each problem alone.
        deadline: the end of the time.
    """

    def __init__(self, problems: Sequence[Problem], best_solutions: Sequence[Solution], deadline: Deadline) -> None:
        self.problems = problems
        self.best_solutions = best_solutions
        self.scales = [solution.price or 1.0 for solution in best_solutions]
        self.deadline = deadline
        self.found: dict[Choice, list[float]] = {}

    def add(self, choice: Choice) -> bool:
        """Add a choice with its ratio on every target; returns whether it was new."""
        prices = [problem.price(choice) for problem in self.problems]
        is_new = choice not in self.found and all(map(isfinite, prices))
        if is_new:
            self.found[choice] = [price / scale for price, scale in zip(prices, self.scales, strict=True)]
        return is_new

    def run(self) -> tuple[Choice, float]:
        """The best choice and its gap."""
        bound = self._cutting_planes()
        if self._worst_ratio() > bound * (1 + TOLERANCE):
            bound = max(bound, self._integer_program(bound))
        worst = self._worst_ratio()
        return self._best(), 0.0 if worst <= bound * (1 + TOLERANCE) else (worst - bound) / worst

    def _best(self) -> Choice:
        return min(self.found, key=lambda choice: max(self.found[choice]))

    def _worst_ratio(self) -> float:
        return max(self.found[self._best()])

    def _cutting_planes(self) -> float:
        """Add choices until the bound stops growing; returns a lower bound on the worst ratio of all choices."""
        bound = max(each.lower_bound / scale for each, scale in zip(self.best_solutions, self.scales, strict=True))
        for _ in range(MAX_CUTTING_PLANES):
            weights, height = self._envelope_maximum()
            means = [(float(np.dot(weights, ratios)), choice) for choice, ratios in self.found.items()]
            solution = solve(self._weighted(weights), min(means)[1], self.deadline.remaining)
            bound = max(bound, solution.lower_bound)
            if not self.add(solution.choice) or height <= bound * (1 + TOLERANCE) or self.deadline.remaining == 0.0:
                break
        return bound

    def _envelope_maximum(self) -> tuple[list[float], float]:
        """The weights that maximise the price of the cheapest choice: max t, t <= w.r for every choice, sum of w = 1."""
        solver = highs()
        weights = [solver.addVariable(0.0, 1.0) for _ in self.problems]
        height = solver.addVariable(-highspy.kHighsInf, highspy.kHighsInf)
        solver.addConstr(sum(weights) == 1.0)
        for ratios in self.found.values():
            solver.addConstr(height <= sum(weight * ratio for weight, ratio in zip(weights, ratios, strict=True)))
        solver.maximize(height)
        values = solver.getSolution().col_value
        return [max(0.0, value) for value in values[:-1]], float(values[-1])

    def _integer_program(self, bound: float) -> float:
        """Solve the integer program: min t, t >= the ratio in every problem. Returns the bound that it proves.

        A better choice contains no price above the worst ratio so far, so that larger prices are clamped.
        """
        worst = self._worst_ratio()
        lower_bounds = [problem.lower_bound() for problem in self.problems]
        limits = [
            max(worst * scale - lower, TOLERANCE * scale)
            for scale, lower in zip(self.scales, lower_bounds, strict=True)
        ]
        programs = [Program(problem, limit) for problem, limit in zip(self.problems, limits, strict=True)]
        model = programs[0].model(integral=True)
        count = model.num_col_
        solver = highs(mip_rel_gap=TOLERANCE, **search_limit(self.deadline.remaining))
        model.col_cost_ = np.zeros(count)
        solver.passModel(model)
        solver.addCol(1.0, bound, highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))
        for program, limit, lower, scale in zip(programs, limits, lower_bounds, self.scales, strict=True):
            prices = program.prices * (limit / scale)
            (used,) = np.nonzero(prices)
            columns = np.append(used, count).astype(np.int32)
            factors = np.append(-prices[used], 1.0)
            solver.addRow(lower / scale, highspy.kHighsInf, len(columns), columns, factors)
        programs[0].set_start(solver, self._best())
        solver.run()
        info, values = solver.getInfo(), np.asarray(solver.getSolution().col_value)
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            self.add(programs[0].choice(values))
        return float(info.mip_dual_bound)

    def _weighted(self, weights: Sequence[float]) -> Problem:
        """The problem with the weighted ratios as prices."""
        factors = [weight / scale for weight, scale in zip(weights, self.scales, strict=True)]

        def mixed(prices: Sequence[float]) -> float:
            return sum(factor * price for factor, price in zip(factors, prices, strict=True))

        ops = [
            [
                Option(mixed([each.price for each in options]), options[0].result_states, options[0].operand_states)
                for options in zip(*several, strict=True)
            ]
            for several in zip(*(problem.ops for problem in self.problems), strict=True)
        ]
        tensors = [
            Tensor(
                several[0].casts,
                [mixed(prices) for prices in zip(*(each.prices for each in several), strict=True)],
                several[0].source_state,
                several[0].required_states,
            )
            for several in zip(*(problem.tensors for problem in self.problems), strict=True)
        ]
        return Problem(ops, tensors)
