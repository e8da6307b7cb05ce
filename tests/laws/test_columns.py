"""Laws of column generation: the plan is the best of all candidates, although only a part of them is offered to the solver."""

from itertools import product

import numpy as np
import pytest
from test_planner import choices, paid, random_problem
from test_planner_graphs import Generator, RandomCosts, candidates_of, cheapest, mode_of, random_pins
from test_planner_ties import cheapest_of, moved, tied_problem
from tiers import tiered

from layoutopt.cost import MultiTargetCostModel
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir import Graph, Op, Value
from layoutopt.ops import Inapplicable, rule_of
from layoutopt.planner import Deadline, Plan, PlanRequest, Problem, RegionTree, make_plan, propagation, propose, solve
from layoutopt.planner.columns import Potentials
from layoutopt.planner.program import Program
from layoutopt.planner.unit_signatures import signature_key

LIMITS = [(1, 1), (2, 2), (3, 4), (2, 64), (8, 3)]  # of formats per value, and of combinations per op
UNLIMITED = (10**9, 10**9)
GRAPHS = 300


def offer(problem: Problem, seed: int) -> Problem:
    """The problem with a random number of the options of every op offered."""
    rng = np.random.default_rng(2_000_000 + seed)
    numbers = {op: int(rng.integers(1, len(options) + 1)) for op, options in enumerate(problem.ops)}
    offered = {op: number for op, number in numbers.items() if number < len(problem.ops[op])}
    return Problem(problem.ops, problem.tensors, problem.ranks, offered)


@pytest.mark.parametrize("block", tiered(range(4), 2))
def test_the_solution_is_the_cheapest_of_all_options(block: int) -> None:
    for seed in range(block, 600, 4):
        problem = offer(random_problem(seed), seed)
        solution = solve(problem, [0] * len(problem.ops))
        best = min(paid(problem, choice) for choice in choices(problem))
        assert solution.optimal and solution.gap == 0, seed
        assert solution.price == pytest.approx(best, rel=1e-6, abs=1e-300), seed


@pytest.mark.parametrize("block", tiered(range(2), 1))
def test_options_that_are_not_offered_take_part_in_ties(block: int) -> None:
    for seed in range(block, 300, 2):
        problem = offer(tied_problem(seed), seed)
        solution = solve(problem, [0] * len(problem.ops))
        cheapest_choices = cheapest_of(problem)
        assert solution.choice in cheapest_choices, seed
        assert moved(problem, solution.choice) == min(moved(problem, choice) for choice in cheapest_choices), seed


def test_every_bound_holds_for_every_choice() -> None:
    """With the multipliers of a part's linear program, and with none."""
    tight = 0
    for seed in range(300):
        problem = offer(random_problem(seed), seed)
        prices = {choice: paid(problem, choice) for choice in choices(problem)}
        part = Problem(
            [op[: problem.offered.get(number, len(op))] for number, op in enumerate(problem.ops)], problem.tensors
        )
        start = (0,) * len(problem.ops)
        program = Program(part, (part.price(start) - part.lower_bound()) or 1.0)
        found = program.run(False, start, None).multipliers
        best = min(prices.values())
        for multipliers in (found, np.zeros_like(found)):
            for bound in Potentials(problem).bounds(program, multipliers, part.upper_bound()):
                assert bound.price <= best * (1 + 1e-6) + 1e-12, seed
                tight += bound.price >= best * (1 - 1e-6)
                for choice, price in prices.items():
                    least = max(bound.price + bound.reduced_costs[op][option] for op, option in enumerate(choice))
                    assert least <= price * (1 + 1e-6) + 1e-9, seed
    assert tight > 300


def test_without_time_the_bound_holds_for_all_options() -> None:
    for seed in range(200):
        problem = offer(random_problem(seed), seed)
        solution = solve(problem, [0] * len(problem.ops), time_limit=0.0)
        best = min(paid(problem, choice) for choice in choices(problem))
        assert solution.lower_bound <= best * (1 + 1e-6) <= solution.price * (1 + 2e-6), seed


def limit(monkeypatch: pytest.MonkeyPatch, formats: int, combinations: int) -> None:
    monkeypatch.setattr(propagation, "MAX_FORMATS", formats)
    monkeypatch.setattr(propagation, "MAX_COMBINATIONS", combinations)


def planned(graph: Graph, model: RandomCosts, pins: dict[Value, Format], seed: int) -> Plan | None:
    try:
        return make_plan(PlanRequest(graph, model, pins, mode_of(seed) == "inference"))
    except PinError:
        return None


