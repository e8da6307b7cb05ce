"""Laws of planning across region boundaries: the plan is optimal, the passes build it, and the result is equivalent.

Prices are random, so boundary values have all formats that the rules allow, with padding in every state.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import control_flow_models
import onnx_ir
import pytest
from test_planner_graphs import RandomCosts, built, candidates_of, cheapest
from tiers import tiered

from layoutopt import inference, onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects import DIALECTS, Dialect
from layoutopt.ir import Graph
from layoutopt.passes import AssignFormats, default_pipeline
from layoutopt.passes.base import Mode, PassContext, Pipeline
from layoutopt.planner import PlanRequest, RegionTree, make_plan
from layoutopt.testing.rules import lower
from layoutopt.verification import verify_models

NAMES = tuple(control_flow_models.MODELS)
MOST_COMBINATIONS = 2_000
BLOCK = {"cpu-avx512": 16, "cpu-avx2": 8}.get(host_target(), 0)


def costs(seed: int) -> RandomCosts:
    """Random prices and preferred formats for all ops."""
    return RandomCosts(seed, kinds=(), fewest=0)


def lifted(name: str) -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(control_flow_models.load(name)))


def passes_of(mode: Mode, *, whole: bool) -> Pipeline:
    passes = default_pipeline(mode).passes
    first = next(place for place, step in enumerate(passes) if isinstance(step, AssignFormats))
    return Pipeline(passes if whole else passes[first:])


def run_passes(graph: Graph, seed: int, mode: Mode, *, whole: bool) -> PassContext:
    context = PassContext(costs(seed), mode)
    passes_of(mode, whole=whole).run(graph, context)
    return context


def faults(name: str, seeds: Sequence[int], dialects: Sequence[Dialect]) -> Iterator[str]:
    """The faults of a model under random prices."""
    model = control_flow_models.load(name)
    for seed in seeds:
        mode: Mode = "training" if seed % 5 == 0 else "inference"
        graph = lifted(name)
        run_passes(graph, seed, mode, whole=True)
        for dialect in dialects:
            if dialect.block(graph) not in (0, BLOCK):
                continue
            emitted = onnx_io.emit(lower(graph, dialect.name))
            onnx_io.check(emitted)
            verdict = verify_models(model.SerializeToString(), onnx_io.to_bytes(emitted))
            if verdict.status != "passed":
                yield f"{name}, seed {seed}, {dialect.name}: {verdict.reason}"


@pytest.mark.parametrize(("seeds", "name"), [*product([None], NAMES), *tiered(product([60], NAMES), 0)])
def test_any_formats_may_cross(seeds: int | None, name: str) -> None:
    """In the quick tier every model in one of the dialects, each dialect with several models."""
    number, dialects = NAMES.index(name), [*DIALECTS.values()]
    if seeds is None:
        assert not list(faults(name, [number], [dialects[number % len(dialects)]]))
    else:
        assert not list(faults(name, range(seeds), dialects))


@pytest.mark.parametrize("name", NAMES)
def test_the_passes_build_what_was_priced(name: str) -> None:
    graph, seed = lifted(name), 1 + NAMES.index(name)
    context = run_passes(graph, seed, "inference", whole=False)
    assert context.plan is not None
    assert built(graph, costs(seed)) == pytest.approx(context.plan.seconds, rel=2e-3)


@pytest.mark.parametrize(("least", "name"), [*product([1], NAMES), *tiered(product([9], NAMES), 0)])
def test_a_plan_is_the_cheapest(least: int, name: str) -> None:
    """The plan has the lowest price of all combinations of candidates, computed by definition."""
    proven = 0
    for seed in range(1, 30):
        graph, model = lifted(name), costs(seed)
        tree = RegionTree(graph)
        candidates = candidates_of(tree, model, {}, MOST_COMBINATIONS)
        if candidates is None or all(len(each) == 1 for each in candidates.values()):
            continue
        best = cheapest(tree, model, candidates, {})
        plan = make_plan(PlanRequest(graph, model))
        assert plan.seconds == pytest.approx(best, rel=1e-6), seed
        assert plan.lower_bound == pytest.approx(best, rel=1e-6), seed
        proven += 1
        if proven == least:
            return
    assert proven or name in MANY_COMBINATIONS


MANY_COMBINATIONS = frozenset({"nested"})
