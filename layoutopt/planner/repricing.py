"""Prices of the best choices of an edited planning problem, relative to the best choice of the problem itself.

Only the connected components that an edit touches are solved again, within `TOLERANCE`, unless time runs out.
"""

from collections.abc import Sequence
from math import inf

from layoutopt.planner.problem import (
    TIE_TOLERANCE,
    TOLERANCE,
    Choice,
    Deadline,
    Problem,
    ProblemEdit,
    connected,
)
from layoutopt.planner.program import Limit
from layoutopt.planner.solver import solve, solve_within
from layoutopt.record import Record


class Repriced(Record):
    """The best choice of an edited problem.

    Attributes:
        extra: its price minus that of the best choice of the problem; infinite if no choice is possible.
        least_extra: a lower bound on `extra`; equal to it if the choice is proven optimal.
        choice: the number of the chosen option, per op of the problem.
    """

    extra: float
    least_extra: float
    choice: Choice

    @property
    def is_proven(self) -> bool:
        """Whether no choice of the edited problem is cheaper."""
        return self.extra == self.least_extra


class Repricer:
    """Prices edits of a planning problem.

    Args:
        problem: the planning problem.
        choice: its best choice.
        time_limit: seconds for all edits together; None for no limit.
        limits: the limits of guards, which the choices of edited problems have to meet, too.
    """

    def __init__(
        self,
        problem: Problem,
        choice: Sequence[int],
        time_limit: float | None = None,
        limits: Sequence[Limit] = (),
    ) -> None:
        self.problem = problem
        self.limits = limits
        self.choice = tuple(choice)
        self.price = problem.price(choice)
        self._deadline = Deadline(time_limit)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit has passed."""
        return self._deadline.has_passed

    def reprice(self, edit: ProblemEdit) -> Repriced:
        """The best choice of the problem after an edit, and its extra price; a difference within the tolerance is none."""
        edited = edit.applied(self.problem)
        if edited.lower_bound() == inf:
            return Repriced(inf, inf, self.choice)
        if self.limits:
            limits = [Limit(edit.applied(limit.problem), limit.price) for limit in self.limits]
            found = solve_within(edited, limits, self.choice, self._deadline)
        else:
            found = solve(edited, self.choice, self._deadline, edit.ops(self.problem))
        if found.price == inf:
            is_proven = found.lower_bound == inf or not (self.limits or self.is_out_of_time)
            return Repriced(inf, inf if is_proven else 0.0, self.choice)
        extra, least = found.price - self.price, found.lower_bound - self.price
        if abs(extra) <= TOLERANCE * self.price:
            extra = max(0.0, extra) if edit.only_adds_constraints else min(0.0, extra)
        return Repriced(extra, extra if found.optimal else min(least, extra), found.choice)

    def nearest(self, found: Repriced, edit: ProblemEdit) -> Choice:
        """A choice of the price of a repriced one that differs from the best choice of the problem in fewer places.

        Solutions of one price are many, and a solver returns any of them. Groups of ops that differ, and that tensors connect,
        take their options in the best choice again, one group after the other, where that costs nothing.

        Args:
            found: the best choice after an edit.
            edit: the edit, which only adds constraints.
        """
        edited, choice = edit.applied(self.problem), found.choice
        price = edited.price(choice)
        pairs = enumerate(zip(choice, self.choice, strict=True))
        changed = ((op, self.problem.ops[op][option].tensors) for op, (option, own) in pairs if option != own)
        for ops, _ in sorted(connected(changed), key=lambda each: (len(each[0]), each[0])):
            own = set(ops)
            attempt = tuple(self.choice[op] if op in own else option for op, option in enumerate(choice))
            its_price = edited.price(attempt)
            if its_price <= price * (1 + TIE_TOLERANCE) and all(limit.allows(attempt) for limit in self.limits):
                choice, price = attempt, its_price
        return choice