def cut_graphs(monkeypatch: pytest.MonkeyPatch, block: int, count: int) -> list[tuple[int, Plan, float]]:
    """Seed, plan and the price of the cheapest combination, for graphs from which the limits cut candidates."""
    found: list[tuple[int, Plan, float]] = []
    seed = block
    while len(found) < count:
        limit(monkeypatch, *LIMITS[seed // 5 % len(LIMITS)])
        graph, model = Generator(seed).build(), RandomCosts(seed)
        pins = random_pins(graph, seed)
        plan = planned(graph, model, pins, seed)
        if plan is not None and plan.examined:
            signatures = candidates_of(graph, model, pins)
            if signatures is not None:
                found.append((seed, plan, cheapest(graph, model, signatures, pins, mode_of(seed))))
        seed += 5
    return found


@pytest.mark.parametrize("block", tiered(range(5), 2))
def test_the_plan_is_the_cheapest_combination_of_all_legal_signatures(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, plan, best in cut_graphs(monkeypatch, block, GRAPHS // 5):
        assert plan.seconds == pytest.approx(best, rel=1e-6), seed
        assert plan.optimal and plan.gap == 0 and plan.unexamined == 0, seed


@pytest.mark.parametrize("block", tiered(range(2), 1))
def test_all_signatures_of_the_rules_are_examined(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formats of a propagation without limits, and the products of the formats of independent operands."""
    examined = 0
    for seed in range(block, 300, 2):
        graph, model = Generator(seed).build(), RandomCosts(seed)
        pins = random_pins(graph, seed)
        limit(monkeypatch, *UNLIMITED)
        tree = RegionTree(graph)
        full = propose(tree, model, pins)
        limit(monkeypatch, *LIMITS[1 + seed % 4])
        cut = propose(tree, model, pins)
        examined += cut.examined
        if not cut.examined:
            continue
        for unit, signatures in full.signatures.items():
            keys = {signature_key(unit, each) for each in cut.signatures[unit]}
            assert keys.issuperset(signature_key(unit, each) for each in signatures), seed
            rule = rule_of(unit) if isinstance(unit, Op) else None
            if rule is None or not rule.has_independent_operands:
                continue
            columns = [{each[slot].format for each in signatures if each[slot] is not None} for slot in unit.slots()]
            for formats in product(*columns):
                legal = rule.signature(unit, dict(zip(unit.slots(), formats, strict=True)))
                assert isinstance(legal, Inapplicable) or signature_key(unit, legal) in keys, seed
    assert examined > 200


@pytest.mark.parametrize("block", tiered(range(2), 1))
def test_the_bound_holds_for_signatures_that_are_not_examined(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "EXAMINED_SHARE", 0.0)
    left = 0
    for seed in range(block, 250, 2):
        graph, model = Generator(seed).build(), RandomCosts(seed)
        pins = random_pins(graph, seed)
        limit(monkeypatch, *LIMITS[seed % len(LIMITS)])
        monkeypatch.setattr(propagation, "MIN_EXAMINED", 10**6)
        best = planned(graph, model, pins, seed)
        monkeypatch.setattr(propagation, "MIN_EXAMINED", seed % 7)
        plan = planned(graph, model, pins, seed)
        if plan is None or best is None or not plan.unexamined:
            continue
        left += 1
        assert plan.lower_bound <= best.seconds * (1 + 1e-6) <= plan.seconds * (1 + 2e-6), seed
        assert plan.optimal == (plan.gap == 0), seed
        assert plan.seconds * (1 - plan.gap) == pytest.approx(plan.lower_bound, abs=1e-12), seed
    assert left > 20


def test_several_targets_choose_among_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(60):
        graph = Generator(seed).build()
        models = MultiTargetCostModel([RandomCosts(seed, "first"), RandomCosts(seed, "second")])
        limit(monkeypatch, 2, 2)
        plan = make_plan(PlanRequest(graph, models))
        if not plan.examined:
            continue
        assert plan.gap == 0 and plan.optimal and plan.unexamined == 0, seed
        alone = planned(graph, RandomCosts(seed), {}, 1)
        assert alone is not None
        assert [each.alone for each in plan.outcomes] == pytest.approx([alone.seconds] * 2), seed
        compared += 1
    assert compared > 10


def test_the_deadline_ends_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time the original graph is the plan, and nothing is proven."""
    limit(monkeypatch, 1, 1)
    for seed in range(40):
        plan = make_plan(PlanRequest(Generator(seed).build(), RandomCosts(seed), deadline=Deadline(0.0)))
        assert plan.stopped == "candidates" and plan.lower_bound == 0, seed
