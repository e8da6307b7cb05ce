"""The cheapest choice of a planning problem within the limits of guards, by an integer program with a row for each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import highspy
import numpy as np

from layoutopt.planner.problem import TOLERANCE, Choice, Problem, search_limit
from layoutopt.planner.program import Program

_LIMIT_MARGIN = 1.01  # prices are clamped slightly above the limit of a guard
_ABSOLUTE_GAP = 1e-6  # of the integer program, whose prices are at most 1


@dataclass(frozen=True, slots=True)
class GuardLimit:
    """The problem at a guard point, and the price there that no choice may exceed.

    Attributes:
        problem: the planning problem with the prices of the guard point, which has the ops, options and casts of the problem at
            the planned sizes.
        price: the price of the baseline.
    """

    problem: Problem
    price: float

    def allows(self, choice: Choice) -> bool:
        """Whether a choice does not exceed the price, within the tolerance."""
        return self.problem.price(choice) <= self.price * (1 + TOLERANCE)

    def row(self, program: Program) -> tuple[Any, float]:
        """The prices at the guard point, as fractions of slightly more than the limit, so that a larger price exceeds it."""
        excess = self.price - self.problem.lower_bound()
        return Program(self.problem, max(excess, TOLERANCE * self.price) * _LIMIT_MARGIN).prices, 1 / _LIMIT_MARGIN


def cheapest_within(
    problem: Problem,
    constraints: Sequence[GuardLimit],
    start: Choice,
    ceiling: float,
    time_limit: float | None,
) -> tuple[Choice, float]:
    """The cheapest choice under constraints, by an integer program, and the bound that it proves on its price.

    Args:
        problem: the planning problem.
        constraints: the constraints.
        start: the choice to begin with, which is returned if none is found, although it may violate a constraint; the bound is
            infinite if there is none.
        ceiling: a price that the cheapest choice does not exceed. If it does, the bound is about the ceiling or infinite, and
            the result is the start or some choice above the ceiling.
        time_limit: seconds; None for a limit that does not depend on the speed of the machine.
    """
    lower = problem.lower_bound()
    limit = max(ceiling - lower, TOLERANCE)
    program = Program(problem, limit)
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    settings = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": TOLERANCE,
        "objective_bound": 1.0 + TOLERANCE,
        "mip_abs_gap": _ABSOLUTE_GAP,
        **search_limit(time_limit),
    }
    for name, setting in settings.items():
        solver.setOptionValue(name, setting)
    solver.passModel(program.model(integral=True))
    for each in constraints:
        factors, upper = each.row(program)
        (used,) = np.nonzero(factors)
        solver.addRow(-highspy.kHighsInf, upper, len(used), used.astype(np.int32), factors[used])
    if all(each.allows(start) for each in constraints):
        program.set_start(solver, start)
    solver.run()
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return start, inf
    info, values = solver.getInfo(), np.asarray(solver.getSolution().col_value)
    bound = lower + float(info.mip_dual_bound) * limit
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return start, bound
    return program.choice(values), bound


__all__ = ["GuardLimit", "cheapest_within"]
