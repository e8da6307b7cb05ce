"""Solves a planning problem exactly.

Ops with one option are constants, and the rest decomposes into connected components, the subproblems. The linear relaxation
of each is solved first; the integer program is solved only if the relaxation leaves a gap.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from time import monotonic
from typing import Any, TypeAlias

import networkx as nx

from layoutopt.planner.problem import TIE_TOLERANCE, Choice, Option, Problem, Ranks, Solution, Tensor
from layoutopt.planner.program import Program, Run
from layoutopt.planner.ties import select_among_cheapest

PRICE_RANGE = (
    10.0  # largest ratio of the price limit of a program to the prices of its solution, given tolerances of 1e-7
)


Relaxed: TypeAlias = tuple[Program, Run]


def solve(problem: Problem, start: Sequence[int], time_limit: float | None = None) -> Solution:
    """The cheapest choice; among several, the one that moves the fewest bytes, if options have ranks.

    Args:
        problem: the planning problem.
        start: a feasible choice, which is returned if no better one is found in time.
        time_limit: seconds; None for no limit. After it the best choice so far is returned, with the bound proven by then.
    """
    deadline = None if time_limit is None else monotonic() + time_limit
    solved = [
        (ops, subproblem, _cheapest(subproblem, [start[op] for op in ops], deadline))
        for ops, subproblem in _subproblems(problem)
    ]
    slack = sum(found.price - found.lower_bound for _, _, (found, _) in solved if not found.optimal)
    choice = _joined(start, ((ops, found.choice) for ops, _, (found, _) in solved))
    if problem.prefers_start and problem.price(start) * (1 - TIE_TOLERANCE) <= problem.price(choice):
        choice = list(start)
    elif problem.ranks is not None:  # after all subproblems are solved, since this takes only the time that is left
        choice = _joined(start, ((ops, _selected(part, *found, deadline)) for ops, part, found in solved))
    price = problem.price(choice)
    return Solution(tuple(choice), price, price - slack, False).with_optimality()


def _joined(start: Sequence[int], parts: Iterable[tuple[list[int], Choice]]) -> list[int]:
    """The start with other options for the ops of subproblems."""
    choice = list(start)
    for ops, options in parts:
        for op, option in zip(ops, options, strict=True):
            choice[op] = option
    return choice


def _selected(problem: Problem, solution: Solution, relaxed: Relaxed | None, deadline: float | None) -> Choice:
    """The choice of a subproblem that moves the fewest bytes among the cheapest ones."""
    if not solution.optimal:
        return solution.choice
    return select_among_cheapest(problem, solution.choice, relaxed, _remaining(deadline))


def _subproblems(problem: Problem) -> Iterator[tuple[list[int], Problem]]:
    """The subproblems, one per connected component, each with the numbers of its ops."""
    produced = {
        index: tensor.source_state for index, tensor in enumerate(problem.tensors) if tensor.source_state is not None
    }
    required = [dict.fromkeys(tensor.required_states) for tensor in problem.tensors]
    for options in problem.ops:
        if len(options) == 1:
            produced.update(options[0].result_states)
            for tensor, state in options[0].operand_states:
                required[tensor][state] = None
    for ops, component in components(problem):
        number = {tensor: position for position, tensor in enumerate(component)}
        tensors = [problem.tensors[tensor] for tensor in number]
        yield (
            ops,
            Problem(
                [[renumbered(option, number) for option in problem.ops[op]] for op in ops],
                [
                    Tensor(
                        each.casts, each.prices, produced.get(tensor), list(required[tensor]), each.nbytes, each.depth
                    )
                    for tensor, each in zip(number, tensors, strict=True)
                ],
                _renumbered_ranks(problem.ranks, ops),
            ),
        )


def components(problem: Problem) -> list[tuple[list[int], list[int]]]:
    """The connected components of the ops that have a choice and of their tensors, each as ascending numbers."""
    bipartite: Any = nx.Graph()
    for op, options in enumerate(problem.ops):
        if len(options) > 1:
            bipartite.add_node(op)
            bipartite.add_edges_from(
                (op, (tensor,)) for option in options for tensor, _ in (*option.result_states, *option.operand_states)
            )
    found = []
    for component in nx.connected_components(bipartite):
        ops = sorted(node for node in component if isinstance(node, int))
        found.append((ops, sorted(tensor for (tensor,) in component.difference(ops))))
    return found


def renumbered(option: Option, number: dict[int, int]) -> Option:
    """An option with other numbers for its tensors."""
    result_states = tuple((number[tensor], state) for tensor, state in option.result_states)
    return Option(
        option.price, result_states, tuple((number[tensor], state) for tensor, state in option.operand_states)
    )


def _renumbered_ranks(ranks: Ranks | None, ops: Sequence[int]) -> Ranks | None:
    return None if ranks is None else lambda op, option: ranks(ops[op], option)


def _cheapest(problem: Problem, start: Sequence[int], deadline: float | None) -> tuple[Solution, Relaxed | None]:
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
            remaining = _remaining(deadline)
            if remaining == 0.0:
                return best, relaxed
            program = Program(problem, limit)
            run = program.run(integral, best.choice, remaining)
            relaxed, bound = relaxed if integral else (program, run), run.bound
            price, choice = min((problem.price(run.choice), run.choice), (best.price, best.choice))
            if integral and price - lower < limit / PRICE_RANGE:
                bound = 0.0  # its tolerance is relative to the limit
            best = Solution(choice, price, max(best.lower_bound, lower + bound), False).with_optimality()
    return best, relaxed


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - monotonic(), 0.0)
