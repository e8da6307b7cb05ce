"""Laws of the choice among plans of one price: the fewest bytes moved, then the fewest casts, in any order of the problem."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pytest
from test_planner import choices, due_casts, paid, random_problem
from test_planner_graphs import Generator, RandomCosts, mode_of, random_pins
from tiers import tiered

from layoutopt.cost_models import load_target
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir import Graph, Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats
from layoutopt.planner import Option, Plan, PlanRequest, Problem, RegionTree, make_plan, propose, solve, solver
from layoutopt.planner.problem import Choice

SEEDS = range(1200)


def tied_problem(seed: int) -> Problem:
    """A random problem with few different prices, so that many choices have one price."""
    rng = np.random.default_rng(1_000_000 + seed)
    problem = random_problem(seed)

    def rounded(price: float) -> float:
        return round(price * 2) / 2 if price < 3 else float(round(price))

    ops = [[replace(each, price=rounded(each.price)) for each in op] for op in problem.ops]
    tensors = [
        replace(
            each,
            prices=[rounded(price) for price in each.prices],
            nbytes=[512.0 * int(rng.integers(1, 6)) for _ in each.prices],
            depth=int(rng.integers(0, 5)),
        )
        for each in problem.tensors
    ]
    ranks = [[int(rng.integers(10**6)) for _ in op] for op in ops]
    return Problem(ops, tensors, lambda op, option: (ranks[op][option],))


def moved(problem: Problem, choice: Choice) -> tuple[float, int, int]:
    """Bytes, number and depths of the casts of a choice by definition, independent of `Problem.movement`."""
    due = due_casts(problem, choice)
    assert due is not None
    casts = [(index, cast) for index, cast in due if cast is not None]
    nbytes = sum(problem.tensors[index].nbytes[cast] for index, cast in casts)
    return nbytes, len(casts), -sum(problem.tensors[index].depth for index, _ in casts)


def criteria(problem: Problem, choice: Choice) -> tuple[float, int, int, float]:
    ranks = problem.ranks
    assert ranks is not None
    return (*moved(problem, choice), sum(ranks(op, option)[0] for op, option in enumerate(choice)))


def cheapest_of(problem: Problem) -> list[Choice]:
    """All choices of the least price."""
    prices = {choice: paid(problem, choice) for choice in choices(problem)}
    best = min(prices.values())
    return [choice for choice, price in prices.items() if price <= best * (1 + 1e-9)]


@pytest.mark.parametrize("block", tiered(range(12), 1))
def test_the_choice_moves_the_fewest_bytes_of_all_that_are_cheapest(block: int) -> None:
    tied = 0
    for seed in SEEDS[block::12]:
        problem = tied_problem(seed)
        solution = solve(problem, [0] * len(problem.ops))
        cheapest = cheapest_of(problem)
        assert solution.choice in cheapest, seed
        assert solution.optimal and solution.lower_bound == solution.price, seed
        assert criteria(problem, solution.choice) == min(criteria(problem, choice) for choice in cheapest), seed
        unranked = solve(Problem(problem.ops, problem.tensors), [0] * len(problem.ops))
        assert solution.price == pytest.approx(unranked.price, rel=1e-9), seed
        tied += len(cheapest) > 1
    assert tied > 33


def reordered(problem: Problem, rng: random.Random) -> tuple[Problem, list[int], list[list[int]]]:
    """The problem with ops, options and tensors in another order; and the old numbers of the ops and of their options."""
    tensors = rng.sample(range(len(problem.tensors)), len(problem.tensors))
    ops = rng.sample(range(len(problem.ops)), len(problem.ops))
    options = [rng.sample(range(len(problem.ops[op])), len(problem.ops[op])) for op in ops]
    place = {old: new for new, old in enumerate(tensors)}

    def moved_option(option: Option) -> Option:
        results, operands = (
            tuple((place[tensor], state) for tensor, state in states)
            for states in (option.result_states, option.operand_states)
        )
        return Option(option.price, results, operands)

    ranks = problem.ranks
    assert ranks is not None
    found = Problem(
        [
            [moved_option(problem.ops[op][number]) for number in numbers]
            for op, numbers in zip(ops, options, strict=True)
        ],
        [problem.tensors[old] for old in tensors],
        lambda op, option: ranks(ops[op], options[op][option]),
    )
    return found, ops, options


def test_the_order_of_ops_options_and_tensors_does_not_matter() -> None:
    for seed in SEEDS[:60]:
        problem = tied_problem(seed)
        other, ops, options = reordered(problem, random.Random(seed))
        first = solve(problem, [0] * len(problem.ops))
        second = solve(other, [numbers.index(0) for numbers in options])
        chosen = {op: options[place][second.choice[place]] for place, op in enumerate(ops)}
        assert tuple(chosen[op] for op in range(len(ops))) == first.choice, seed


def test_without_time_the_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends early keeps the choice that it has, and the proof of its price."""
    monkeypatch.setattr(solver, "search_limit", lambda _: {"mip_max_nodes": 0})
    for seed in SEEDS[:60]:
        problem = tied_problem(seed)
        solution = solve(problem, [0] * len(problem.ops))
        assert solution.optimal and solution.choice in cheapest_of(problem), seed


