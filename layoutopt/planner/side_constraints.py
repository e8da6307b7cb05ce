"""The cheapest choice of a planning problem under further constraints, by an integer program with a row for each of them."""

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import highspy
import numpy as np

from layoutopt.planner.problem import TOLERANCE, Choice, Problem, search_limit
from layoutopt.planner.program import Program

_ABSOLUTE_GAP = 1e-6  # of the integer program, whose prices are at most 1


class SideConstraint(Protocol):
    """A constraint on choices that is linear in the columns of the integer program."""

    def row(self, program: Program) -> tuple[Any, float]:
        """The factor of every column of the program, and the largest value of the sum."""

    def allows(self, choice: Choice) -> bool:
        """Whether a choice meets the constraint, within the tolerance."""


def cheapest_within(
    problem: Problem,
    constraints: Sequence[SideConstraint],
    start: Choice,
    ceiling: float,
    time_limit: float | None,
    gap: float = 0.0,
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
        gap: the difference of the price to the bound at which the search ends.
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
        "mip_abs_gap": max(_ABSOLUTE_GAP, gap / limit),
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


__all__ = ["SideConstraint", "cheapest_within"]
