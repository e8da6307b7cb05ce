"""Laws of the k-th cheapest plan: that of exhaustive search, different from all cheaper ones, within the limits of guards."""

from math import inf
from random import Random

import pytest
from test_guarded_plans import chain, chain_with_guards, model_at
from test_guarded_plans import graph as small_graph
from test_planner import choices, paid, random_problem
from test_planner_graphs import Generator, RandomCosts, built, passes_of

from layoutopt.ir.graph import Graph
from layoutopt.passes import AssignFormats
from layoutopt.passes.base import PassContext, Pipeline
from layoutopt.planner import Deadline, NoFurtherPlanError, PlanRequest, Problem, make_plan, solve
from layoutopt.planner.problem import Choice, Solution
from layoutopt.planner.ranking import GAP, LARGEST_EXCESS, ChoiceExclusion, solution_of_rank

graph = small_graph
DIFFERENCE = 0.1
EXCESS = 5.0


def numbers_of_options(problem: Problem) -> list[list[int]]:
    """Keys of formats of which no two are equal."""
    return [list(range(len(options))) for options in problem.ops]


def difference(problem: Problem, earlier: Choice, other: Choice) -> float:
    """The share of the price of a choice in ops that have another option, of another price, in the other choice."""
    pairs = zip(problem.ops, earlier, other, strict=True)
    changed = (options[a].price for options, a, b in pairs if options[a].price != options[b].price)
    return sum(changed) / (paid(problem, earlier) or 1.0)


@pytest.mark.parametrize("block", range(3))
def test_ranked_choices_are_those_of_exhaustive_search(block: int) -> None:
    ranks = 0
    for seed in range(block, 60, 3):
        problem = random_problem(seed)
        cheapest = solve(problem, [0] * len(problem.ops))
        earlier, priced = [cheapest], [(paid(problem, choice), choice) for choice in choices(problem)]
        for rank in (1, 2, 3):
            allowed = [
                price
                for price, choice in priced
                if all(difference(problem, each.choice, choice) >= DIFFERENCE - 1e-9 for each in earlier)
            ]
            least = min(allowed, default=inf)
            try:
                found, found_rank = solution_of_rank(
                    problem,
                    numbers_of_options(problem),
                    cheapest,
                    rank,
                    smallest_difference=DIFFERENCE,
                    largest_excess=EXCESS,
                )
            except NoFurtherPlanError:
                assert least > cheapest.price * (1 + EXCESS) * (1 - 1e-6), seed
                break
            assert found_rank == rank, seed
            assert found.price == pytest.approx(paid(problem, found.choice)), seed
            assert least * (1 - 1e-9) <= found.price <= least * (1 + 2 * GAP), seed
            assert all(difference(problem, each.choice, found.choice) >= DIFFERENCE - 1e-5 for each in earlier), seed
            assert found.lower_bound <= cheapest.price * (1 + 1e-6), seed
            earlier.append(found)
            ranks += 1
    assert ranks > 6


def test_known_choices_are_passed_over() -> None:
    """The result has the rank that gives the same choice without any known ones."""
    problem = chain(Random(1), 5)
    cheapest, numbers = solve(problem, [0] * 5), numbers_of_options(problem)
    known: list[Choice] = []
    for rank in range(4):
        found, its_rank = solution_of_rank(problem, numbers, cheapest, 0, is_known=known.__contains__, largest_excess=9)
        assert its_rank == rank and found.choice not in known
        assert solution_of_rank(problem, numbers, cheapest, rank, largest_excess=9) == (found, rank)
        known.append(found.choice)
    with pytest.raises(NoFurtherPlanError, match="the 5 cheapest plans are those of earlier variants"):
        solution_of_rank(problem, numbers, cheapest, 0, is_known=lambda choice: True, largest_excess=9)


def test_an_exclusion_counts_ops_whose_formats_and_prices_differ() -> None:
    problem = chain(Random(0), 4)
    choice = (0, 1, 2, 0)
    formats = [[0, 0, 1], *numbers_of_options(problem)[1:]]  # the first op has two options of the same formats
    exclusion = ChoiceExclusion.of(problem, formats, choice, 0.01)
    assert not exclusion.allows(choice) and not exclusion.allows((1, 1, 2, 0)) and exclusion.allows((2, 1, 2, 0))


@pytest.mark.parametrize("seed", range(12))
def test_ranked_choices_are_within_the_limits_of_guards(seed: int) -> None:
    problem, limits, allowed = chain_with_guards(seed)
    best = allowed[0]
    cheapest = Solution(best, problem.price(best), 0.0, False)
    others = [choice for choice in allowed if difference(problem, best, choice) >= 0.05]
    least = min(map(problem.price, others), default=inf)
    if least > 2 * cheapest.price:
        with pytest.raises(NoFurtherPlanError, match="at most 100% more time"):
            solution_of_rank(problem, numbers_of_options(problem), cheapest, 1, limits, largest_excess=1.0)
        return
    found, _ = solution_of_rank(problem, numbers_of_options(problem), cheapest, 1, limits, largest_excess=1.0)
    assert all(limit.allows(found.choice) for limit in limits)
    assert least * (1 - 1e-9) <= found.price <= least * (1 + 2 * GAP)


def test_ranked_plans_of_graphs() -> None:
    """They have the price of the graph that is built, the bound of the cheapest plan, and a gap."""
    found = 0
    for seed in range(36):
        cheapest = make_plan(PlanRequest(Generator(seed).build(), RandomCosts(seed)))
        last = cheapest.seconds
        for rank in (1, 2):
            graph, model = Generator(seed).build(), RandomCosts(seed)
            context = PassContext(model, plan_rank=rank)
            try:
                AssignFormats().run(graph, context)
            except NoFurtherPlanError:
                break
            plan = context.plan
            assert plan is not None and not plan.optimal, seed
            assert last * (1 - 2 * GAP) <= plan.seconds <= cheapest.seconds * (1 + LARGEST_EXCESS + GAP), seed
            assert plan.lower_bound == cheapest.lower_bound, seed
            assert plan.gap == pytest.approx(1 - plan.lower_bound / plan.seconds), seed
            Pipeline(passes_of("inference").passes[1:]).run(graph, context)
            assert built(graph, model) == pytest.approx(plan.seconds, rel=1e-9), seed
            last = max(last, plan.seconds)
            found += 1
    assert found > 12


def test_the_reasons_why_there_is_no_further_plan(graph: Graph) -> None:
    model = model_at(graph, 5)
    with pytest.raises(NoFurtherPlanError, match="estimated to take at most 10% more time"):
        make_plan(PlanRequest(graph, model, rank=1))
    with pytest.raises(NoFurtherPlanError, match="the time limit ended planning"):
        make_plan(PlanRequest(graph, model, rank=1, deadline=Deadline(0.0)))
