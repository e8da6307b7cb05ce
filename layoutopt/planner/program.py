"""The linear program of a planning problem, for HiGHS.

    x[op, option]            binary: the op takes the option; exactly one per op
    w[use, from, to]         flow: the tensor is produced in state `from`, and the use requires state `to`
                             sum over `to` = x of the producer;  sum over `from` = x of the consumer
    y[tensor, cast]          the cast is required:  y >= sum of the flows of each single use that require it

The flows make the relaxation tight: with two states per tensor it is a cut problem and its vertices are integral. The
objective is the excess over the cheapest option of every op.

The bound is independent of the solver's tolerances: with all variables in [0, 1], any multipliers u of the rows prove

    min cx  >=  sum of u_i * (the bound of row i that u_i pushes against)  +  sum of min(0, (c - uA)_j)
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import highspy
import numpy as np
from msgspec import Struct, field

from layoutopt.planner.problem import TOLERANCE, Cast, Choice, Problem, Tensor, search_limit
from layoutopt.record import Record


def highs(**settings: Any) -> Any:
    """A solver of one thread whose result does not depend on the machine."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, setting in {"output_flag": False, "threads": 1, "random_seed": 0, **settings}.items():
        solver.setOptionValue(name, setting)
    return solver


class _Rows(Struct):
    """A sparse matrix with bounds on its rows, built row by row."""

    starts: "array[int]" = field(default_factory=lambda: array("i", [0]))
    columns: "array[int]" = field(default_factory=lambda: array("i"))
    factors: "array[float]" = field(default_factory=lambda: array("d"))
    lower: "array[float]" = field(default_factory=lambda: array("d"))
    upper: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, plus: Sequence[int], minus: Sequence[int], lower: float, upper: float) -> None:
        """lower <= sum of some columns - sum of others <= upper."""
        self.columns.extend((*plus, *minus))
        self.factors.extend((*(1.0,) * len(plus), *(-1.0,) * len(minus)))
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)


class Run(NamedTuple):
    """The result of a solver.

    Attributes:
        choice: a choice, the start if none is found in time.
        bound: a lower bound on the excess of all choices.
        multipliers: a multiplier of every row; zeros after an integer program.
    """

    choice: tuple[int, ...]
    bound: float
    multipliers: Any


