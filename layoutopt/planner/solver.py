"""Solves a planning problem exactly.

Ops with one option left are no variables, and the rest falls apart into independent parts. Of each part the relaxation of its
linear program is solved first, and only where its answer is fractional the integer program.
"""

from collections.abc import Iterator, Sequence
from math import inf
from time import monotonic
from typing import Any

import networkx as nx

from layoutopt.planner.problem import Option, Problem, Solution, Tensor
from layoutopt.planner.program import Program

MUCH = 10.0  # the range of prices that floating-point tolerances of 1e-7 leave room for


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
    for ops, part in _parts(problem):
        remaining = None if deadline is None else max(deadline - monotonic(), 0.0)
        solution = _solve_part(part, [start[op] for op in ops], remaining)
        for op, option in zip(ops, solution.choice, strict=True):
            choice[op] = option
        slack += 0.0 if solution.optimal else solution.price - solution.lower_bound
    price = problem.price(choice)
    return Solution(tuple(choice), price, price - slack, False).closed()


def _parts(problem: Problem) -> Iterator[tuple[list[int], Problem]]:
    """The problems of ops with a choice that no tensor connects, each with the numbers of its ops."""
    given = {index: tensor.given for index, tensor in enumerate(problem.tensors) if tensor.given is not None}
    needed = [dict.fromkeys(tensor.needed) for tensor in problem.tensors]
    for options in problem.ops:
        if len(options) == 1:
            given.update(options[0].gives)
            for tensor, state in options[0].needs:
                needed[tensor][state] = None
    for ops, component in _components(problem):
        number = {tensor: position for position, tensor in enumerate(component)}
        tensors = [problem.tensors[tensor] for tensor in number]
        yield (
            ops,
            Problem(
                [[_renumbered(option, number) for option in problem.ops[op]] for op in ops],
                [
                    Tensor(each.casts, each.prices, given.get(tensor), list(needed[tensor]))
                    for tensor, each in zip(number, tensors, strict=True)
                ],
            ),
        )


def _components(problem: Problem) -> list[tuple[list[int], list[int]]]:
    """The connected components of the ops that have a choice and of their tensors, each as ascending numbers."""
    net: Any = nx.Graph()
    for op, options in enumerate(problem.ops):
        if len(options) > 1:
            net.add_node(op)
            net.add_edges_from((op, (tensor,)) for option in options for tensor, _ in (*option.gives, *option.needs))
    found = []
    for component in nx.connected_components(net):
        ops = sorted(node for node in component if isinstance(node, int))
        found.append((ops, sorted(tensor for (tensor,) in component.difference(ops))))
    return found


def _renumbered(option: Option, number: dict[int, int]) -> Option:
    gives = tuple((number[tensor], state) for tensor, state in option.gives)
    return Option(option.price, gives, tuple((number[tensor], state) for tensor, state in option.needs))


def _solve_part(problem: Problem, start: list[int], time_limit: float | None) -> Solution:
    """The relaxation, and the integer program where that leaves a gap; again where the answer is much below the limit."""
    deadline = None if time_limit is None else monotonic() + time_limit
    floor = sum(min(option.price for option in options) for options in problem.ops)
    best = Solution(tuple(start), problem.price(start), floor, False).closed()
    ceiling = problem.ceiling()
    for integral in (False, True):
        limit = inf
        while not best.optimal and min(best.price, ceiling) - floor < limit / MUCH:
            limit = (min(best.price, ceiling) - floor) or 1.0  # any limit will do if the start is impossible
            remaining = None if deadline is None else max(deadline - monotonic(), 0.0)
            if remaining == 0.0:
                return best
            choice, bound = Program(problem, limit).run(integral, best.choice, remaining)
            price, choice = min((problem.price(choice), choice), (best.price, best.choice))
            if integral and price - floor < limit / MUCH:
                bound = 0.0  # it is right by the limit's standards only
            best = Solution(choice, price, max(best.lower_bound, floor + bound), False).closed()
    return best
