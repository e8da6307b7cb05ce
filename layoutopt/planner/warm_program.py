"""The solved linear program of a planning problem, which continues from its optimal basis after constraints are added.

An edit fixes some columns at 0. The optimal basis stays dual feasible, so that the dual simplex method needs few iterations.
The bound of the linear program proves the choice; if it does not, the caller has to solve the edited problem from the start.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import highspy
import numpy as np
from typing_extensions import override

from layoutopt.planner.problem import Problem, Solution
from layoutopt.planner.problem_edit import Cast, ProblemEdit
from layoutopt.planner.program import Program

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
        self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        settings: dict[str, Any] = {"output_flag": False, "threads": 1, "random_seed": 0, "presolve": "off"}
        for name, setting in settings.items():
            self.solver.setOptionValue(name, setting)
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


__all__ = ["WarmProgram"]
