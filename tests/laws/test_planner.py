"""Laws of the planner: its optimum is that of exhaustive search, and its lower bounds are valid."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, isfinite

import numpy as np
import pytest
from tiers import tiered

from layoutopt.planner import Deadline, Option, Problem, Tensor, least_regret, solve

SEEDS = range(1200)
EXACT = 1e-6


def random_problem(seed: int) -> Problem:
    """A few ops with a few options each, on tensors with shared casts, pins, impossible casts and several outputs.

    Option 0 of every op gives and needs state 0, and state 0 always does as it is, so that there is a feasible choice.
    """
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.5, 3.0])  # decimal orders of magnitude around 1

    def price() -> float:
        return float(10 ** rng.normal(scale=spread)) * float(rng.random() > 0.2)

    states = int(rng.integers(2, 5))
    tensors: list[Tensor] = []

    def tensor(given: int | None) -> int:
        shares = int(rng.integers(1, 4))
        casts: dict[tuple[int, int], int | None] = {(0, 0): None}
        for pair in product(range(states), range(states)):
            kind = rng.random()
            if pair == (0, 0) or kind < 0.15:
                continue
            casts[pair] = None if kind < 0.3 or pair[0] == pair[1] else int(rng.integers(shares))
        if given is not None:
            casts.setdefault((given, 0), 0)
        needed = [0] if rng.random() < 0.2 else []
        if rng.random() < 0.1:
            needed.append(1)
            casts.setdefault((given or 0, 1), 0)
        tensors.append(Tensor(casts, [price() for _ in range(shares)], given, needed))
        return len(tensors) - 1

    readable = [tensor(int(rng.integers(states))) for _ in range(rng.integers(1, 3))]
    ops = []
    for _ in range(int(rng.integers(1, 7))):
        reads = [int(rng.choice(readable)) for _ in range(rng.integers(1, 4))]
        writes = [tensor(None) for _ in range(rng.choice([1, 1, 2]))]
        readable += writes

        def option(wanted: dict[int, int], reads: list[int] = reads, writes: list[int] = writes) -> Option:
            gives = tuple((each, wanted.get(each, 0)) for each in writes)
            return Option(price(), gives, tuple((each, wanted.get(each, 0)) for each in reads))

        count = 1 if rng.random() < 0.2 else int(rng.integers(2, 5))
        others = [{each: int(rng.integers(states)) for each in {*reads, *writes}} for _ in range(count - 1)]
        ops.append([option(wanted) for wanted in ({}, *others)])
    return Problem(ops, tensors)


def due_casts(problem: Problem, choice: tuple[int, ...]) -> set[tuple[int, int | None]] | None:
    """The tensors and casts that a choice needs; None if one is impossible."""
    chosen = [options[index] for options, index in zip(problem.ops, choice, strict=True)]
    due = set()
    for index, tensor in enumerate(problem.tensors):
        given = [state for option in chosen for where, state in option.result_states if where == index]
        produced = given[0] if given else tensor.source_state
        required = [state for option in chosen for where, state in option.operand_states if where == index]
        for state in (*required, *tensor.required_states):
            if produced is None or (produced, state) not in tensor.casts:
                return None
            due.add((index, tensor.casts[produced, state]))
    return due


def paid(problem: Problem, choice: tuple[int, ...]) -> float:
    """The price of a choice by definition, independent of `Problem.price`."""
    due = due_casts(problem, choice)
    if due is None:
        return inf
    casts = sum(problem.tensors[index].prices[cast] for index, cast in due if cast is not None)
    return sum(options[index].price for options, index in zip(problem.ops, choice, strict=True)) + casts


def choices(problem: Problem) -> Iterator[tuple[int, ...]]:
    return product(*(range(len(options)) for options in problem.ops))


@pytest.mark.parametrize("block", tiered(range(8), 1))
def test_the_solution_is_the_cheapest_choice(block: int) -> None:
    for seed in SEEDS[block::8]:
        problem = random_problem(seed)
        start = [0] * len(problem.ops)
        assert isfinite(paid(problem, tuple(start)))
        best = min(paid(problem, choice) for choice in choices(problem))
        solution = solve(problem, start)
        assert solution.optimal, seed
        assert solution.gap == 0, seed
        assert solution.lower_bound == solution.price, seed
        assert solution.price == pytest.approx(paid(problem, solution.choice), rel=1e-12), seed
        assert solution.price == pytest.approx(best, rel=EXACT, abs=1e-300), seed


def test_without_time_the_bound_is_honest() -> None:
    unproven = 0
    for seed in SEEDS[:100]:
        problem = random_problem(seed)
        solution = solve(problem, [0] * len(problem.ops), Deadline(0.0))
        best = min(paid(problem, choice) for choice in choices(problem))
        assert isfinite(solution.price), seed
        assert solution.price == pytest.approx(paid(problem, solution.choice)), seed
        assert solution.lower_bound <= best * (1 + EXACT), seed
        assert best <= solution.price * (1 + EXACT), seed
        assert 0 <= solution.gap <= 1, seed
        unproven += not solution.optimal
    assert unproven > 10


def test_a_price_beyond_all_others_does_not_blur_the_rest() -> None:
    """Prices of a picosecond next to one of a million seconds."""
    cheap = [Option(3e-12, ((0, 0),)), Option(2e-12, ((0, 1),)), Option(1e6, ((0, 2),))]
    reader = [Option(1e-12, (), ((0, 0),)), Option(1.5e-12, (), ((0, 1),))]
    tensor = Tensor({(g, n): None if g == n else 0 for g in range(3) for n in range(2)}, [1e6])
    solution = solve(Problem([cheap, reader], [tensor]), (0, 0))
    assert solution.choice == (1, 1)
    assert solution.price == pytest.approx(3.5e-12)


def priced_anew(problem: Problem, seed: int) -> Problem:
    """The same choices at other prices."""
    rng = np.random.default_rng(seed)

    def price(old: float) -> float:
        return old * float(10 ** rng.normal(scale=0.5))

    ops = [[replace(each, price=price(each.price)) for each in options] for options in problem.ops]
    tensors = [replace(each, prices=[*map(price, each.prices)]) for each in problem.tensors]
    return Problem(ops, tensors)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("block", tiered(range(8), 1))
def test_the_compromise_has_the_least_worst_regret(block: int, count: int) -> None:
    apart = 0
    for seed in SEEDS[block:240:8]:
        first = random_problem(seed)
        problems = [first, *(priced_anew(first, 1000 * other + seed) for other in range(1, count))]
        start = [0] * len(first.ops)
        agreement, best_solutions = least_regret(problems, start)
        alone = [min(paid(problem, choice) for choice in choices(problem)) for problem in problems]
        ratios = {
            choice: max(paid(problem, choice) / (own or 1.0) for problem, own in zip(problems, alone, strict=True))
            for choice in choices(first)
        }
        assert agreement.gap == 0, seed
        assert [each.price for each in best_solutions] == pytest.approx(alone, rel=EXACT, abs=1e-300), seed
        assert ratios[agreement.choice] == pytest.approx(min(ratios.values()), rel=3 * EXACT), seed
        apart += len({each.choice for each in best_solutions}) > 1
    assert apart > 3


def test_without_time_the_gap_of_a_compromise_is_honest() -> None:
    for seed in SEEDS[:60]:
        first = random_problem(seed)
        problems = [first, priced_anew(first, seed)]
        hasty, best_solutions = least_regret(problems, [0] * len(first.ops), Deadline(0.0))
        alone = [each.price for each in best_solutions]  # the best that is known of each
        best = min(
            max(paid(problem, choice) / (own or 1.0) for problem, own in zip(problems, alone, strict=True))
            for choice in choices(first)
        )
        worst = max(paid(problem, hasty.choice) / (own or 1.0) for problem, own in zip(problems, alone, strict=True))
        assert worst * (1 - hasty.gap) <= best * (1 + EXACT), seed
