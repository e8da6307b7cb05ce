"""Prices of the best choices of an edited planning problem, relative to the best choice of the problem itself.

Only the connected components that an edit touches are solved again. An edit that only adds constraints fixes columns of the
linear program of its component at 0: the optimal basis stays dual feasible, so that the dual simplex method needs few
iterations from there. Where that does not prove a choice, and for all other edits, the edited component is solved from the
start, with the integer program. Both prove the price within `TOLERANCE`, unless time runs out.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import highspy
import numpy as np

from layoutopt.planner.problem import (
    TIE_TOLERANCE,
    TOLERANCE,
    Choice,
    Deadline,
    Parts,
    Problem,
    ProblemEdit,
    Solution,
    connected,
)
from layoutopt.planner.program import LINEAR, GuardLimit, Program, cheapest_within, highs
from layoutopt.planner.solver import PRICE_RANGE, solve

_PRICE_FACTOR = 4.0  # the price limit of a linear program, as a multiple of the excess of the best choice


class WarmProgram:
    """The solved linear program of a component, which continues from its optimal basis after an edit.

    Args:
        parts: the components of the problem.
        component: the number of the component.
        choice: the best choice of the problem.
    """

    def __init__(self, parts: Parts, component: int, choice: Choice) -> None:
        self.ops, self.tensors = parts.components[component]
        problem = parts.part(self.ops, self.tensors)
        self.best, self.lower = problem.price([choice[op] for op in self.ops]), problem.lower_bound()
        excess = self.best - self.lower
        self.program = Program(problem, _PRICE_FACTOR * (excess or self.best) or 1.0)
        self.solver = highs(**LINEAR)
        self.solver.passModel(self.program.model(integral=False))
        self.solver.run()
        self.basis = self.solver.getBasis()

    def solve(self, edit: ProblemEdit, time_limit: float | None) -> tuple[Choice, float] | None:
        """A choice of the component after an edit, and a lower bound on its extra price; None if there is none."""
        program, solver = self.program, self.solver
        upper = program.upper.copy()
        upper[list(self._excluded_columns(edit))] = 0.0
        if time_limit is not None:
            solver.setOptionValue("time_limit", float(solver.getRunTime()) + time_limit)
        solver.changeColsBounds(len(upper), np.arange(len(upper), dtype=np.int32), np.zeros(len(upper)), upper)
        solver.setBasis(self.basis)
        solver.run()
        choice = program.found(solver)
        if choice is None or solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        multipliers = program.valid(np.asarray(solver.getSolution().row_dual))
        return choice, self.lower + program.limit * program.bound(multipliers, upper) - self.best

    def _excluded_columns(self, edit: ProblemEdit) -> Iterator[int]:
        """The columns that an edit excludes."""
        for tensor, cast in edit.forbidden_casts:
            yield from self.program.cast_columns.get((self.tensors.index(tensor), cast), ())
        for op, allowed in edit.allowed_options.items():
            if op in self.ops:
                position = self.ops.index(op)
                options = range(len(self.program.problem.ops[position]))
                yield from (self.program.first[position] + option for option in options if option not in allowed)


@dataclass(frozen=True, slots=True)
class Repriced:
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
        limits: Sequence[GuardLimit] = (),
    ) -> None:
        self.problem = problem
        self.limits = limits
        self.choice = tuple(choice)
        self.price = problem.price(choice)
        self.warm_solves = 0
        self.cold_solves = 0
        self._deadline = Deadline(time_limit)
        self._parts = Parts(problem)
        self._components = {op: number for number, (ops, _) in enumerate(self._parts.components) for op in ops}
        self._warm: dict[int, WarmProgram] = {}

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit has passed."""
        return self._deadline.has_passed

    def reprice(self, edit: ProblemEdit) -> Repriced:
        """The best choice of the problem after an edit, and its extra price; a difference within the tolerance is none."""
        edited = edit.applied(self.problem)
        if edited.lower_bound() == inf:
            return Repriced(inf, inf, self.choice)
        ops = edit.ops(self.problem)
        found = self._solve_guarded(edited, edit) if self.limits else self._solve_warm(edited, edit, ops)
        if found is None:
            self.cold_solves += 1
            found = solve(edited, self.choice, self._deadline.remaining, ops)
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
            attempt = self._joined(choice, ops, [self.choice[op] for op in ops])
            its_price = edited.price(attempt)
            if its_price <= price * (1 + TIE_TOLERANCE) and all(limit.allows(attempt) for limit in self.limits):
                choice, price = attempt, its_price
        return choice

    def _solve_warm(self, edited: Problem, edit: ProblemEdit, ops: Collection[int]) -> Solution | None:
        """The best choice after an edit that adds constraints to one component; None if its linear program proves none."""
        components = {self._components[op] for op in ops if op in self._components}
        if len(components) != 1 or not edit.only_adds_constraints:
            return None
        (component,) = components
        if component not in self._warm:
            self._warm[component] = WarmProgram(self._parts, component, self.choice)
        warm = self._warm[component]
        found = warm.solve(edit, self._deadline.remaining)
        if found is None:
            return None
        choice = self._joined(self.choice, warm.ops, found[0])
        solution = Solution(choice, edited.price(choice), self.price + found[1], False).with_optimality()
        self.warm_solves += solution.optimal
        return solution if solution.optimal else None

    def _solve_guarded(self, edited: Problem, edit: ProblemEdit) -> Solution:
        """Solve the whole edited problem within the limits of the guards."""
        self.cold_solves += 1
        limits = [GuardLimit(edit.applied(limit.problem), limit.price) for limit in self.limits]
        found = Solution(self.choice, inf, 0.0, False)
        ceiling, lower = edited.upper_bound(), edited.lower_bound()
        while True:  # the tolerances of the solver are relative to the ceiling
            choice, bound = cheapest_within(edited, limits, found.choice, ceiling, self._deadline.remaining)
            price = edited.price(choice) if all(limit.allows(choice) for limit in limits) else inf
            price, choice = min((found.price, found.choice), (price, choice))
            found = Solution(choice, price, bound, False).with_optimality()
            is_exact = price - lower >= (ceiling - lower) / PRICE_RANGE
            is_least = price == inf or price >= ceiling * (1 - TOLERANCE) or (found.optimal and is_exact)
            if is_least or self.is_out_of_time:
                return found
            ceiling = price

    @staticmethod
    def _joined(choice: Choice, ops: Sequence[int], options: Sequence[int]) -> Choice:
        """A choice with other options for some ops."""
        others = dict(zip(ops, options, strict=True))
        return tuple(others.get(op, option) for op, option in enumerate(choice))
