"""Plans that are not slower than the original model at other sizes of symbolic dimensions.

An inferred size of a dimension is a guess. The plan that is the fastest at the inferred sizes may be slower at others: a
Transpose of a product with one row is free. A plan is therefore compared with the start (every op as it is) at a few other
sizes, the guards. If it is slower at a guard, the planner searches the cheapest plan among those that are not:

    minimise   price at the sizes      subject to      price at guard k <= price of the start at guard k,  for every k
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, TypeAlias

import highspy
import numpy as np

from layoutopt.cost import CostModel
from layoutopt.planner.candidates import Candidates
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.problem import TOLERANCE, Problem, Solution
from layoutopt.planner.program import Program

PATIENCE = 20.0  # seconds for the integer program, where the caller sets no limit
_ROOM = 1.01  # prices are cut off slightly above the limit of a guard, so that a price above the limit stays above it

Choice: TypeAlias = tuple[int, ...]

Formulate: TypeAlias = Callable[[CostModel, Candidates], Formulation]
"""The planning problem of a graph with the prices of a cost model and some candidates."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A choice that no guard rejects.

    Attributes:
        solution: the choice with its price at the sizes that are planned for.
        is_other: whether it differs from the fastest choice at these sizes.
    """

    solution: Solution
    is_other: bool


def guarded(
    formulate: Formulate,
    candidates: Candidates,
    problem: Problem,
    guards: Sequence[CostModel],
    start: Choice,
    solution: Solution,
    time_limit: float | None = None,
) -> Guarded:
    """The solution if it is not slower than the start at any guard; otherwise the best such choice, or the start.

    Args:
        formulate: returns the planning problem of a guard.
        candidates: the candidates of every unit.
        problem: the problem at the sizes that are planned for.
        guards: the cost model at each of the other sizes.
        start: the choice that leaves every op as it is.
        solution: the cheapest choice.
        time_limit: seconds for the search.
    """
    if solution.choice == start or not guards or not isfinite(problem.price(start)):
        return Guarded(solution, is_other=False)
    pair = _pair(candidates, start, solution.choice)
    if not any(_is_slower(formulate(guard, pair).problem, start, solution.choice) for guard in guards):
        return Guarded(solution, is_other=False)
    problems = [formulate(guard, candidates).problem for guard in guards]
    choice, bound = _search(problem, problems, start, PATIENCE if time_limit is None else time_limit)
    price = problem.price(choice)
    if price > problem.price(start) or any(_exceeds(each, start, choice) for each in problems):
        choice, price = start, problem.price(start)
    found = Solution(choice, price, max(bound, solution.lower_bound), False).closed()
    return Guarded(found, is_other=True)


def _pair(candidates: Candidates, start: Choice, choice: Choice) -> Candidates:
    """The candidates of the start and of the choice only, so that guards need few prices."""
    units = candidates.signatures.items()
    pairs = {unit: [each[a], each[b]] for (unit, each), a, b in zip(units, start, choice, strict=True)}
    return replace(candidates, signatures=pairs)


def _is_slower(problem: Problem, start: Choice, choice: Choice) -> bool:
    """Whether the second of two candidates per op is slower than the first, in a problem of these two."""
    return _exceeds(problem, (0,) * len(start), (1,) * len(choice))


def _exceeds(problem: Problem, start: Choice, choice: Choice) -> bool:
    return problem.price(choice) > problem.price(start) * (1 + TOLERANCE)


def _search(problem: Problem, guards: Sequence[Problem], start: Choice, time_limit: float) -> tuple[Choice, float]:
    """The cheapest choice that the guards allow, by an integer program, and the bound that it proves on its price."""
    floor = _floor(problem)
    limit = max(problem.price(start) - floor, TOLERANCE)
    program = Program(problem, limit)
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    settings = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": TOLERANCE,
        "time_limit": time_limit,
    }
    for name, setting in settings.items():
        solver.setOptionValue(name, setting)
    solver.passModel(program.model(integral=True))
    for guard in guards:
        excess = guard.price(start) - _floor(guard)
        prices = np.asarray(Program(guard, max(excess, TOLERANCE * guard.price(start)) * _ROOM).prices)
        (used,) = np.nonzero(prices)
        solver.addRow(-highspy.kHighsInf, 1 / _ROOM, len(used), used.astype(np.int32), prices[used])
    program.suggest(solver, start)
    solver.run()
    info, values = solver.getInfo(), np.asarray(solver.getSolution().col_value)
    bound = floor + float(info.mip_dual_bound) * limit
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return start, bound
    return program.choice(values), bound


def _floor(problem: Problem) -> float:
    return sum(min(option.price for option in options) for options in problem.ops)


__all__ = ["Guarded", "guarded"]
