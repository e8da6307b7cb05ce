"""Solves a planning problem exactly.

Ops with one option are constants, and the rest decomposes into connected components, the subproblems. The linear relaxation
of each is solved first; the integer program is solved only if the relaxation leaves a gap.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from math import inf
from typing import Any, TypeAlias

import highspy
import numpy as np

from layoutopt.planner.problem import TIE_TOLERANCE, Choice, Deadline, Parts, Problem, Ranks, Solution, search_limit
from layoutopt.planner.program import LINEAR, Program, Run, highs, limit_columns

PRICE_RANGE = (
    10.0  # largest ratio of the price limit of a program to the prices of its solution, given tolerances of 1e-7
)


Relaxed: TypeAlias = tuple[Program, Run]


def solve(
    problem: Problem, start: Sequence[int], time_limit: float | None = None, ops: Set[int] | None = None
) -> Solution:
    """The cheapest choice; among several, the one that moves the fewest bytes, if options have ranks.

    Args:
        problem: the planning problem.
        start: a feasible choice, which is returned if no better one is found in time.
        time_limit: seconds; None for no limit. After it the best choice so far is returned, with the bound proven by then.
        ops: of subproblems without any of these ops, the start is known to be the cheapest choice; None to solve all.
    """
    deadline = Deadline(time_limit)
    solved = [
        (numbers, subproblem, _cheapest(subproblem, [start[op] for op in numbers], deadline))
        for numbers, subproblem in _subproblems(problem, ops)
    ]
    slack = sum(found.price - found.lower_bound for _, _, (found, _) in solved if not found.optimal)
    choice = _joined(start, ((numbers, found.choice) for numbers, _, (found, _) in solved))
    if problem.prefers_start and problem.price(start) * (1 - TIE_TOLERANCE) <= problem.price(choice):
        choice = list(start)
    elif problem.ranks is not None:  # after all subproblems are solved, since this takes only the time that is left
        choice = _joined(start, ((numbers, _selected(part, *found, deadline)) for numbers, part, found in solved))
    price = problem.price(choice)
    return Solution(tuple(choice), price, price - slack, False).with_optimality()


def _joined(start: Sequence[int], parts: Iterable[tuple[list[int], Choice]]) -> list[int]:
    """The start with other options for the ops of subproblems."""
    choice = list(start)
    for ops, options in parts:
        for op, option in zip(ops, options, strict=True):
            choice[op] = option
    return choice


def _selected(problem: Problem, solution: Solution, relaxed: Relaxed | None, deadline: Deadline) -> Choice:
    """The choice of a subproblem that moves the fewest bytes among the cheapest ones."""
    if not solution.optimal:
        return solution.choice
    return select_among_cheapest(problem, solution.choice, relaxed, deadline)


def _subproblems(problem: Problem, chosen: Set[int] | None) -> Iterator[tuple[list[int], Problem]]:
    """The subproblems, one per connected component with any of the chosen ops, each with the numbers of its ops."""
    parts = Parts(problem)
    for ops, tensors in parts.components:
        if chosen is None or not chosen.isdisjoint(ops):
            found = parts.part(ops, tensors)
            found.ranks = _renumbered_ranks(problem.ranks, ops)
            yield ops, found


def _renumbered_ranks(ranks: Ranks | None, ops: Sequence[int]) -> Ranks | None:
    return None if ranks is None else lambda op, option: ranks(ops[op], option)


def _cheapest(problem: Problem, start: Sequence[int], deadline: Deadline) -> tuple[Solution, Relaxed | None]:
    """Solve the relaxation, then the integer program if a gap is left, each again with a smaller limit if far below it.

    Returns:
        The solution, and the last linear program with its run, if there is one.
    """
    lower = problem.lower_bound()
    best = Solution(tuple(start), problem.price(start), lower, False).with_optimality()
    upper = problem.upper_bound()
    relaxed: Relaxed | None = None
    for integral in (False, True):
        limit = inf
        while not best.optimal and min(best.price, upper) - lower < limit / PRICE_RANGE:
            limit = (min(best.price, upper) - lower) or 1.0  # any limit is valid if the start is impossible
            if deadline.has_passed:
                return best, relaxed
            program = Program(problem, limit)
            run = program.run(integral, best.choice, deadline.remaining)
            relaxed, bound = relaxed if integral else (program, run), run.bound
            price, choice = min((problem.price(run.choice), run.choice), (best.price, best.choice))
            if integral and price - lower < limit / PRICE_RANGE:
                bound = 0.0  # its tolerance is relative to the limit
            best = Solution(choice, price, max(best.lower_bound, lower + bound), False).with_optimality()
    return best, relaxed


# --- ties ---
#
# Selects one of the cheapest choices of a problem: the fewest bytes moved, the fewest casts, the latest casts, least ranks.
#
# The price and its proof stay as they are. With the multipliers of the linear program, every choice has the price
#
#   bound  +  sum of (the reduced cost of a column * its value)  +  sum of (the multiplier of a row * the distance to its bound)
#
# so no choice of the cheapest price has a column whose reduced cost exceeds the gap between that price and the bound. These
# columns are fixed at 0 (or at 1 if the reduced cost is negative), and rows at their bounds. If the gap is zero, the
# columns that remain are exactly the cheapest choices. The solver continues from its last basis with another objective, and
# columns are fixed in the same way for the next criterion. If a solution is not integral or the gap is not zero, an integer
# program has the price as one more row.


_INTEGRAL = 1e-6  # a value that is closer to an integer is that integer
_WHOLE = 1e-3  # a smaller reduced cost in bytes, casts or ranks is zero
_ROW_SCALE = 1e3  # factor of the rows of earlier criteria, because the tolerances of rows are absolute
_MAX_TIE_NODES = (
    200  # of a search of an integer program: a number instead of a time, so that all machines find the same
)

_Array: TypeAlias = Any


def select_among_cheapest(problem: Problem, choice: Choice, solved: Relaxed | None, deadline: Deadline) -> Choice:
    """The choice of the same price that moves the fewest bytes, by the fewest casts, of the least ranks.

    Args:
        problem: the planning problem.
        choice: the cheapest choice.
        solved: the last linear program of the problem and its run, if there is one.
        deadline: the end of the time.
    """
    if problem.ranks is None or deadline.has_passed:
        return choice
    if solved is None:
        program = Program(problem, (problem.price(choice) - problem.lower_bound()) or 1.0)
        solved = program, program.run(False, choice, deadline.remaining)
    return _Selection(problem, *solved, choice, deadline).run(problem.ranks)


class _Selection:
    """The selection among the cheapest choices.

    Args:
        problem: the planning problem.
        program: its linear program.
        run: the run of this program.
        choice: the cheapest choice.
        deadline: the end of the time.
    """

    def __init__(self, problem: Problem, program: Program, run: Run, choice: Choice, deadline: Deadline) -> None:
        self.problem = problem
        self.program = program
        self.multipliers, self.basis = run.multipliers, run.basis
        self.best = choice
        self.solver: Any = None
        self.deadline = deadline
        self.is_integral = True
        self.limits: list[tuple[_Array, float]] = []
        count = len(program.prices)
        self.lower, self.upper = np.zeros(count), program.upper.copy()
        self.row_upper = np.asarray(program.rows.upper).copy()
        self.price = problem.price(choice)

    def run(self, ranks: Ranks) -> Choice:
        """The selected choice."""
        program = self.program
        multipliers = self.multipliers
        excess = self.price - self.problem.lower_bound()
        slack = TIE_TOLERANCE * (self.price or 1.0)
        gap = max(0.0, excess - program.bound(multipliers) * program.limit)
        self._fix(program.reduced_costs(multipliers), multipliers, (gap + slack) / program.limit)
        self.upper[np.asarray(program.excesses) > excess + slack] = 0.0
        self.is_integral = gap <= slack
        self.limits.append((program.prices * program.limit / (excess or 1.0), (excess + slack) / (excess or 1.0)))
        for costs in self._criteria(ranks):
            if self._is_unique() or not self._minimise(costs):
                break
        return self.best

    def _criteria(self, ranks: Ranks) -> Iterator[_Array]:
        """The price of every column in bytes, in casts and their depths, and in ranks."""
        program = self.program
        yield np.asarray(program.nbytes)
        casts, depths = np.asarray(program.casts), np.asarray(program.depths)
        deepest = int(depths.max(initial=0))
        count = len(self.problem.required_casts(self.best) or ())
        yield casts * (1.0 + count * deepest) + (deepest - depths) * casts  # one cast more costs more than all depths
        costs = np.zeros(len(program.prices))
        for op, (first, options) in enumerate(zip(program.first, self.problem.ops, strict=True)):
            left = [option for option in range(len(options)) if self.upper[first + option]]
            for option in left if len(left) > 1 else ():
                costs[first + option] = ranks(op, option)
        yield costs

    def _is_unique(self) -> bool:
        """Whether every op has one option left."""
        return not (np.add.reduceat(self.upper[: self.program.binaries], self.program.first) > 1).any()

    def _fix(self, reduced: _Array, multipliers: _Array, threshold: float) -> None:
        """Fix the columns and rows that a choice of the same price cannot have otherwise."""
        free = self.lower < self.upper
        self.upper[free & (reduced > threshold)] = 0.0
        self.lower[free & (reduced < -threshold)] = 1.0
        fixed = multipliers > threshold
        self.row_upper[fixed] = np.asarray(self.program.rows.lower)[fixed]

    def _minimise(self, costs: _Array) -> bool:
        """Minimise a criterion, which later solutions keep at its minimum; returns whether the minimum was found."""
        values = self._relaxation(costs) if self.is_integral else None
        if values is None:
            values = self._integer_program(costs)
        if values is None:
            return False
        choice = self.program.choice(values)
        if self.problem.price(choice) > self.price + TIE_TOLERANCE * self.price:
            return False
        self.best = choice
        self.limits.append((costs, float(costs @ np.round(values)) + _WHOLE))
        return True

    def _relaxation(self, costs: _Array) -> _Array | None:
        """The solution of the linear program, if it is integral."""
        if self.solver is None:
            self.solver = highs(**LINEAR)
            self.solver.passModel(self.program.model(integral=False))
            self.solver.setBasis(self.basis)
        count, rows, solver = len(costs), len(self.row_upper), self.solver
        solver.changeColsCost(count, np.arange(count, dtype=np.int32), costs)
        solver.changeColsBounds(count, np.arange(count, dtype=np.int32), self.lower, self.upper)
        lower = np.asarray(self.program.rows.lower)
        solver.changeRowsBounds(rows, np.arange(rows, dtype=np.int32), lower, self.row_upper)
        self._limit_time(solver)
        solver.run()
        solution = solver.getSolution()
        values = np.asarray(solution.col_value)
        options = values[: self.program.binaries]
        is_solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        self.is_integral = bool(is_solved and (np.abs(options - np.round(options)) < _INTEGRAL).all())
        if not self.is_integral:
            return None
        self._fix(np.asarray(solution.col_dual), np.asarray(solution.row_dual), _WHOLE)
        return values

    def _integer_program(self, costs: _Array) -> _Array | None:
        """The solution of the integer program with a row for each earlier criterion, if it is optimal."""
        solver = highs(mip_rel_gap=0.0, mip_max_nodes=_MAX_TIE_NODES)
        model = self.program.model(integral=True)
        model.col_cost_, model.col_lower_, model.col_upper_ = costs, self.lower, self.upper
        model.row_upper_ = self.row_upper
        solver.passModel(model)
        for prices, limit in self.limits:
            scale = _ROW_SCALE / max(1.0, abs(limit))
            limit_columns(solver, prices * scale, limit * scale)
        self.program.set_start(solver, self.best)
        self._limit_time(solver)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return np.asarray(solver.getSolution().col_value)

    def _limit_time(self, solver: Any) -> None:
        """Give the solver the remaining time."""
        limit = search_limit(self.deadline.remaining)
        limit["time_limit"] += float(solver.getRunTime())
        for name, setting in limit.items():
            solver.setOptionValue(name, setting)
