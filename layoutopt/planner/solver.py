"""Solves a planning problem exactly.

Ops with one option are constants, and the rest decomposes into connected components, the subproblems. The linear relaxation
of each is solved first; the integer program is solved only if the relaxation leaves a gap.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from math import inf
from typing import Any, TypeAlias

import highspy
import numpy as np

from layoutopt.planner.problem import (
    NO_DEADLINE,
    TIE_TOLERANCE,
    TOLERANCE,
    Choice,
    Deadline,
    Parts,
    Problem,
    Solution,
    search_limit,
)
from layoutopt.planner.program import Limit, Program, Run, cheapest_within, highs, limit_columns

PRICE_RANGE = (
    10.0  # largest ratio of the price limit of a program to the prices of its solution, given tolerances of 1e-7
)


Relaxed: TypeAlias = tuple[Program, Run]


def solve(
    problem: Problem, start: Sequence[int], deadline: Deadline = NO_DEADLINE, ops: Set[int] | None = None
) -> Solution:
    """The cheapest choice; among several, the one that moves the fewest bytes, if options have ranks.

    Args:
        problem: the planning problem.
        start: a feasible choice, which is returned if no better one is found in time.
        deadline: after it the best choice so far is returned, with the bound proven by then.
        ops: of subproblems without any of these ops, the start is known to be the cheapest choice; None to solve all.
    """
    solved = [
        (numbers, subproblem, _cheapest(subproblem, [start[op] for op in numbers], deadline))
        for numbers, subproblem in _subproblems(problem, ops)
    ]
    slack = sum(found.price - found.lower_bound for _, _, (found, _) in solved if not found.optimal)
    choice = _joined(start, ((numbers, found.choice) for numbers, _, (found, _) in solved))
    if problem.prefers_start and problem.price(start) * (1 - TIE_TOLERANCE) <= problem.price(choice):
        choice = list(start)
    elif problem.ranks is not None:  # after all subproblems are solved, since this takes only the time that is left
        selected = (select_among_cheapest(part, *found, deadline) for _, part, found in solved)
        choice = _joined(start, zip((numbers for numbers, _, _ in solved), selected, strict=True))
    price = problem.price(choice)
    return Solution(tuple(choice), price, price - slack, False).with_optimality()


def solve_within(problem: Problem, limits: Sequence[Limit], start: Choice, deadline: Deadline) -> Solution:
    """The cheapest choice within limits, of infinite price if there is none; the start, if it is none, stays the choice.

    Args:
        problem: the planning problem.
        limits: the limits.
        start: the choice to begin with, which may violate a limit.
        deadline: after it the best choice so far is returned, with the bound proven by then.
    """
    price = problem.price(start) if all(limit.allows(start) for limit in limits) else inf
    found = Solution(start, price, 0.0, False)
    ceiling, lower = min(price, problem.upper_bound()), problem.lower_bound()
    while True:  # the tolerances of the solver are relative to the ceiling
        choice, bound = cheapest_within(problem, limits, found.choice, ceiling, deadline.remaining)
        price = problem.price(choice) if all(limit.allows(choice) for limit in limits) else inf
        price, choice = min((found.price, found.choice), (price, choice))
        found = Solution(choice, price, bound, False).with_optimality()
        is_exact = price - lower >= (ceiling - lower) / PRICE_RANGE
        is_least = price == inf or price >= ceiling * (1 - TOLERANCE) or (found.optimal and is_exact)
        if is_least or deadline.has_passed:
            return found
        ceiling = price


def _joined(start: Sequence[int], parts: Iterable[tuple[list[int], Choice]]) -> list[int]:
    """The start with other options for the ops of subproblems."""
    choice = list(start)
    for ops, options in parts:
        for op, option in zip(ops, options, strict=True):
            choice[op] = option
    return choice


def _subproblems(problem: Problem, chosen: Set[int] | None) -> Iterator[tuple[list[int], Problem]]:
    """The subproblems, one per connected component with any of the chosen ops, each with the numbers of its ops."""
    parts = Parts(problem)
    for ops, tensors in parts.components:
        if chosen is None or not chosen.isdisjoint(ops):
            yield ops, parts.part(ops, tensors)


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
        while not best.optimal:
            excess = (min(best.price, upper) - lower) or 1.0  # any limit is valid if the start is impossible
            if excess >= limit / PRICE_RANGE:
                break
            limit = excess
            is_possible = best.price < inf  # if not, a choice is searched whatever the deadline
            if is_possible and deadline.has_passed:
                return best, relaxed
            program = Program(problem, limit)
            run = program.run(integral, best.choice, deadline.remaining if is_possible else None)
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
# columns that remain are exactly the cheapest choices. An integer program of them, with the price and the earlier criteria as
# further rows, finds the best choice by each criterion; presolving solves most of them.


_WHOLE = 1e-3  # a smaller difference in bytes, casts or ranks is none
_ROW_SCALE = 1e3  # factor of the rows of earlier criteria, because the tolerances of rows are absolute

_Array: TypeAlias = Any


def select_among_cheapest(problem: Problem, found: Solution, solved: Relaxed | None, deadline: Deadline) -> Choice:
    """The choice of the same price that moves the fewest bytes, by the fewest casts, of the least ranks.

    Args:
        problem: the planning problem.
        found: the best choice, which is returned if it is not proven to be the cheapest.
        solved: the last linear program of the problem and its run, if there is one.
        deadline: the end of the time.
    """
    choice, price = found.choice, found.price
    if not found.optimal or deadline.has_passed:
        return choice
    excess, slack = price - problem.lower_bound(), TIE_TOLERANCE * (price or 1.0)
    if solved is None:
        program = Program(problem, excess or 1.0)
        solved = program, program.run(False, choice, deadline.remaining)
    program, (_, _, multipliers) = solved
    threshold = (max(0.0, excess - program.bound(multipliers) * program.limit) + slack) / program.limit
    reduced = program.reduced_costs(multipliers)
    is_excluded = (reduced > threshold) | (np.asarray(program.excesses) > excess + slack)
    upper = np.where(is_excluded, 0.0, program.upper)
    model = program.model(integral=True)
    model.col_lower_, model.col_upper_ = np.where(reduced < -threshold, upper, 0.0), upper
    model.row_upper_ = np.where(multipliers > threshold, program.rows.lower, program.rows.upper)
    limits = [(program.prices * program.limit / (excess or 1.0), (excess + slack) / (excess or 1.0))]
    for costs in _criteria(problem, program, upper):
        if not (np.add.reduceat(upper[: program.binaries], program.first) > 1).any():
            break
        solver = highs(mip_rel_gap=0.0, **search_limit(deadline.remaining))
        model.col_cost_ = costs
        solver.passModel(model)
        for factors, limit in limits:
            scale = _ROW_SCALE / max(1.0, abs(limit))
            limit_columns(solver, factors * scale, limit * scale)
        program.set_start(solver, choice)
        solver.run()
        values = np.asarray(solver.getSolution().col_value)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            break
        other = program.choice(values)
        if problem.price(other) > price * (1 + TIE_TOLERANCE):
            break
        choice = other
        limits.append((costs, float(costs @ np.round(values)) + _WHOLE))
    return choice


def _criteria(problem: Problem, program: Program, upper: _Array) -> Iterator[_Array]:
    """The price of every column in bytes, in casts, in their depths, and in the ranks of options that are not excluded."""
    nbytes, casts, depths = np.zeros((3, len(upper)))
    for (index, cast), columns in program.cast_columns.items():
        tensor = problem.tensors[index]
        nbytes[columns] = tensor.nbytes[cast] if tensor.nbytes else 0.0
        casts[columns], depths[columns] = 1.0, tensor.depth
    yield nbytes
    yield casts
    yield (depths.max(initial=0.0) - depths) * casts
    assert problem.ranks is not None
    ranks: dict[int, tuple[int, ...]] = {}
    for op, (first, options) in enumerate(zip(program.first, problem.ops, strict=True)):
        left = [option for option in range(len(options)) if upper[first + option]]
        ranks |= {first + option: problem.ranks(op, option) for option in left if len(left) > 1}
    for ranks_of_columns in zip(*ranks.values(), strict=True):
        costs = np.zeros(len(upper))
        costs[[*ranks]] = ranks_of_columns
        yield costs