class Program:
    """The linear program of a planning problem.

    Args:
        problem: the planning problem.
        limit: the excess of a known choice. A better choice contains no larger price, so that prices are clamped to the limit.
            All prices are divided by it, because the solver has absolute tolerances.

    Attributes:
        excesses: the price of each column, without the clamp.
        rows: the rows; that of each op comes before those of tensors.
        cast_columns: the columns that are a cast.
        first: the column of the first option of each op.
        binaries: the number of columns that are options.
    """

    def __init__(self, problem: Problem, limit: float) -> None:
        self.problem = problem
        self.limit = limit
        self.excesses: array[float] = array("d")
        self.rows = _Rows()
        self.cast_columns: dict[Cast, list[int]] = {}
        self.first: list[int] = []
        for options in problem.ops:
            cheapest = min(option.price for option in options)
            self.first.append(len(self.excesses))
            columns = [self._column(option.price - cheapest) for option in options]
            self.rows.add(columns, (), 1.0, 1.0)
        self.binaries = len(self.excesses)
        self._add_tensors()

    def _add_tensors(self) -> None:
        produced: list[dict[int, list[int]]] = [{} for _ in self.problem.tensors]
        required: list[list[dict[int, list[int]]]] = [
            [{state: []} for state in tensor.required_states] for tensor in self.problem.tensors
        ]
        for first, options in zip(self.first, self.problem.ops, strict=True):
            uses: dict[tuple[int, int], dict[int, list[int]]] = {}
            for column, option in enumerate(options, first):
                for index, state in option.result_states:
                    produced[index].setdefault(state, []).append(column)
                for position, (index, state) in enumerate(option.operand_states):
                    uses.setdefault((position, index), {}).setdefault(state, []).append(column)
            for (_, index), states in uses.items():
                required[index].append(states)
        for index, (tensor, states, used) in enumerate(zip(self.problem.tensors, produced, required, strict=True)):
            if tensor.source_state is not None:
                states = {tensor.source_state: []}
            self._add_tensor(index, tensor, states, used)

    def _add_tensor(
        self, index: int, tensor: Tensor, states: dict[int, list[int]], uses: list[dict[int, list[int]]]
    ) -> None:
        """Add the flows and casts of one tensor. A state with an empty list of columns is certain."""
        shared = [self._cast_column(index, cast) for cast in range(len(tensor.prices))] if len(uses) > 1 else None
        for use in uses:
            flows: dict[tuple[int, int], int] = {}
            required: dict[int, list[int]] = defaultdict(list)
            for pair in ((g, n) for g in states for n in use):
                if pair not in tensor.casts:
                    continue
                cast = tensor.casts[pair]
                flows[pair] = self._column(0.0) if cast is None or shared else self._cast_column(index, cast)
                if cast is not None:
                    required[cast].append(flows[pair])
            for state, columns in states.items():
                self._balance([flow for (g, _), flow in flows.items() if g == state], columns)
            for state, columns in use.items():
                self._balance([flow for (_, n), flow in flows.items() if n == state], columns)
            if shared is not None:
                for cast, parts in required.items():
                    self.rows.add([shared[cast]], parts, 0.0, highspy.kHighsInf)

    def _column(self, excess: float) -> int:
        self.excesses.append(excess)
        return len(self.excesses) - 1

    def _cast_column(self, index: int, cast: int) -> int:
        column = self._column(self.problem.tensors[index].prices[cast])
        self.cast_columns.setdefault((index, cast), []).append(column)
        return column

    @cached_property
    def upper(self) -> Any:
        """The upper bounds of all columns: 0 for an infinite price, otherwise 1."""
        return np.isfinite(self.excesses).astype(float)

    @cached_property
    def prices(self) -> Any:
        """The prices of all columns as the solver sees them, between 0 and 1."""
        return np.minimum(np.asarray(self.excesses) / self.limit, 1.0)

    def _balance(self, flows: list[int], columns: list[int]) -> None:
        right = 0.0 if columns else 1.0
        self.rows.add(flows, columns, right, right)

    def run(self, integral: bool, start: Sequence[int], time_limit: float | None) -> Run:
        """Solve the linear program, or the integer program with a start."""
        settings: dict[str, Any] = {} if time_limit is None else {"time_limit": time_limit}
        if not integral:  # the dual simplex method is faster than what presolving saves here
            settings["presolve"] = "off"
        solver = highs(mip_rel_gap=0.0, mip_abs_gap=0.0, **settings)
        solver.passModel(self.model(integral))
        if integral:
            self.set_start(solver, start)
        solver.run()
        multipliers = self._valid(() if integral else np.asarray(solver.getSolution().row_dual))
        bound = solver.getInfo().mip_dual_bound if integral else self.bound(multipliers)
        return Run(self.found(solver) or tuple(start), bound * self.limit, multipliers)

    def found(self, solver: Any) -> Choice | None:
        """The choice of a solver that has run; None if it has found none."""
        is_feasible = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return self.choice(np.asarray(solver.getSolution().col_value)) if is_feasible else None

    def choice(self, values: Any) -> tuple[int, ...]:
        """The option of every op with the largest value of its column."""
        ends = [*self.first[1:], self.binaries]
        return tuple(int(np.argmax(values[a:b])) for a, b in zip(self.first, ends, strict=True))

    def bound(self, multipliers: Any) -> float:
        """The bound that multipliers of the rows prove, by the inequality in the docstring of the module."""
        reduced = np.minimum(self.reduced_costs(multipliers), 0.0) * self.upper
        return float((multipliers * np.asarray(self.rows.lower)).sum() + reduced.sum())

    def _valid(self, multipliers: Any) -> Any:
        """Multipliers without those that push against a missing bound of a row; zeros if the solver returned none."""
        upper = np.asarray(self.rows.upper)
        if len(multipliers) != len(upper) or not np.isfinite(multipliers).all():
            return np.zeros(len(upper))
        return np.where(np.isinf(upper), np.maximum(multipliers, 0.0), multipliers)

    def reduced_costs(self, multipliers: Any) -> Any:
        """The price of each column minus the multipliers of its rows."""
        spread = np.repeat(multipliers, np.diff(self.rows.starts)) * np.asarray(self.rows.factors)
        return self.prices - np.bincount(self.rows.columns, spread, minlength=len(self.prices))

    def model(self, integral: bool) -> Any:
        """The program as a HighsLp; with `integral` the options are integers."""
        model = highspy.HighsLp()
        count = len(self.prices)
        model.num_col_ = count
        model.num_row_ = len(self.rows.lower)
        model.col_cost_ = self.prices
        model.col_lower_ = np.zeros(count)
        model.col_upper_ = self.upper
        model.row_lower_ = np.asarray(self.rows.lower)
        model.row_upper_ = np.asarray(self.rows.upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self.rows.starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self.rows.columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self.rows.factors)
        if integral:
            kinds = [highspy.HighsVarType.kInteger] * self.binaries
            model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (count - self.binaries)
        return model

    def set_start(self, solver: Any, start: Sequence[int]) -> None:
        """Pass a MIP start to the solver, which completes flows and casts."""
        values = np.zeros(self.binaries)
        values[[first + option for first, option in zip(self.first, start, strict=True)]] = 1.0
        solver.setSolution(self.binaries, np.arange(self.binaries, dtype=np.int32), values)