@dataclass(frozen=True)
class TiedCosts(RandomCosts):
    """Few different prices; `is_reversed` lists the kernels of an op in the other order."""

    is_reversed: bool = False

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        found = list(super().preferred_formats(op))
        return found[::-1] if self.is_reversed else found

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return ceil(super().kernel_seconds(op, signature) * 3) / 2

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        return ceil(super().conversion_seconds(value, src, dst) * 3) / 2


def shuffled(graph: Graph, rng: random.Random) -> Graph:
    """The graph with its values, and its ops as far as they are independent, in another order."""
    found = Graph(graph.name, {"": 18})
    for value in rng.sample(list(graph.values), len(graph.values)):
        found.add_value(value)
    found.inputs = list(graph.inputs)
    ready = {value for value in graph.values if graph.producer(value) is None}
    left = list(graph.ops)
    while left:
        op = rng.choice(
            [each for each in left if ready.issuperset(value for value in each.inputs if value is not None)]
        )
        left.remove(op)
        found.add_op(op)
        ready.update(value for value in op.outputs if value is not None)
    found.outputs = list(graph.outputs)
    return found


def planned(graph: Graph, model: TiedCosts, pins: Mapping[Value, Format], seed: int) -> Plan | None:
    try:
        return make_plan(PlanRequest(graph, model, pins, mode_of(seed) == "inference"))
    except PinError:
        return None


def without_constants(plan: Plan) -> dict[Op, list[str]]:
    """The storages of the operands of every op that are not constants; a kernel decides those of constants."""
    return {
        op: [str(signature[slot]) for slot in op.slots() if not ((value := op.operand(slot)) and value.is_constant)]
        for op, signature in plan.signatures.items()
    }


def candidates_of(graph: Graph, model: TiedCosts, pins: dict[Value, Format]) -> dict[str, list[str]]:
    found = propose(RegionTree(graph), model, pins).signatures
    return {str(op): sorted(map(str, signatures)) for op, signatures in found.items()}


def test_the_order_of_the_ops_and_values_of_a_graph_does_not_matter() -> None:
    compared = 0
    for seed in range(25):
        graph = Generator(seed).build()
        pins, model, other = random_pins(graph, seed), TiedCosts(seed), TiedCosts(seed, is_reversed=True)
        turned = shuffled(graph, random.Random(seed))
        first, second, third = (
            planned(*each, pins, seed) for each in ((graph, model), (turned, model), (turned, other))
        )
        assert (first is None) == (second is None), seed
        if first is None or second is None:
            continue
        assert first.seconds == pytest.approx(second.seconds, rel=1e-12), seed
        assert without_constants(first) == without_constants(second), seed
        if third is not None and candidates_of(graph, model, pins) == candidates_of(turned, other, pins):
            assert without_constants(first) == without_constants(third), seed
            compared += 1
    assert compared > 18


def test_a_plan_of_a_target_is_the_same_for_every_order() -> None:
    for seed in range(15):
        graph, model = Generator(seed).build(), load_target("ascend-910b")
        first, second = (make_plan(PlanRequest(each, model)) for each in (graph, shuffled(graph, random.Random(seed))))
        assert without_constants(first) == without_constants(second), seed
