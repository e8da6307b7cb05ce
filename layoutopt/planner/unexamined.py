"""A lower bound on the price of every plan if some ops have options that were not examined."""

from collections.abc import Collection, Sequence
from math import isfinite

from layoutopt.planner.problem import Option, Problem, Tensor
from layoutopt.planner.solver import solve


def bound_with_open_ops(
    problem: Problem, start: Sequence[int], open_ops: Collection[int], time_limit: float | None
) -> float:
    """A lower bound on the price of every choice, whatever the options of some ops are.

    These ops are free, and so are the casts of all tensors that they read or produce: neither has a negative price.

    Args:
        problem: the planning problem with the options that were examined.
        start: a feasible choice.
        open_ops: the numbers of the ops with options that were not examined.
        time_limit: seconds; None for no limit.
    """
    free = {
        tensor
        for op in open_ops
        for option in problem.ops[op][:1]
        for tensor, _ in (*option.result_states, *option.operand_states)
    }
    ops = [
        [Option(0.0)] if op in open_ops else [_without(option, free) for option in options]
        for op, options in enumerate(problem.ops)
    ]
    tensors = [Tensor({}, []) if number in free else each for number, each in enumerate(problem.tensors)]
    offered = {op: number for op, number in problem.offered.items() if op not in open_ops}
    first = [0 if op in open_ops else option for op, option in enumerate(start)]
    solution = solve(Problem(ops, tensors, offered=offered), first, time_limit)
    return solution.lower_bound if isfinite(solution.lower_bound) else 0.0


def _without(option: Option, tensors: Collection[int]) -> Option:
    """An option without the states of some tensors."""
    results, operands = (
        tuple(each for each in states if each[0] not in tensors)
        for states in (option.result_states, option.operand_states)
    )
    return Option(option.price, results, operands)


__all__ = ["bound_with_open_ops"]
