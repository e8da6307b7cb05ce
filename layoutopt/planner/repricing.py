"""Prices of the best choices of an edited planning problem, relative to the best choice of the problem itself.

Only the connected components that an edit touches are solved again. An edit that only adds constraints continues from the
solved linear program of its component (`WarmProgram`). Where that does not prove a choice, and for all other edits, the edited
component is solved from the start, with the integer program. Both prove the price within `TOLERANCE`, unless time runs out.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import highspy
import numpy as np
from typing_extensions import override

from layoutopt.planner.problem import (
    TIE_TOLERANCE,
    TOLERANCE,
    Cast,
    Choice,
    Deadline,
    Parts,
    Problem,
    ProblemEdit,
    Solution,
    Tensor,
    connected,
)
from layoutopt.planner.program import LINEAR, GuardLimit, Program, cheapest_within, highs
from layoutopt.planner.solver import solve

# --- Among the choices of one price, one that differs from a given choice in few places ---
#
# Solutions of one price are many, and a solver returns any of them. Groups of ops that differ from the given choice, and that
# tensors connect, take their options in the given choice again, one group after the other, where that costs nothing.


class NearestChoice:
    """Sets a choice back to a given one, where that costs nothing.

    Args:
        problem: the planning problem.
        given: the choice to approach.
    """

    def __init__(self, problem: Problem, given: Choice) -> None:
        self.problem = problem
        self.given = given
        self._writers: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        for op, options in enumerate(problem.ops):
            for tensor, _ in options[0].result_states:
                self._writers[tensor] = op
            for tensor in dict.fromkeys(tensor for tensor, _ in options[0].operand_states):
                self._readers.setdefault(tensor, []).append(op)

    def approach(self, choice: Choice, edit: ProblemEdit) -> Choice:
        """A choice of the price of `choice`, or less, that differs from the given one in at most as many ops.

        Args:
            choice: a choice that an edit permits.
            edit: constraints that the result meets, too.
        """
        found = list(choice)
        for ops, tensors in self._differing(choice):
            attempt = list(found)
            for op in ops:
                attempt[op] = self.given[op]
            before, after = (self._price(each, ops, tensors, edit) for each in (found, attempt))
            is_permitted = all(edit.allows(op, self.given[op]) for op in ops)
            if is_permitted and after <= before + TIE_TOLERANCE * abs(before):
                found = attempt
        return tuple(found)

    def _differing(self, choice: Choice) -> list[tuple[list[int], list[int]]]:
        """The ops that differ from the given choice, in groups that tensors connect, and these tensors; small groups first."""
        pairs = enumerate(zip(choice, self.given, strict=True))
        changed = ((op, self.problem.ops[op][option].tensors) for op, (option, own) in pairs if option != own)
        return sorted(connected(changed), key=lambda each: (len(each[0]), each[0]))

    def _price(self, choice: Sequence[int], ops: Collection[int], tensors: Collection[int], edit: ProblemEdit) -> float:
        """The price of some ops and of the casts of some tensors under a choice; infinite if one is impossible."""
        price = sum(self.problem.ops[op][choice[op]].price for op in ops)
        for number in tensors:
            tensor = self.problem.tensors[number]
            source, states = self._states(number, tensor, choice)
            casts = set()
            for state in states:
                cast = tensor.casts.get((source, state), -1)
                if cast == -1 or (number, cast) in edit.forbidden_casts:
                    return inf
                casts.add(cast)
            price += sum(tensor.prices[cast] for cast in sorted(each for each in casts if each is not None))
        return price

    def _states(self, number: int, tensor: Tensor, choice: Sequence[int]) -> tuple[int, set[int]]:
        """The state in which a tensor is produced, and those that are required."""
        states = set(tensor.required_states)
        for op in self._readers.get(number, ()):
            states |= {state for read, state in self.problem.ops[op][choice[op]].operand_states if read == number}
        if number not in self._writers:
            assert tensor.source_state is not None
            return tensor.source_state, states
        writer = self._writers[number]
        return dict(self.problem.ops[writer][choice[writer]].result_states)[number], states


# --- warm program ---
#
# The solved linear program of a planning problem, which continues from its optimal basis after constraints are added.
#
# An edit fixes some columns at 0. The optimal basis stays dual feasible, so that the dual simplex method needs few
# iterations. The bound of the linear program proves the choice; if it does not, the caller has to solve the edited problem
# from the start.


_PRICE_FACTOR = 4.0  # the price limit of the program, as a multiple of the excess of the best choice


class _TracedProgram(Program):
    """A linear program with the columns of every cast.

    Attributes:
        cast_columns: the columns that are a cast.
    """

    def __init__(self, problem: Problem, limit: float) -> None:
        self.cast_columns: dict[Cast, list[int]] = {}
        super().__init__(problem, limit)

    @override
    def _cast_column(self, index: int, cast: int) -> int:
        column = super()._cast_column(index, cast)
        self.cast_columns.setdefault((index, cast), []).append(column)
        return column


class WarmProgram:
    """The linear program of a component, solved, which continues from its optimal basis after an edit.

    Args:
        problem: the planning problem of the component.
        choice: its best choice.
    """

    def __init__(self, problem: Problem, choice: Sequence[int]) -> None:
        self.problem = problem
        self.best = problem.price(choice)
        self.lower = problem.lower_bound()
        self.program = _TracedProgram(
            problem, _PRICE_FACTOR * (self.best - self.lower) or _PRICE_FACTOR * self.best or 1.0
        )
        self.solver = highs(**LINEAR)
        self.solver.passModel(self.program.model(integral=False))
        self.solver.run()
        self.basis = self.solver.getBasis()

    def solve(self, edit: ProblemEdit, time_limit: float | None) -> Solution | None:
        """The best choice after an edit; None if the linear program does not prove it."""
        fixed = np.asarray(sorted(self._fixed_columns(edit)), dtype=np.int32)
        count, zeros = len(fixed), np.zeros(len(fixed))
        if time_limit is not None:
            self.solver.setOptionValue("time_limit", float(self.solver.getRunTime()) + time_limit)
        self.solver.changeColsBounds(count, fixed, zeros, zeros)
        self.solver.setBasis(self.basis)
        self.solver.run()
        is_optimal = self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        found = self._proven(edit, fixed) if is_optimal else None
        self.solver.changeColsBounds(count, fixed, zeros, np.ones(count))
        return found

    def _proven(self, edit: ProblemEdit, fixed: Any) -> Solution | None:
        solution = self.solver.getSolution()
        program = self.program
        choice = program.choice(np.asarray(solution.col_value[: program.binaries]))
        multipliers = program.valid(np.asarray(solution.row_dual))
        bound = self.lower + program.limit * program.bound(multipliers, fixed)
        casts = self.problem.required_casts(choice)
        is_legal = (
            casts is not None
            and edit.forbidden_casts.isdisjoint(casts)
            and all(map(edit.allows, range(len(choice)), choice))
        )
        price = self.problem.price(choice) if is_legal else inf
        solved = Solution(choice, price, bound, False).with_optimality()
        return solved if solved.optimal else None

    def _fixed_columns(self, edit: ProblemEdit) -> Iterator[int]:
        """The columns that an edit fixes at 0."""
        for cast in edit.forbidden_casts:
            yield from self.program.cast_columns.get(cast, ())
        for op, allowed in edit.allowed_options.items():
            yield from (
                self.program.first[op] + option for option in range(len(self.problem.ops[op])) if option not in allowed
            )


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
        self.warm_solves = 0
        self.cold_solves = 0
        self._deadline = Deadline(time_limit)
        self._parts = Parts(problem)
        self._of_op: dict[int, int] = {}
        self._of_tensor: dict[int, int] = {}
        for each, (ops, tensors) in enumerate(self._parts.components):
            self._of_op.update(dict.fromkeys(ops, each))
            self._of_tensor.update(dict.fromkeys(tensors, each))
        self._warm: dict[int, WarmProgram] = {}

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit has passed."""
        return self._deadline.has_passed

    def reprice(self, edit: ProblemEdit) -> Repriced:
        """The best choice of the problem after an edit, and its extra price."""
        touched = {self._of_tensor[tensor] for tensor in edit.tensors if tensor in self._of_tensor}
        touched |= {self._of_op[op] for op in edit.allowed_options if op in self._of_op}
        if any(not edit.allows(op, 0) for op in edit.allowed_options if op not in self._of_op):
            return Repriced(inf, inf, self.choice)
        if self.limits:
            return self._reprice_guarded(edit)
        loose = edit.tensors - self._of_tensor.keys()
        if len(touched) == 1 and not loose and edit.only_adds_constraints:
            return self._reprice_warm(next(iter(touched)), edit)
        ops = sorted(op for each in touched for op in self._parts.components[each][0])
        tensors = sorted({tensor for each in touched for tensor in self._parts.components[each][1]} | loose)
        return self._reprice_cold(ops, tensors, edit)

    def nearest(self, found: Repriced, edit: ProblemEdit) -> Choice:
        """A choice of the price of a repriced one that differs from the best choice of the problem in fewer places.

        Args:
            found: the best choice after an edit.
            edit: the edit, which only adds constraints.
        """
        nearest = self._nearest.approach(found.choice, edit)
        return nearest if all(limit.allows(nearest) for limit in self.limits) else found.choice

    @cached_property
    def _nearest(self) -> NearestChoice:
        return NearestChoice(self.problem, self.choice)

    def _reprice_warm(self, component: int, edit: ProblemEdit) -> Repriced:
        ops, tensors = self._parts.components[component]
        if component not in self._warm:
            problem = self._parts.part(ops, tensors)
            self._warm[component] = WarmProgram(problem, [self.choice[op] for op in ops])
        warm = self._warm[component]
        found = warm.solve(_renumbered(edit, ops, tensors), self._deadline.remaining)
        if found is not None:
            self.warm_solves += 1
            return self._repriced(found, warm.best, self._joined(ops, found.choice), edit)
        return self._reprice_cold(ops, tensors, edit)

    def _reprice_cold(self, ops: Sequence[int], tensors: Sequence[int], edit: ProblemEdit) -> Repriced:
        """Solve the edited problem of some ops and tensors from the start."""
        self.cold_solves += 1
        before = self._parts.part(ops, tensors).price([self.choice[op] for op in ops])
        problem = self._parts.part(ops, tensors, edit)
        active, start = self._start(ops, edit)
        found = solve(problem, start, self._deadline.remaining)
        choice = [numbers[option] for numbers, option in zip(active, found.choice, strict=True)]
        return self._repriced(found, before, self._joined(ops, choice), edit)

    def _reprice_guarded(self, edit: ProblemEdit) -> Repriced:
        """Solve the whole edited problem within the limits of the guards."""
        self.cold_solves += 1
        ops = sorted(op for each, _ in self._parts.components for op in each)
        tensors = range(len(self.problem.tensors))
        problem = self._parts.part(ops, tensors, edit)
        limits = []
        for limit in self.limits:
            own = self._parts.part(ops, tensors, prices=limit.problem).price([self.choice[op] for op in ops])
            constant = limit.problem.price(self.choice) - own
            limits.append(GuardLimit(self._parts.part(ops, tensors, edit, limit.problem), limit.price - constant))
        active, start = self._start(ops, edit)
        choice, bound = cheapest_within(problem, limits, tuple(start), problem.upper_bound(), self._deadline.remaining)
        if not all(limit.allows(choice) for limit in limits):
            return Repriced(inf, inf if bound == inf else 0.0, self.choice)
        found = Solution(choice, problem.price(choice), bound, False).with_optimality()
        if not found.optimal:  # the tolerances of the solver are relative to the ceiling
            choice, bound = cheapest_within(problem, limits, choice, found.price, self._deadline.remaining)
            found = Solution(choice, problem.price(choice), max(bound, found.lower_bound), False).with_optimality()
        before = self._parts.part(ops, tensors).price([self.choice[op] for op in ops])
        numbers = [options[option] for options, option in zip(active, choice, strict=True)]
        return self._repriced(found, before, self._joined(ops, numbers), edit)

    def _start(self, ops: Sequence[int], edit: ProblemEdit) -> tuple[list[list[int]], list[int]]:
        """The options that an edit leaves to some ops, and the position of the best choice's one among them, or the first."""
        active = [[option for option in range(len(self.problem.ops[op])) if edit.allows(op, option)] for op in ops]
        start = [
            numbers.index(self.choice[op]) if self.choice[op] in numbers else 0
            for op, numbers in zip(ops, active, strict=True)
        ]
        return active, start

    def _repriced(self, found: Solution, before: float, choice: Choice, edit: ProblemEdit) -> Repriced:
        """The extra price of the solution of an edited problem; a difference within the tolerance is none."""
        if found.price == inf:
            return Repriced(inf, 0.0 if self.is_out_of_time else inf, self.choice)
        extra, least = found.price - before, found.lower_bound - before
        if abs(extra) <= TOLERANCE * before:
            extra = max(0.0, extra) if edit.only_adds_constraints else min(0.0, extra)
        return Repriced(extra, extra if found.optimal else min(least, extra), choice)

    def _joined(self, ops: Sequence[int], choice: Sequence[int]) -> Choice:
        found = list(self.choice)
        for op, option in zip(ops, choice, strict=True):
            found[op] = option
        return tuple(found)


def _renumbered(edit: ProblemEdit, ops: Sequence[int], tensors: Sequence[int]) -> ProblemEdit:
    """An edit that only adds constraints, with the numbers of ops and tensors in a component."""
    number_of_op = {op: position for position, op in enumerate(ops)}
    number_of_tensor = {tensor: position for position, tensor in enumerate(tensors)}
    return ProblemEdit(
        frozenset((number_of_tensor[tensor], cast) for tensor, cast in edit.forbidden_casts),
        {number_of_op[op]: allowed for op, allowed in edit.allowed_options.items() if op in number_of_op},
    )