def limit_columns(solver: Any, factors: Any, limit: float) -> None:
    """Add a row to the program of a solver: the sum of the columns with these factors is at most a limit."""
    (used,) = np.nonzero(factors)
    solver.addRow(-highspy.kHighsInf, limit, len(used), used.astype(np.int32), factors[used])


# --- side constraints ---
#
# The cheapest choice of a planning problem within limits, by an integer program with a row for each of them.


_LIMIT_MARGIN = 1.01  # prices are clamped slightly above the limit
_ABSOLUTE_GAP = 1e-6  # of the integer program, whose prices are at most 1


class Limit(Record):
    """A price that no choice may exceed: that of the baseline at a guard point, or the bytes of a device.

    Attributes:
        problem: a problem with other prices and the ops, options and casts of the planning problem.
        price: the largest price.
    """

    problem: Problem
    price: float

    def restricted(self, numbers: Sequence[Sequence[int]]) -> "Limit":
        """The limit of the problem with some options of every op."""
        return Limit(self.problem.restricted(numbers), self.price)

    def allows(self, choice: Choice) -> bool:
        """Whether a choice does not exceed the price, within the tolerance."""
        return self.problem.price(choice) <= self.price * (1 + TOLERANCE)

    def row(self) -> tuple[Any, float]:
        """The prices as fractions of slightly more than the limit, so that a larger price exceeds it."""
        excess = self.price - self.problem.lower_bound()
        return Program(self.problem, max(excess, TOLERANCE * self.price) * _LIMIT_MARGIN).prices, 1 / _LIMIT_MARGIN


def cheapest_within(
    problem: Problem,
    limits: Sequence[Limit],
    start: Choice,
    ceiling: float,
    time_limit: float | None,
) -> tuple[Choice, float]:
    """The cheapest choice within limits, by an integer program, and the bound that it proves on its price.

    Args:
        problem: the planning problem.
        limits: the limits.
        start: the choice to begin with, which is returned if none is found, although it may violate a limit; the bound is
            infinite if there is none.
        ceiling: a price that the cheapest choice does not exceed. If it does, the bound is about the ceiling or infinite, and
            the result is the start or some choice above the ceiling.
        time_limit: seconds; None for a limit that does not depend on the speed of the machine.
    """
    lower = problem.lower_bound()
    limit = max(ceiling - lower, TOLERANCE)
    program = Program(problem, limit)
    solver = highs(
        mip_rel_gap=TOLERANCE,
        objective_bound=1.0 + TOLERANCE,
        mip_abs_gap=_ABSOLUTE_GAP,
        **search_limit(time_limit),
    )
    solver.passModel(program.model(integral=True))
    for each in limits:
        limit_columns(solver, *each.row())
    if all(each.allows(start) for each in limits):
        program.set_start(solver, start)
    solver.run()
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return start, inf
    return program.found(solver) or start, lower + float(solver.getInfo().mip_dual_bound) * limit
