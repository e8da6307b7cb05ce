"""A plan for inferred sizes is no slower than the original graph at other sizes, and the cheapest of such plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from random import Random

import onnx
import pytest
from onnx import parser
from test_planner import choices, priced_anew, random_problem

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost import CostModel, priced_with
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Slot, Storage, Value
from layoutopt.ops import OperandFormats, estimated_volume
from layoutopt.planner import PlanRequest, Problem, ProblemEdit, Repricer, make_plan
from layoutopt.planner.planning import GuardLimit
from layoutopt.planner.problem import Choice
from layoutopt.planner.program import cheapest_within
from layoutopt.sample_inputs.dimensions import Dimensions, plausible_sizes

NHWC = Format.parse("NHWC")
RELU = '<ir_version: 8, opset_import: ["" : 18]> net (float[1,4,H,W] x) => (float[1,4,H,W] y) { y = Relu (x) }'


def guarded(seed: int, count: int) -> tuple[Problem, list[GuardLimit], Choice, list[Choice]]:
    """A problem, the limits of guards, a choice within them, and all of these choices, the cheapest first."""
    problem = random_problem(seed)
    every = [choice for choice in choices(problem) if isfinite(problem.price(choice))][:400]
    start = Random(seed).choice(every)
    guards = [priced_anew(problem, 1000 * number + seed) for number in range(1, count + 1)]
    limits = [GuardLimit(each, each.price(start)) for each in guards]
    allowed = [choice for choice in choices(problem) if all(limit.allows(choice) for limit in limits)]
    return problem, limits, start, sorted(allowed, key=problem.price)


@pytest.mark.parametrize("seed", range(25))
def test_the_search_finds_what_brute_force_finds(seed: int) -> None:
    problem, limits, start, allowed = guarded(seed, 3)
    best = problem.price(allowed[0])
    choice, bound = cheapest_within(problem, limits, start, problem.price(start), 20.0)
    assert all(limit.allows(choice) for limit in limits)
    assert min(problem.price(choice), problem.price(start)) == pytest.approx(best, rel=1e-5)
    assert bound <= best * (1 + 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_other_choices_are_priced_within_the_limits_of_the_guards(seed: int) -> None:
    problem, limits, _, allowed = guarded(seed, 2)
    best = allowed[0]
    repricer = Repricer(problem, best, limits=limits)
    for op, options in enumerate(problem.ops):
        for option in range(len(options)):
            found = repricer.reprice(ProblemEdit(allowed_options={op: frozenset({option})}))
            others = [problem.price(choice) for choice in allowed if choice[op] == option]
            assert found.is_proven
            least = min(others, default=inf) - problem.price(best)
            assert found.extra == pytest.approx(least, rel=2e-6, abs=2e-6 * problem.price(best))


@dataclass(frozen=True)
class OnlySmall:
    """A kernel in NHWC that is faster where a tensor is small, and slower where it is large."""

    name: str = "only-small"
    dialect: str = "functions"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        return [{Slot("in", 0): NHWC, Slot("out", 0): NHWC}] if op.kind == "Relu" else []

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        value, storage = op.inputs[0], signature.inputs[0]
        assert value is not None and value.static_shape is not None and storage is not None
        size = float(estimated_volume(value.static_shape))
        if op.kind != "Relu" or storage.format.key(value.static_shape) == Format.canonical(4).key(value.static_shape):
            return size
        return 0.1 * size if size < 1000 else 10 * size

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        shape = value.static_shape
        assert shape is not None
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
