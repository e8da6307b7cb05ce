"""Laws of repricing: the extra price of an edited planning problem is that of exhaustive search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod
from random import Random

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import parser
from test_planner import choices, paid, priced_anew, random_problem
from test_planner_graphs import Generator, RandomCosts

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost import CostModel, priced_with
from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Slot, Storage, Value
from layoutopt.ops import OperandFormats, estimated_volume
from layoutopt.planner import Option, PlanRequest, Problem, Tensor, make_formulated_plan, make_plan, solve
from layoutopt.planner.planning import Limit
from layoutopt.planner.problem import GRAPH_OUTPUT, Choice, ProblemEdit
from layoutopt.planner.program import cheapest_within
from layoutopt.planner.propagation import storage_key
from layoutopt.planner.repricing import Repriced, Repricer
from layoutopt.record import Record
from layoutopt.sample_inputs.dimensions import Dimensions, plausible_sizes

PROBLEMS = 60
MOST_CHOICES = 120
EXACT = 2e-6


@dataclass
class Case:
    """A problem with its best choice and the prices of all choices."""

    seed: int
    problem: Problem
    best: float = field(init=False)
    repricer: Repricer = field(init=False)
    prices: dict[tuple[int, ...], float] = field(init=False)

    def __post_init__(self) -> None:
        solution = solve(self.problem, [0] * len(self.problem.ops))
        self.best, self.repricer = solution.price, Repricer(self.problem, solution.choice)
        self.prices = {choice: paid(self.problem, choice) for choice in choices(self.problem)}

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(3_000_000 + self.seed)


def cases() -> Iterator[Case]:
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        if prod(map(len, problem.ops)) <= MOST_CHOICES:
            yield Case(seed, problem)


def agrees(case: Case, edit: ProblemEdit, best: float) -> None:
    found = case.repricer.reprice(edit)
    if not isfinite(best):
        assert found.extra == inf and found.is_proven, case.seed
        return
    assert found.is_proven, case.seed
    assert found.extra == pytest.approx(best - case.best, rel=EXACT, abs=EXACT * best), case.seed


def test_a_forbidden_cast_costs_what_the_cheapest_choice_without_it_costs() -> None:
    for case in cases():
        problem, repricer = case.problem, case.repricer
        for cast in problem.required_casts(repricer.choice) or ():
            allowed = (price for choice, price in case.prices.items() if cast not in _casts(problem, choice))
            agrees(case, ProblemEdit(forbidden_casts=frozenset({cast})), min(allowed, default=inf))


def test_an_op_of_no_price_whose_only_cast_is_forbidden_is_impossible() -> None:
    """Its price has no upper bound above the lower one, from which the solver could tell that it has searched enough."""
    tensor = Tensor({(0, 2): 0, (1, 2): 0}, [1.0], required_states=[2])
    problem = Problem([[Option(0.0, ((0, 0),)), Option(0.0, ((0, 1),))]], [tensor])
    found = Repricer(problem, [0]).reprice(ProblemEdit(forbidden_casts=frozenset({(0, 0)})))
    assert found.extra == inf and found.is_proven


def test_a_forced_option_costs_what_the_cheapest_choice_with_it_costs_and_the_chosen_one_nothing() -> None:
    for case in cases():
        op = int(case.rng().integers(len(case.problem.ops)))
        for option in range(len(case.problem.ops[op])):
            edit = ProblemEdit(allowed_options={op: frozenset({option})})
            agrees(case, edit, min(price for choice, price in case.prices.items() if choice[op] == option))
            extra = case.repricer.reprice(edit).extra
            assert extra >= 0.0, case.seed
            assert option != case.repricer.choice[op] or extra == 0.0, case.seed


def test_a_removed_requirement_saves_what_the_cheapest_choice_without_it_saves() -> None:
    saved = 0
    for case in cases():
        problem = case.problem
        op = int(case.rng().integers(len(problem.ops)))
        tensor = int(case.rng().choice([number for number, _ in problem.ops[op][0].operand_states]))
        edit = ProblemEdit(free_reads=frozenset({(op, tensor)}))
        others = Problem([*problem.ops], problem.tensors)
        others.ops[op] = [_without(option, "operand_states", tensor) for option in problem.ops[op]]
        best = min(paid(others, choice) for choice in case.prices)
        agrees(case, edit, best)
        saved += best < case.best * (1 - 1e-3)
    assert saved > 3


def test_an_output_of_the_graph_in_any_format_saves_what_the_cheapest_choice_without_its_requirement_saves() -> None:
    saved = 0
    for case in cases():
        for number, tensor in enumerate(case.problem.tensors):
            if tensor.required_states:
                tensors = [*case.problem.tensors]
                tensors[number] = replace(tensor, required_states=[])
                others = Problem(case.problem.ops, tensors)
                best = min(paid(others, choice) for choice in case.prices)
                agrees(case, ProblemEdit(free_reads=frozenset({(GRAPH_OUTPUT, number)})), best)
                saved += best < case.best * (1 - 1e-3)
    assert saved > 3


def test_a_tensor_produced_in_every_state_needs_no_cast() -> None:
    for case in cases():
        problem = case.problem
        number = int(case.rng().integers(len(problem.tensors)))
        tensor = problem.tensors[number]
        free = Tensor(dict.fromkeys(tensor.casts), [], 0)  # every pair without a cast
        states = {state for pair in tensor.casts for state in pair} | set(tensor.required_states)
        free.casts.update({(0, state): None for state in states})
        ops = [[_without(option, "result_states", number) for option in options] for options in problem.ops]
        others = Problem(ops, [free if each is tensor else each for each in problem.tensors])
        best = min(paid(others, choice) for choice in case.prices)
        agrees(case, ProblemEdit(free_results=frozenset({number})), best)


def test_a_choice_of_one_price_is_set_back_where_that_costs_nothing_and_the_edit_permits_it() -> None:
    nearer = 0
    for case in cases():
        problem = _with_ties(case.problem)
        op = int(case.rng().integers(len(problem.ops)))
        given = solve(problem, [0] * len(problem.ops)).choice
        repricer = Repricer(problem, given)
        prices = {choice: paid(problem, choice) for choice in case.prices}
        edits = [ProblemEdit(allowed_options={op: frozenset({option})}) for option in range(len(problem.ops[op]))]
        edits += [ProblemEdit(forbidden_casts=frozenset({cast})) for cast in _casts(problem, given)]
        for edit in edits:
            permitted = {
                choice: price
                for choice, price in prices.items()
                if all(choice[op] in options for op, options in edit.allowed_options.items())
                and edit.forbidden_casts.isdisjoint(_casts(problem, choice))
            }
            best = min(permitted.values(), default=inf)
            for choice in (choice for choice, price in permitted.items() if isfinite(price) and price == best):
                found = repricer.nearest(Repriced(0.0, 0.0, choice), edit)
                before, after = (sum(a != b for a, b in zip(each, given, strict=True)) for each in (choice, found))
                assert permitted[found] == best and after <= before, case.seed
                nearer += after < before
    assert nearer > 5


def _with_ties(problem: Problem) -> Problem:
    """The problem with prices of 0, 1 and 2, so that many choices have one price."""
    ops = [[replace(option, price=float(round(option.price) % 3)) for option in options] for options in problem.ops]
    tensors = [
        replace(tensor, prices=[float(round(price) % 3) for price in tensor.prices]) for tensor in problem.tensors
    ]
    return Problem(ops, tensors)


def _without(option: Option, side: str, tensor: int) -> Option:
    """The option without the states of a tensor among its operands or its results."""
    return replace(option, **{side: tuple(each for each in getattr(option, side) if each[0] != tensor)})


def _casts(problem: Problem, choice: tuple[int, ...]) -> list[tuple[int, int]]:
    return problem.required_casts(choice) or []


def test_a_forced_format_of_a_graph_costs_what_a_plan_with_that_pin_costs() -> None:
    compared = dearer = 0
    for seed in range(14):
        request = PlanRequest(Generator(seed).build(), RandomCosts(seed))
        found = make_formulated_plan(request)
        tree, signatures = found.formulation.tree, found.formulation.signatures
        repricer = Repricer(found.formulation.problem, found.choice)
        free = [
            (number, op.outputs[0], signatures[op])
            for number, op in enumerate(tree.ops)
            if op.outputs[0] is not None and len(signatures[op]) > 1
        ]
        for number, value, candidates in free[:2]:
            if tree.is_output(value):
                continue
            options: dict[object, list[int]] = {}
            for option, signature in enumerate(candidates):
                options.setdefault(storage_key(value, signature.outputs[0]), []).append(option)
            for each in options.values():
                storage = candidates[each[0]].outputs[0]
                repriced = repricer.reprice(ProblemEdit(allowed_options={number: frozenset(each)}))
                try:
                    pinned = make_plan(PlanRequest(request.graph, request.cost_model, {value: storage.format})).seconds
                except PinError:
                    continue
                assert repriced.is_proven, seed
                assert found.plan.seconds + repriced.extra == pytest.approx(pinned, rel=2e-6), (seed, value)
                compared, dearer = compared + 1, dearer + (repriced.extra > 0)
    assert compared > 15
    assert dearer > 5


# --- plans within guards ---------------------------------------------------------------------------------

NHWC = Format.parse("NHWC")
RELU = '<ir_version: 8, opset_import: ["" : 18]> net (float[1,4,H,W] x) => (float[1,4,H,W] y) { y = Relu (x) }'


def limited_problem(seed: int, count: int) -> tuple[Problem, list[Limit], Choice, list[Choice]]:
    """A problem, the limits of guards, a choice within them, and all of these choices, the cheapest first."""
    problem = random_problem(seed)
    every = [choice for choice in choices(problem) if isfinite(problem.price(choice))][:400]
    start = Random(seed).choice(every)
    guards = [priced_anew(problem, 1000 * number + seed) for number in range(1, count + 1)]
    limits = [Limit(each, each.price(start)) for each in guards]
    allowed = [choice for choice in choices(problem) if all(limit.allows(choice) for limit in limits)]
    return problem, limits, start, sorted(allowed, key=problem.price)


@pytest.mark.parametrize("seed", range(25))
def test_the_search_finds_what_brute_force_finds(seed: int) -> None:
    problem, limits, start, allowed = limited_problem(seed, 3)
    best = problem.price(allowed[0])
    choice, bound = cheapest_within(problem, limits, start, problem.price(start), 20.0)
    assert all(limit.allows(choice) for limit in limits)
    assert min(problem.price(choice), problem.price(start)) == pytest.approx(best, rel=1e-5)
    assert bound <= best * (1 + 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_other_choices_are_priced_within_the_limits_of_the_guards(seed: int) -> None:
    problem, limits, _, allowed = limited_problem(seed, 2)
    best = allowed[0]
    repricer = Repricer(problem, best, limits=limits)
    for op, options in enumerate(problem.ops):
        for option in range(len(options)):
            found = repricer.reprice(ProblemEdit(allowed_options={op: frozenset({option})}))
            others = [problem.price(choice) for choice in allowed if choice[op] == option]
            assert found.is_proven
            least = min(others, default=inf) - problem.price(best)
            assert found.extra == pytest.approx(least, rel=2e-6, abs=2e-6 * problem.price(best))


class OnlySmall(Record):
    """A kernel in NHWC that is faster where a tensor is small, and slower where it is large."""

    name: str = "only-small"
    dialect: str = "functions"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        return [{Slot("in", 0): NHWC, Slot("out", 0): NHWC}] if op.kind == "Relu" else []

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        value, storage = op.inputs[0], signature.inputs[0]
        size = float(estimated_volume(value.static_shape))
        if op.kind != "Relu" or storage.format.key(value.static_shape) == Format.canonical(4).key(value.static_shape):
            return size
        return 0.1 * size if size < 1000 else 10 * size

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        shape = value.static_shape
        return 0.0 if src.format.key(shape) == dst.format.key(shape) else 0.01 * float(estimated_volume(shape))


@pytest.fixture
def graph() -> Graph:
    return inference.lift(onnx_io.from_message(parser.parse_model(RELU)))


def model_at(graph: Graph, size: int) -> CostModel:
    return priced_with(OnlySmall(), sizes=plausible_sizes(Dimensions.of(graph, {"H": size, "W": size})))


def test_a_plan_that_loses_elsewhere_is_not_taken(graph: Graph) -> None:
    model, guard = model_at(graph, 5), model_at(graph, 50)
    greedy = make_plan(PlanRequest(graph, model))
    assert greedy.improves and not greedy.is_limited_by_guards
    careful = make_plan(PlanRequest(graph, model, guards=[guard]))
    assert careful.is_limited_by_guards and not careful.improves and careful.seconds == careful.baseline
    assert careful.lower_bound <= careful.seconds
    assert make_plan(PlanRequest(graph, model, guards=[model])).seconds == greedy.seconds


def test_a_guess_is_guarded_and_a_size_that_is_given_is_not() -> None:
    model: onnx.ModelProto = parser.parse_model(RELU)
    result = layoutopt.optimize(model, OnlySmall(), dims={"H": 5, "W": 5}, verify=False)
    assert result.plan is not None and result.plan.improves
    guessed = layoutopt.optimize(model, OnlySmall(), dims={"H": 1}, verify=False)
    assert guessed.plan is not None and guessed.plan.is_limited_by_guards and not guessed.plan.improves
    assert [note.where for note in guessed.report.notes if note.source == "assign-formats"] == ["W"]
