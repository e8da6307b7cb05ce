"""Laws of forced formats and forbidden conversions on random graphs; the price of a plan is the sum of its parts."""

from collections.abc import Iterator

import pytest
from test_planner_graphs import Generator, RandomCosts

from layoutopt.errors import PinError
from layoutopt.ir.types import Op
from layoutopt.planner import FormulatedPlan, PlanRequest, ProblemEdit, Repricer, make_formulated_plan, make_plan
from layoutopt.planner.propagation import storage_key

SEEDS = range(14)


def planned(seed: int) -> tuple[PlanRequest, FormulatedPlan, Repricer]:
    request = PlanRequest(Generator(seed).build(), RandomCosts(seed))
    found = make_formulated_plan(request)
    return request, found, Repricer(found.formulation.problem, found.choice)


def forced(found: FormulatedPlan) -> Iterator[tuple[Op, int, dict[object, list[int]]]]:
    """Every op with a choice, an output of it, and the options by the format of that output."""
    for number, unit in enumerate(found.formulation.tree.units):
        value = unit.outputs[0]
        if isinstance(unit, Op) and value is not None and len(found.formulation.signatures[unit]) > 1:
            options: dict[object, list[int]] = {}
            for option, signature in enumerate(found.formulation.signatures[unit]):
                options.setdefault(storage_key(value, signature.outputs[0]), []).append(option)
            yield unit, number, options


def test_a_forced_format_costs_what_a_plan_with_that_pin_costs() -> None:
    compared = dearer = 0
    for seed in SEEDS:
        request, found, repricer = planned(seed)
        for op, number, options in list(forced(found))[:2]:
            value = op.outputs[0]
            assert value is not None
            if found.formulation.tree.is_output(value):
                continue
            for each in options.values():
                storage = found.formulation.signatures[op][each[0]].outputs[0]
                assert storage is not None
                repriced = repricer.reprice(ProblemEdit(allowed_options={number: frozenset(each)}))
                try:
                    pinned = make_plan(PlanRequest(request.graph, request.cost_model, {value: storage.format})).seconds
                except PinError:
                    continue
                assert repriced.is_proven, seed
                assert found.plan.seconds + repriced.extra == pytest.approx(pinned, rel=2e-6), (seed, op)
                compared, dearer = compared + 1, dearer + (repriced.extra > 0)
    assert compared > 15
    assert dearer > 5


def test_a_plan_costs_its_ops_and_conversions_and_is_the_cheapest_under_every_edit_that_permits_it() -> None:
    forbidden = 0
    for seed in SEEDS:
        _, found, repricer = planned(seed)
        problem = found.formulation.problem
        casts = problem.required_casts(found.choice) or []
        kernels = sum(options[option].price for options, option in zip(problem.ops, found.choice, strict=True))
        conversions = sum(problem.tensors[tensor].prices[cast] for tensor, cast in casts)
        assert kernels + conversions == pytest.approx(found.plan.seconds, rel=1e-9), seed
        for _, number, options in forced(found):
            own = next(each for each in options.values() if found.choice[number] in each)
            assert repricer.reprice(ProblemEdit(allowed_options={number: frozenset(own)})).extra == 0.0, seed
        for cast in casts[:3]:
            edit = ProblemEdit(forbidden_casts=frozenset({cast}))
            repriced = repricer.reprice(edit)
            assert repriced.extra >= 0.0 and repriced.is_proven, seed
            if repriced.extra < float("inf"):
                choice = repricer.nearest(repriced, edit)
                assert cast not in (problem.required_casts(choice) or []), seed
                assert problem.price(choice) == pytest.approx(found.plan.seconds + repriced.extra, rel=2e-6), seed
                forbidden += 1
    assert forbidden > 5
