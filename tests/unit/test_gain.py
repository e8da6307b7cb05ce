"""The baseline of a plan, what the runtime would run by itself, and the causes of the estimated gain."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import onnx
import onnx.parser
import pytest
from text_models import text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost import Epilogues
from layoutopt.cost.size_growth import GrowthRequest
from layoutopt.cost_models import load_target
from layoutopt.cost_models.epilogues import EpilogueRule, find_epilogues
from layoutopt.driver import prices
from layoutopt.driver.prices import (
    check_bound,
    gain_at_target_prices,
    gain_at_timed_prices,
    reason_of_loss,
    within_growth,
)
from layoutopt.errors import InvariantError
from layoutopt.ir.graph import Graph
from layoutopt.kernel_times import RefinedPlan
from layoutopt.kernel_times.prices import UsedKernel
from layoutopt.ops import canonical_signature
from layoutopt.planner import Plan
from layoutopt.report.schema import GainReport

ANY_OP = EpilogueRule(family=("convolution", "matmul"), source="here")
HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'

NORMALISED = """g (float[1,8,16,16] x) => (float[1,8,16,16] y)
<float[8,8,3,3] w, float[8] s, float[8] b, float[8] m, float[8] v>
{ a = Conv<pads=[1,1,1,1]>(x, w) y = BatchNormalization(a, s, b, m, v) }"""
CHAIN = """g (float[1,64,28,28] x) => (float[1,64,28,28] y) <float[64,64,3,3] w>
{ a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, w)
  d = Add(c, b) e = Relu(d) y = Conv<pads=[1,1,1,1]>(e, w) }"""
SWISH = (
    "g (float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,1,1] w> { a = Conv(x, w) s = Sigmoid(a) y = Mul(a, s) }"
)


def model(text: str) -> onnx.ModelProto:
    return text_model(HEADER + text)


def graph(text: str) -> Graph:
    return inference.lift(onnx_io.from_message(model(text)))


def by_kind(epilogues: Epilogues) -> dict[str, float]:
    return {op.kind: remaining for op, remaining in epilogues.items()}


def causes(gain: GainReport) -> float:
    return gain.folding + gain.fusion + gain.formats + gain.algorithms


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("a = Conv(x, w) y = Relu(a)", {"Relu": 0}),
        ("a = Conv(x, w) y = Add(a, x)", {"Add": 1 / 3}),
        ("a = Conv(x, w) y = Add(a, s)", {"Add": 0}),
        ("a = Conv(x, w) s1 = Sigmoid(a) y = Mul(a, s1)", {"Sigmoid": 0, "Mul": 0}),
        ("a = Conv(x, w) b = Add(a, x) y = Relu(b)", {"Add": 1 / 3, "Relu": 0}),
        ("a = Conv(x, w) b = Transpose<perm=[0,1,3,2]>(a) y = Relu(b)", {"Relu": 0}),
        ("a = Conv(x, w) p = GlobalAveragePool(a) y = Mul(a, p)", {}),
        ("a = Conv(x, w) b = Relu(a) p = Softmax(b) t = Tanh(b) y = Add(t, p)", {"Relu": 0}),
    ],
)
def test_an_epilogue_has_all_element_wise_ops_whose_results_are_not_written(
    ops: str, expected: dict[str, float]
) -> None:
    text = f"g (float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,1,1] w, float[8,1,1] s> {{ {ops} }}"
    assert by_kind(find_epilogues(graph(text), [ANY_OP])) == pytest.approx(expected)


def test_a_rule_names_kernels_op_types_and_constants() -> None:
    text = """g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8] s>
    { a = MatMul(x, w) b = Add(a, s) c = MatMul(b, w) d = Add(c, x) y = Relu(d) }"""
    constant = EpilogueRule(family=("matmul",), ops=("Add",), with_constants=True, source="here")
    assert [op.outputs[0].name for op in find_epilogues(graph(text), [constant]) if op.outputs[0]] == ["b"]
    assert by_kind(find_epilogues(graph(text), [EpilogueRule(family=("convolution",), source="here")])) == {}
    assert len(find_epilogues(graph(text), [ANY_OP])) == 3


@pytest.mark.parametrize("target", ["gpu-hopper", "gpu-turing"])
@pytest.mark.parametrize("runtime", ["compiler", "any"])
def test_a_folded_normalisation_is_no_gain_of_formats(target: str, runtime: str) -> None:
    """Every compiler folds it, so that it is missing from the baseline, too."""
    report = layoutopt.optimize(model(NORMALISED), target, runtime=runtime).report
    assert report.changed and [op.kind for op in report.ops] == ["Conv"]
    assert report.plan is not None and report.gain is not None
    assert report.gain.seconds_before == report.plan.seconds_before == report.gain.seconds_after
    assert (report.gain.baseline, causes(report.gain)) == ("folded", 0)
    lifted, prices = graph(NORMALISED), load_target(target)
    assert (
        sum(prices.kernel_seconds(op, canonical_signature(op)) for op in lifted.ops) > 1.5 * report.gain.seconds_before
    )


def test_an_epilogue_is_no_gain_of_formats() -> None:
    report = layoutopt.optimize(model(SWISH), "gpu-hopper", runtime="compiler").report
    assert report.gain is not None and report.gain.seconds_before == report.gain.seconds_after
    assert [op.seconds for op in report.ops if op.kind != "Conv"] == [0, 0]


@pytest.mark.parametrize(
    ("target", "runtime"),
    [("gpu-hopper", "compiler"), ("gpu-hopper", "any"), ("ascend-910b", None), ("cpu-avx2", "onnxruntime")],
)
def test_causes_add_up_to_the_gain(target: str, runtime: str | None) -> None:
    report = layoutopt.optimize(model(CHAIN), target, runtime=runtime).report
    assert report.gain is not None and report.plan is not None
    assert report.gain.seconds_after == report.plan.seconds_after
    assert causes(report.gain) == pytest.approx(report.gain.seconds_before - report.gain.seconds_after)
    assert sum(each.seconds for each in (*report.ops, *report.casts)) == pytest.approx(report.plan.seconds_after)


def test_onnxruntime_blocks_a_chain_of_convolutions_by_itself() -> None:
    """The baseline has one reorder at either end; every convolution in the canonical format would have two."""
    report = layoutopt.optimize(model(CHAIN), "cpu-avx2").report
    assert report.gain is not None and report.plan is not None
    assert report.gain.formats < 0.05 * report.gain.seconds_before
    assert report.gain.seconds_before < 0.95 * report.plan.seconds_before


def kernels(seconds: float, moves: float) -> list[UsedKernel]:
    return [UsedKernel(seconds - moves, 1.0, False, []), UsedKernel(moves, 1.0, True, [])]


def refined(*, has_original: bool) -> RefinedPlan:
    """Steps that save 8, 4, 2 and 1 seconds of 100, of which 1.5 are conversions of the plan."""
    plan = Plan({}, 85, 100, 85, 0.0, True)
    return RefinedPlan(
        load_target("cpu-avx2"),
        plan,
        kernels=kernels(85, 3.5),
        kernels_with_default_algorithms=kernels(86, 3.5),
        original_kernels=kernels(100, 9) if has_original else [],
        folded_kernels=kernels(92, 6),
        folded_kernels_with_all_fusions=kernels(88, 5),
        seconds=0.0,
    )


def test_the_causes_at_measured_prices_are_consecutive_steps() -> None:
    gain = gain_at_timed_prices(refined(has_original=True))
    assert gain.baseline == "optimised"
    assert (gain.folding, gain.fusion, gain.formats, gain.algorithms) == (8, 4, 2, 1)
    assert (gain.seconds_before, gain.seconds_after, gain.data_movement) == (100, 85, 1.5)


def test_without_the_optimised_original_the_folded_graph_is_the_baseline() -> None:
    gain = gain_at_timed_prices(refined(has_original=False))
    assert gain.baseline == "folded"
    assert (gain.seconds_before, gain.folding, causes(gain)) == (92, 0, 7)


def declined(source: str, seconds: float) -> GrowthRequest:
    return GrowthRequest(source, "conv", 1, seconds, is_accepted=False)


@pytest.mark.parametrize(
    ("requests", "changes"),
    [
        ([], {}),
        ([declined("fold-affines", 9)], {}),  # its op is in the plan
        ([declined("winograd", 0.25)], {"algorithms": 0.75, "seconds_after": 85.25}),
        ([declined("winograd", 3.0)], {"algorithms": 0, "seconds_after": 86}),
        ([declined("pretransform-weights", 3.0)], {"formats": -1, "seconds_after": 88}),
        ([declined("winograd", 3.0), declined("pretransform-weights", 16.0)], {"formats": -14, "seconds_after": 102}),
    ],
)
def test_constants_that_the_file_size_does_not_permit_gain_nothing(
    requests: list[GrowthRequest], changes: dict[str, float]
) -> None:
    gain = gain_at_timed_prices(refined(has_original=True))
    found = within_growth(gain, requests)
    assert found is not None and within_growth(None, requests) is None
    assert {name: getattr(found, name) for name in changes} == changes
    assert (found == gain) is (not changes)
    assert causes(found) == found.seconds_before - found.seconds_after
    assert bool(reason_of_loss(found, requests)) is (found.seconds_after > found.seconds_before)


@pytest.mark.parametrize(("bound", "is_wrong"), [(0.0, False), (85.0, False), (85.5, True), (95.0, True)])
def test_a_lower_bound_above_the_plan_is_a_fault(bound: float, is_wrong: bool) -> None:
    gain = gain_at_timed_prices(refined(has_original=True))
    plan = replace(refined(has_original=True).plan, lower_bound=bound)
    cheaper = gain.model_copy(update={"seconds_after": 80.0})
    with pytest.raises(InvariantError, match="lower bound") if is_wrong else nullcontext():
        check_bound(plan, gain)
    with pytest.raises(InvariantError, match="lower bound") if bound else nullcontext():
        check_bound(plan, cheaper)


def test_a_plan_that_is_estimated_to_be_slower_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if a pass has rewritten the graph."""
    given = model(NORMALISED)
    assert layoutopt.optimize(given, "cpu-avx2").report.changed
    slower = partial(gain_at_target_prices_of, factor=2.0)
    monkeypatch.setattr(prices, "gain_at_target_prices", slower)
    found = layoutopt.optimize(given, "cpu-avx2")
    assert not found.report.changed and found.proto == given
    assert found.report.reason.startswith("the best plan is estimated to be slower than the original: ")
    assert layoutopt.optimize(given, "cpu-avx2", sessions="fast").report.changed


def gain_at_target_prices_of(*arguments: Any, factor: float, **options: Any) -> GainReport:
    """The gain of a plan that is slower than the original by a factor."""
    found = gain_at_target_prices(*arguments, **options)
    assert found is not None
    before = found.seconds_after / factor
    return found.model_copy(update={"seconds_before": before, "formats": before - found.seconds_after})
