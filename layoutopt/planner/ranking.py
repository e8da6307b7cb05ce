"""The k-th cheapest plan: the cheapest one that differs from k - 1 cheaper ones in ops with a share of their time.

A choice is excluded, with all choices that are almost equal to it, by one row of the integer program:

    sum over ops of  share of the op's price in that choice * (1 if the op has the formats of that choice)
        <=  the same sum for that choice - the smallest difference

Options that differ in padding or in the formats of constants have the same formats. Options of one price count as equal, too:
the price does not depend on the formats. So choices are equal that differ only in the place of a conversion among metadata-only
ops, which have no price.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from layoutopt.planner.deadline import NO_DEADLINE, Deadline
from layoutopt.planner.formulation import Formulation
from layoutopt.planner.problem import TOLERANCE, Choice, Problem, Solution
from layoutopt.planner.program import Program
from layoutopt.planner.side_constraints import SideConstraint, cheapest_within
from layoutopt.planner.unit_signatures import storage_key

SMALLEST_DIFFERENCE = 0.05
"""The share of a plan's time in the ops that have other formats in the next plan; measurements of a run resolve about 1 %."""

LARGEST_EXCESS = 0.1
"""The relative extra price over the cheapest plan beyond which a plan is not returned."""

GAP = 5e-4
"""The relative gap of the integer program, since the proof of the last one takes long, and the price of fewer changes."""

MOST_KNOWN = 5
"""The number of known plans that are passed over: the time of the search grows with it."""

_FIRST_STEP = 0.002  # of the price of the last choice

Formats: TypeAlias = Sequence[Sequence[Hashable]]
"""The formats of every option, per op, as keys that are equal for equal formats."""


