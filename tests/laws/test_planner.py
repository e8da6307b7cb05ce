"""Laws of the planner: its optimum is that of exhaustive search, and its lower bounds are valid."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import ceil, inf, isfinite

import numpy as np
import pytest
from msgspec.structs import replace
from test_planner_graphs import Generator, RandomCosts, mode_of, random_pins
from tiers import tiered

from layoutopt import planner
from layoutopt.cost_models import load_target
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir import Graph, Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats
from layoutopt.planner.problem import Choice

SEEDS = range(1200)
EXACT = 1e-6


def random_problem(seed: int) -> planner.Problem:
    """A few ops with a few options each, on tensors with shared casts, pins, impossible casts and several outputs.

    Option 0 of every op gives and needs state 0, and state 0 always does as it is, so that there is a feasible choice.
    """
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.5, 3.0])  # decimal orders of magnitude around 1

    def price() -> float:
        return float(10 ** rng.normal(scale=spread)) * float(rng.random() > 0.2)

    states = int(rng.integers(2, 5))
    tensors: list[planner.Tensor] = []

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
        tensors.append(planner.Tensor(casts, [price() for _ in range(shares)], given, needed))
        return len(tensors) - 1

    readable = [tensor(int(rng.integers(states))) for _ in range(rng.integers(1, 3))]
    ops = []
    for _ in range(int(rng.integers(1, 7))):
        reads = [int(rng.choice(readable)) for _ in range(rng.integers(1, 4))]
        writes = [tensor(None) for _ in range(rng.choice([1, 1, 2]))]
        readable += writes

        def option(wanted: dict[int, int], reads: list[int] = reads, writes: list[int] = writes) -> planner.Option:
            gives = tuple((each, wanted.get(each, 0)) for each in writes)
            return planner.Option(price(), gives, tuple((each, wanted.get(each, 0)) for each in reads))

        count = 1 if rng.random() < 0.2 else int(rng.integers(2, 5))
        others = [{each: int(rng.integers(states)) for each in {*reads, *writes}} for _ in range(count - 1)]
        ops.append([option(wanted) for wanted in ({}, *others)])
    return planner.Problem(ops, tensors)


def due_casts(problem: planner.Problem, choice: tuple[int, ...]) -> set[tuple[int, int | None]] | None:
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


def paid(problem: planner.Problem, choice: tuple[int, ...]) -> float:
    """The price of a choice by definition, independent of `Problem.price`."""
    due = due_casts(problem, choice)
    if due is None:
        return inf
    casts = sum(problem.tensors[index].prices[cast] for index, cast in due if cast is not None)
    return sum(options[index].price for options, index in zip(problem.ops, choice, strict=True)) + casts


def choices(problem: planner.Problem) -> Iterator[tuple[int, ...]]:
    return product(*(range(len(options)) for options in problem.ops))


@pytest.mark.parametrize("block", tiered(range(8), 1))
def test_the_solution_is_the_cheapest_choice(block: int) -> None:
    for seed in SEEDS[block::8]:
        problem = random_problem(seed)
        start = [0] * len(problem.ops)
        assert isfinite(paid(problem, tuple(start)))
        best = min(paid(problem, choice) for choice in choices(problem))
        solution = planner.solve(problem, start)
        assert solution.optimal, seed
        assert solution.gap == 0, seed
        assert solution.lower_bound == solution.price, seed
        assert solution.price == pytest.approx(paid(problem, solution.choice), rel=1e-12), seed
        assert solution.price == pytest.approx(best, rel=EXACT, abs=1e-300), seed


def test_without_time_the_bound_is_honest() -> None:
    unproven = 0
    for seed in SEEDS[:100]:
        problem = random_problem(seed)
        solution = planner.solve(problem, [0] * len(problem.ops), planner.Deadline(0.0))
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
    cheap = [planner.Option(3e-12, ((0, 0),)), planner.Option(2e-12, ((0, 1),)), planner.Option(1e6, ((0, 2),))]
    reader = [planner.Option(1e-12, (), ((0, 0),)), planner.Option(1.5e-12, (), ((0, 1),))]
    tensor = planner.Tensor({(g, n): None if g == n else 0 for g in range(3) for n in range(2)}, [1e6])
    solution = planner.solve(planner.Problem([cheap, reader], [tensor]), (0, 0))
    assert solution.choice == (1, 1)
    assert solution.price == pytest.approx(3.5e-12)


def priced_anew(problem: planner.Problem, seed: int) -> planner.Problem:
    """The same choices at other prices."""
    rng = np.random.default_rng(seed)

    def price(old: float) -> float:
        return old * float(10 ** rng.normal(scale=0.5))

    ops = [[replace(each, price=price(each.price)) for each in options] for options in problem.ops]
    tensors = [replace(each, prices=[*map(price, each.prices)]) for each in problem.tensors]
    return planner.Problem(ops, tensors)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("block", tiered(range(8), 1))
def test_the_compromise_has_the_least_worst_regret(block: int, count: int) -> None:
    apart = 0
    for seed in SEEDS[block:240:8]:
        first = random_problem(seed)
        problems = [first, *(priced_anew(first, 1000 * other + seed) for other in range(1, count))]
        start = [0] * len(first.ops)
        agreement, best_solutions = planner.least_regret(problems, start)
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
        hasty, best_solutions = planner.least_regret(problems, [0] * len(first.ops), planner.Deadline(0.0))
        alone = [each.price for each in best_solutions]  # the best that is known of each
        best = min(
            max(paid(problem, choice) / (own or 1.0) for problem, own in zip(problems, alone, strict=True))
            for choice in choices(first)
        )
        worst = max(paid(problem, hasty.choice) / (own or 1.0) for problem, own in zip(problems, alone, strict=True))
        assert worst * (1 - hasty.gap) <= best * (1 + EXACT), seed


# --- the choice among plans of one price -----------------------------------------------------------------


def tied_problem(seed: int) -> planner.Problem:
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
    return planner.Problem(ops, tensors, lambda op, option: (ranks[op][option],))


def moved(problem: planner.Problem, choice: Choice) -> tuple[float, int, int]:
    """Bytes, number and depths of the casts of a choice by definition, independent of `Problem.movement`."""
    due = due_casts(problem, choice)
    casts = [(index, cast) for index, cast in due if cast is not None]
    nbytes = sum(problem.tensors[index].nbytes[cast] for index, cast in casts)
    return nbytes, len(casts), -sum(problem.tensors[index].depth for index, _ in casts)


def criteria(problem: planner.Problem, choice: Choice) -> tuple[float, int, int, float]:
    ranks = problem.ranks
    return (*moved(problem, choice), sum(ranks(op, option)[0] for op, option in enumerate(choice)))


def cheapest_of(problem: planner.Problem) -> list[Choice]:
    """All choices of the least price."""
    prices = {choice: paid(problem, choice) for choice in choices(problem)}
    best = min(prices.values())
    return [choice for choice, price in prices.items() if price <= best * (1 + 1e-9)]


@pytest.mark.parametrize("block", tiered(range(12), 1))
def test_the_choice_moves_the_fewest_bytes_of_all_that_are_cheapest(block: int) -> None:
    tied = 0
    for seed in SEEDS[block::12]:
        problem = tied_problem(seed)
        solution = planner.solve(problem, [0] * len(problem.ops))
        cheapest = cheapest_of(problem)
        assert solution.choice in cheapest, seed
        assert solution.optimal and solution.lower_bound == solution.price, seed
        assert criteria(problem, solution.choice) == min(criteria(problem, choice) for choice in cheapest), seed
        unranked = planner.solve(planner.Problem(problem.ops, problem.tensors), [0] * len(problem.ops))
        assert solution.price == pytest.approx(unranked.price, rel=1e-9), seed
        tied += len(cheapest) > 1
    assert tied > 33


def reordered(problem: planner.Problem, rng: random.Random) -> tuple[planner.Problem, list[int], list[list[int]]]:
    """The problem with ops, options and tensors in another order; and the old numbers of the ops and of their options."""
    tensors = rng.sample(range(len(problem.tensors)), len(problem.tensors))
    ops = rng.sample(range(len(problem.ops)), len(problem.ops))
    options = [rng.sample(range(len(problem.ops[op])), len(problem.ops[op])) for op in ops]
    place = {old: new for new, old in enumerate(tensors)}

    def moved_option(option: planner.Option) -> planner.Option:
        results, operands = (
            tuple((place[tensor], state) for tensor, state in states)
            for states in (option.result_states, option.operand_states)
        )
        return planner.Option(option.price, results, operands)

    ranks = problem.ranks
    found = planner.Problem(
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
        first = planner.solve(problem, [0] * len(problem.ops))
        second = planner.solve(other, [numbers.index(0) for numbers in options])
        chosen = {op: options[place][second.choice[place]] for place, op in enumerate(ops)}
        assert tuple(chosen[op] for op in range(len(ops))) == first.choice, seed


def test_without_time_the_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends early keeps the choice that it has, and the proof of its price."""
    monkeypatch.setattr(planner.solver, "search_limit", lambda _: {"mip_max_nodes": 0})
    for seed in SEEDS[:60]:
        problem = tied_problem(seed)
        solution = planner.solve(problem, [0] * len(problem.ops))
        assert solution.optimal and solution.choice in cheapest_of(problem), seed


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


def planned(graph: Graph, model: TiedCosts, pins: Mapping[Value, Format], seed: int) -> planner.Plan | None:
    try:
        return planner.make_plan(planner.PlanRequest(graph, model, pins, mode_of(seed) == "inference"))
    except PinError:
        return None


def without_constants(plan: planner.Plan) -> dict[Op, list[str]]:
    """The storages of the operands of every op that are not constants; a kernel decides those of constants."""
    return {
        op: [str(signature[slot]) for slot in op.slots() if not ((value := op.operand(slot)) and value.is_constant)]
        for op, signature in plan.signatures.items()
    }


def candidates_of(graph: Graph, model: TiedCosts, pins: dict[Value, Format]) -> dict[str, list[str]]:
    found = planner.propose(planner.RegionTree(graph), model, pins).signatures
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
        graphs = (graph, shuffled(graph, random.Random(seed)))
        first, second = (planner.make_plan(planner.PlanRequest(each, model)) for each in graphs)
        assert without_constants(first) == without_constants(second), seed
