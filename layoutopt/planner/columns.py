"""Column generation: solves a planning problem with a part of its options, and adds those that may improve the choice.

The linear program of the part gives a lower bound on the price of every choice with a given option (`Potentials`). If some
option is cheaper than all options of its op in the part, the linear program over all options may be cheaper, and these options
enter. Then every option enters whose bound is at most the price of the best choice (reduced-cost fixing: no other option is in
a better choice, or in one of the same price), and the integer program is solved again, until none is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import numpy as np

from layoutopt.planner.potentials import Bound, Potentials
from layoutopt.planner.problem import TIE_TOLERANCE, Choice, Option, Problem, Solution
from layoutopt.planner.program import Program, Run

_PRICING_ROUNDS = 6  # rounds in which only options enter that improve the linear program

Relaxed: TypeAlias = tuple[Program, Run]
Solved: TypeAlias = tuple[Solution, Relaxed | None]
"""The solution of a problem, and its last linear program with its run, if there is one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A problem with a part of the options of another one, and its solution.

    Attributes:
        problem: the problem.
        active: the numbers of its options in the other problem, per op; None if it is the same problem.
        solution: its solution, with a lower bound on the price of every choice of the other problem.
        relaxed: its linear program, if there is one.
    """

    problem: Problem
    active: list[list[int]] | None
    solution: Solution
    relaxed: Relaxed | None

    @classmethod
    def whole(cls, problem: Problem, solution: Solution, relaxed: Relaxed | None) -> "Part":
        """The part that has all options."""
        return cls(problem, None, solution, relaxed)

    def renumbered(self, choice: Choice) -> Choice:
        """The choice with the numbers of the other problem."""
        if self.active is None:
            return choice
        return tuple(numbers[option] for numbers, option in zip(self.active, choice, strict=True))


def solve_with_columns(
    problem: Problem, start: Sequence[int], solved: Callable[[Problem, Sequence[int]], Solved]
) -> Part:
    """The part of a problem with the offered options and those that entered, and its solution.

    Args:
        problem: a planning problem with options that are not offered.
        start: a feasible choice.
        solved: solves a part, from a feasible choice of it.
    """
    active = [
        list(dict.fromkeys([*range(problem.offered.get(op, len(options))), start[op]]))
        for op, options in enumerate(problem.ops)
    ]
    potentials = Potentials(problem)
    useful = [_undominated(options, numbers) for options, numbers in zip(problem.ops, active, strict=True)]
    choice, rounds = tuple(start), 0
    while True:
        part = _restricted(problem, active)
        first = [numbers.index(option) for numbers, option in zip(active, choice, strict=True)]
        solution, relaxed = solved(part, first)
        result = Part(part, [list(numbers) for numbers in active], solution, relaxed)
        choice = result.renumbered(solution.choice)
        # The limit is infinite if no choice of the part is possible: then all options enter.
        limit = solution.price * (1 + TIE_TOLERANCE)
        bounds, least = _bounds(potentials, result, useful, limit)
        rounds += 1
        entering = _outside(active, [prices <= limit for prices in least])
        if not entering or not (solution.optimal or solution.price == inf):
            return _with_bound(result, bounds, least, active)
        improving = set(_improving(bounds, active)).intersection(entering) if rounds <= _PRICING_ROUNDS else ()
        for op, option in sorted(improving) or entering:
            active[op].append(option)


def _undominated(options: Sequence[Option], active: Sequence[int]) -> Any:
    """Whether each option is active, or cheaper than all active ones with its states."""
    prices: dict[object, float] = {}
    for option in (options[number] for number in active):
        states = option.result_states, option.operand_states
        prices[states] = min(option.price, prices.get(states, inf))
    found = np.asarray([each.price < prices.get((each.result_states, each.operand_states), inf) for each in options])
    found[list(active)] = True
    return found


def _restricted(problem: Problem, active: Sequence[Sequence[int]]) -> Problem:
    """The problem with some options of each op."""
    options = [[each[number] for number in numbers] for each, numbers in zip(problem.ops, active, strict=True)]
    numbers, ranks = [tuple(each) for each in active], problem.ranks
    renumbered = None if ranks is None else lambda op, option: ranks(op, numbers[op][option])
    return Problem(options, problem.tensors, renumbered)


def _bounds(potentials: Potentials, part: Part, useful: Sequence[Any], limit: float) -> tuple[list[Bound], list[Any]]:
    """Bounds until one proves that no option outside of the part is needed, and the least price with each option, per op."""
    assert part.active is not None
    ceiling = min(part.solution.price, part.problem.upper_bound())
    if part.relaxed is None:  # the price is proven without a program, or there is no time
        program = Program(part.problem, 1.0)
        multipliers = np.zeros(len(program.rows.lower))
    else:
        program, multipliers = part.relaxed[0], part.relaxed[1].multipliers
    found: list[Bound] = []
    least = [np.where(each, -inf, inf) for each in useful]
    for bound in potentials.bounds(program, multipliers, ceiling):
        found.append(bound)
        least = [
            np.maximum(prices, bound.price + costs) for prices, costs in zip(least, bound.reduced_costs, strict=True)
        ]
        if not _outside(part.active, [prices <= limit for prices in least]):
            break
    return found, least


def _improving(bounds: Sequence[Bound], active: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The options outside of the part that are cheaper than all options of their op in it, under the largest bound."""
    costs = max(bounds, key=lambda bound: bound.price).reduced_costs
    return _outside(active, [each < each[numbers].min() for each, numbers in zip(costs, active, strict=True)])


def _outside(active: Sequence[Sequence[int]], chosen: Sequence[Any]) -> list[tuple[int, int]]:
    """The chosen options that are not in the part, as pairs of an op and an option."""
    found = []
    for op, (numbers, each) in enumerate(zip(active, chosen, strict=True)):
        found += [(op, option) for option in np.nonzero(each)[0].tolist() if option not in numbers]
    return found


def _with_bound(part: Part, bounds: Sequence[Bound], least: Sequence[Any], active: Sequence[Sequence[int]]) -> Part:
    """The part, its solution with a lower bound on the price of all choices of the problem."""
    solution = part.solution
    others = [np.delete(prices, numbers) for prices, numbers in zip(least, active, strict=True)]
    lower = min([solution.lower_bound, *(float(each.min()) for each in others if len(each))])
    lower = max([lower, *(bound.price for bound in bounds)])
    known = Solution(solution.choice, solution.price, min(lower, solution.price), False).with_optimality()
    return Part(part.problem, part.active, known, part.relaxed)


__all__ = ["Part", "Relaxed", "Solved", "solve_with_columns"]