class NoFurtherPlanError(Exception):
    """There is no plan of the requested rank, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class ChoiceExclusion(SideConstraint):
    """A choice that is excluded, with all that are almost equal to it.

    Attributes:
        shares: per op, the share of each option: that of the chosen one if it has the same formats, otherwise 0.
        limit: the largest sum of the shares of another choice.
    """

    shares: tuple[tuple[float, ...], ...]
    limit: float

    @classmethod
    def of(cls, problem: Problem, formats: Formats, choice: Choice, smallest_difference: float) -> "ChoiceExclusion":
        """Exclude a choice of a problem; its prices without conversions count, and ops that have other formats to choose."""
        total = problem.price(choice) or 1.0
        shares: list[tuple[float, ...]] = []
        for options, keys, chosen in zip(problem.ops, formats, choice, strict=True):
            price = options[chosen].price
            is_kept = [
                key == keys[chosen] or isclose(each.price, price, rel_tol=TOLERANCE)
                for key, each in zip(keys, options, strict=True)
            ]
            share = 0.0 if all(is_kept) else price / total
            shares.append(tuple(share * kept for kept in is_kept))
        return cls(tuple(shares), sum(map(max, shares)) - smallest_difference)

    @override
    def row(self, program: Program) -> tuple[Any, float]:
        factors = np.zeros(len(program.prices))
        factors[: program.binaries] = [share for shares in self.shares for share in shares]
        return factors, self.limit

    @override
    def allows(self, choice: Choice) -> bool:
        kept = sum(shares[option] for shares, option in zip(self.shares, choice, strict=True))
        return kept <= self.limit + TOLERANCE


def solution_of_rank(
    problem: Problem,
    formats: Formats,
    cheapest: Solution,
    rank: int,
    limits: Sequence[SideConstraint] = (),
    deadline: Deadline = NO_DEADLINE,
    *,
    is_known: Callable[[Choice], bool] = lambda choice: False,
    smallest_difference: float = SMALLEST_DIFFERENCE,
    largest_excess: float = LARGEST_EXCESS,
    gap: float = GAP,
) -> tuple[Solution, int]:
    """The cheapest choice that differs from all earlier ones, with the lower bound of the cheapest one, and its rank.

    Args:
        problem: the planning problem.
        formats: the formats of its options.
        cheapest: its solution.
        rank: the number of cheaper choices to pass over.
        limits: further constraints, which the cheapest choice meets.
        deadline: the end of the time for the search.
        is_known: whether a choice is passed over, too; at most `MOST_KNOWN` are.
        smallest_difference: the share of the price of each earlier choice in the ops that have other formats.
        largest_excess: the largest relative extra price over the cheapest choice.
        gap: half of the largest relative extra price over the cheapest choice that meets the constraints.

    Raises:
        NoFurtherPlanError: there is no such choice, or time runs out before it is proven.
    """
    constraints, found, number = [*limits], cheapest, 0
    ceiling = cheapest.price * (1 + largest_excess)
    while number < rank or is_known(found.choice):
        if number == rank + MOST_KNOWN:
            raise NoFurtherPlanError(f"the {MOST_KNOWN} cheapest plans are those of earlier variants")
        constraints.append(ChoiceExclusion.of(problem, formats, found.choice, smallest_difference))
        found = _cheapest_from(problem, constraints, found, ceiling, gap, deadline)
        if found.price > ceiling:
            raise NoFurtherPlanError(f"no further plan is estimated to take at most {largest_excess:.0%} more time")
        if found.price - found.lower_bound > (gap + TOLERANCE) * found.price:
            raise NoFurtherPlanError("no further plan was found in the time for planning")
        found = _with_fewest_changes(problem, constraints, found, cheapest.choice, gap, deadline)
        number += 1
    return Solution(found.choice, found.price, cheapest.lower_bound, False).with_optimality(), number


def _cheapest_from(
    problem: Problem,
    constraints: Sequence[SideConstraint],
    last: Solution,
    ceiling: float,
    gap: float,
    deadline: Deadline,
) -> Solution:
    """The cheapest choice under constraints with the bound on its price; the price is infinite if it exceeds the ceiling.

    Ceilings slightly above the price of the last choice come first, since most options cannot be in a choice below them.
    """
    step, price = _FIRST_STEP * last.price, last.price
    while True:
        upper = min(ceiling, price + step)
        choice, bound = cheapest_within(problem, constraints, last.choice, upper, deadline.remaining, gap * price)
        is_above = bound >= upper * (1 - TOLERANCE)
        if is_above and upper == ceiling:
            return Solution(choice, inf, ceiling, False)
        if not is_above:
            is_allowed = all(each.allows(choice) for each in constraints)
            return Solution(choice, problem.price(choice) if is_allowed else price, bound if is_allowed else 0.0, False)
        step *= 2


def _with_fewest_changes(
    problem: Problem,
    constraints: Sequence[SideConstraint],
    found: Solution,
    cheapest: Choice,
    gap: float,
    deadline: Deadline,
) -> Solution:
    """The solution with the options of the cheapest choice for ops that need no other ones.

    An option that differs costs a little more, and options that neither choice has cost more than the ceiling.
    """
    extra = gap * found.price / len(cheapest)
    ceiling = found.price + gap * found.price
    ops = [
        [
            replace(each, price=each.price + {new: extra, old: 0.0}.get(option, ceiling))
            for option, each in enumerate(options)
        ]
        for options, old, new in zip(problem.ops, cheapest, found.choice, strict=True)
    ]
    choice, _ = cheapest_within(replace(problem, ops=ops), constraints, found.choice, ceiling, deadline.remaining)
    return replace(found, choice=choice, price=problem.price(choice))


def formats_of_options(formulation: Formulation) -> Formats:
    """The formats of the tensors that every option reads and produces, without padding."""
    keys = {
        number: [storage_key(value, storage) for storage in formulation.storages[value]]
        for value, number in formulation.index.items()
    }
    return [
        [
            tuple(keys[tensor][state] for tensor, state in (*option.result_states, *option.operand_states))
            for option in options
        ]
        for options in formulation.problem.ops
    ]


__all__ = [
    "ChoiceExclusion",
    "Formats",
    "NoFurtherPlanError",
    "formats_of_options",
    "solution_of_rank",
]
