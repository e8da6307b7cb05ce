"""Solves a planning problem exactly, as a mixed-integer linear program in HiGHS.

    x[op, option]            binary: the op takes the option; exactly one per op
    w[use, given, needed]    flow: the tensor is given in one state and needed there in another
                             sum over needed = what the producer gives;  sum over given = what the consumer needs
    y[tensor, cast]          the cast is due:  y >= sum of the flows of each single use that are due it

The flows make the relaxation tight: with two states per tensor it is a cut problem and its vertices are integral, so the
first linear program nearly always is the answer. Ops with one option left are no variables, and the rest falls apart into
independent components.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

import highspy
import networkx as nx
import numpy as np

from layoutopt.planner.problem import Problem, Solution, Tensor

TOLERANCE = 1e-6  # relative; what HiGHS guarantees of its bounds


def solve(problem: Problem, start: Sequence[int], time_limit: float | None = None) -> Solution:
    """The cheapest choice.

    Args:
        problem: what to choose from.
        start: a feasible choice, returned where time is up before anything better is found.
        time_limit: seconds; None for no limit. Past it the best choice so far comes back with the bound proven by then.
    """
    deadline = None if time_limit is None else monotonic() + time_limit
    choice = list(start)
    slack = 0.0
    optimal = True
    settled = _Settled(problem)
    for component in _components(problem):
        remaining = None if deadline is None else max(deadline - monotonic(), 0.0)
        program = _Program(problem, settled, component, start)
        chosen, gap, proven = program.run(remaining)
        for op, option in zip(component, chosen, strict=True):
            choice[op] = option
        slack += gap
        optimal = optimal and proven
    price = problem.price(choice)
    floor = sum(min(option.price for option in options) for options in problem.ops)
    return Solution(tuple(choice), price, price if optimal else max(price - slack, floor), optimal)


class _Settled:
    """What is certain about each tensor: inputs and pins, and the operands of ops that have one option."""

    def __init__(self, problem: Problem) -> None:
        self.given = {index: tensor.given for index, tensor in enumerate(problem.tensors) if tensor.given is not None}
        self.needed: list[list[int]] = [list(tensor.needed) for tensor in problem.tensors]
        for options in problem.ops:
            if len(options) == 1:
                self.given.update(options[0].gives)
                for tensor, state in options[0].needs:
                    self.needed[tensor].append(state)


def _components(problem: Problem) -> Iterator[list[int]]:
    """The ops with a choice, grouped so that no tensor lies between two groups."""
    net: Any = nx.Graph()
    for op, options in enumerate(problem.ops):
        if len(options) > 1:
            net.add_node(op)
            for tensor in sorted({tensor for option in options for tensor, _ in (*option.gives, *option.needs)}):
                net.add_edge(op, (tensor,))
    for component in nx.connected_components(net):
        yield sorted(node for node in component if isinstance(node, int))


@dataclass(slots=True)
class _Rows:
    """A sparse matrix with bounds on its rows, as it grows."""

    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, entries: list[tuple[int, float]], lower: float, upper: float) -> None:
        self.starts.append(len(self.columns))
        for column, factor in entries:
            self.columns.append(column)
            self.factors.append(factor)
        self.lower.append(lower)
        self.upper.append(upper)


class _Program:
    """The linear program of one component; ops outside of it keep the only option that they have."""

    def __init__(self, problem: Problem, settled: _Settled, component: list[int], start: Sequence[int]) -> None:
        self.problem = problem
        self.settled = settled
        self.component = component
        self.prices: list[float] = []
        self.rows = _Rows()
        self.first: dict[int, int] = {}
        for op in component:
            self.first[op] = len(self.prices)
            self.prices += [option.price for option in problem.ops[op]]
            self.rows.add([(self.first[op] + index, 1.0) for index in range(len(problem.ops[op]))], 1.0, 1.0)
        self.binaries = len(self.prices)
        self.start = [start[op] for op in component]
        self._add_tensors()

    def _add_tensors(self) -> None:
        gives: dict[int, dict[int, list[int]]] = {}
        needs: dict[int, list[dict[int, list[int]]]] = defaultdict(list)
        for op in self.component:
            uses: dict[tuple[int, int], dict[int, list[int]]] = {}
            for index, option in enumerate(self.problem.ops[op]):
                column = self.first[op] + index
                for tensor, state in option.gives:
                    gives.setdefault(tensor, {}).setdefault(state, []).append(column)
                for place, (tensor, state) in enumerate(option.needs):
                    uses.setdefault((place, tensor), {}).setdefault(state, []).append(column)
            for (_, tensor), states in uses.items():
                needs[tensor].append(states)
        for tensor in sorted({*gives, *needs}):
            given = gives.get(tensor) or {self.settled.given[tensor]: []}
            certain: list[dict[int, list[int]]] = [{state: []} for state in dict.fromkeys(self.settled.needed[tensor])]
            self._add_tensor(self.problem.tensors[tensor], given, certain + needs[tensor])

    def _add_tensor(self, tensor: Tensor, given: dict[int, list[int]], uses: list[dict[int, list[int]]]) -> None:
        """Flows and casts of one tensor. An empty column list stands for a state that is certain."""
        shared = {cast: self._column(price) for cast, price in enumerate(tensor.prices)} if len(uses) > 1 else None
        for use in uses:
            flows: dict[tuple[int, int], int] = {}
            due: dict[int, list[int]] = defaultdict(list)
            for pair in ((g, n) for g in given for n in use):
                if pair not in tensor.casts:
                    continue
                cast = tensor.casts[pair]
                flows[pair] = self._column(0.0 if cast is None or shared is not None else tensor.prices[cast])
                if cast is not None:
                    due[cast].append(flows[pair])
            for state, columns in given.items():
                self._balance([flow for (g, _), flow in flows.items() if g == state], columns)
            for state, columns in use.items():
                self._balance([flow for (_, n), flow in flows.items() if n == state], columns)
            if shared is not None:
                for cast, parts in due.items():
                    self.rows.add([(shared[cast], 1.0), *((part, -1.0) for part in parts)], 0.0, highspy.kHighsInf)

    def _column(self, price: float) -> int:
        self.prices.append(price)
        return len(self.prices) - 1

    def _balance(self, flows: list[int], columns: list[int]) -> None:
        right = 0.0 if columns else 1.0
        self.rows.add([*((flow, 1.0) for flow in flows), *((column, -1.0) for column in columns)], right, right)

    def run(self, time_limit: float | None) -> tuple[list[int], float, bool]:
        """The chosen options, the proven gap in price, and whether it is nothing."""
        scale = max(self.prices, default=0.0) or 1.0
        solver = highspy.Highs()
        for name, setting in {
            "output_flag": False,
            "threads": 1,
            "random_seed": 0,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            **({} if time_limit is None else {"time_limit": time_limit}),
        }.items():
            solver.setOptionValue(name, setting)
        solver.passModel(self._model(scale))
        self._suggest(solver)
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return self.start, inf, False
        solution = np.asarray(solver.getSolution().col_value[: self.binaries])
        chosen = []
        for op in self.component:
            first = self.first[op]
            chosen.append(int(np.argmax(solution[first : first + len(self.problem.ops[op])])))
        found = info.objective_function_value
        gap = max(0.0, found - info.mip_dual_bound)
        proven = gap <= TOLERANCE * max(abs(found), TOLERANCE)
        return chosen, 0.0 if proven else gap * scale, proven

    def _model(self, scale: float) -> Any:
        model = highspy.HighsLp()
        count = len(self.prices)
        model.num_col_ = count
        model.num_row_ = len(self.rows.lower)
        model.col_cost_ = np.asarray(self.prices) / scale
        model.col_lower_ = np.zeros(count)
        model.col_upper_ = np.ones(count)
        model.row_lower_ = np.asarray(self.rows.lower)
        model.row_upper_ = np.asarray(self.rows.upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray([*self.rows.starts, len(self.rows.columns)], dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self.rows.columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self.rows.factors)
        kinds = [highspy.HighsVarType.kInteger] * self.binaries
        model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (count - self.binaries)
        return model

    def _suggest(self, solver: Any) -> None:
        """Hand in the start as an incumbent; the solver completes flows and casts."""
        picked = [self.first[op] + option for op, option in zip(self.component, self.start, strict=True)]
        values = np.zeros(self.binaries)
        values[picked] = 1.0
        solver.setSolution(self.binaries, np.arange(self.binaries, dtype=np.int32), values)
