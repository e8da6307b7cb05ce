"""Tuning: the knobs of a model, scaled prices, the decision, and the whole stage on a small model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser
from test_tuning_search import FakeMachine

import layoutopt
from layoutopt.cli.rendering.tuning import print_learnt_prices, tuning_lines
from layoutopt.cost.scaled import PriceFactors, ScaledCostModel
from layoutopt.cost_models import find_target
from layoutopt.dialects.onnxruntime import OnnxRuntime
from layoutopt.driver.calibration import VARIABLE
from layoutopt.driver.rewriting import Candidate
from layoutopt.driver.tuning import trials as trials_module
from layoutopt.driver.tuning.knobs import (
    Changes,
    conversion_price,
    kernel_price,
    pass_runs,
    plan_rank,
    winograd_threshold,
)
from layoutopt.driver.tuning.plan_parts import plan_parts, total_seconds
from layoutopt.driver.tuning.proposal import THRESHOLD_PASSES, knobs_of
from layoutopt.driver.tuning.search import Search, Trial, Variant
from layoutopt.driver.tuning.trials import Trials, are_close, is_faster, is_promising
from layoutopt.driver.tuning.variant_job import variant_job
from layoutopt.errors import ArgumentError, VerificationError
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import PassResult
from layoutopt.report.warnings import warnings_of
from layoutopt.timing.speed_up import SizedFeed, SpeedUp, measure_speed_up
from layoutopt.verification import RunnableCopies


def test_the_changes_of_a_variant() -> None:
    variant = Variant(
        {conversion_price(0.1): 3, kernel_price(("convolution", "depthwise"), 0.1): 0, pass_runs("move-maps", 0.1): 1}
    )
    assert variant.text == (
        "conversions at 2x their price, kernels of depthwise convolution outside the canonical format at 0.25x their price, "
        "without the pass move-maps"
    )
    assert variant.changes == Changes(2.0, {("convolution", "depthwise"): 0.25}, omitted=frozenset(["move-maps"]))
    assert Variant().changes == Changes() and not Changes().has_factors
    assert Variant({winograd_threshold(0.1): 0}).changes.omitted == {"winograd"}
    third = Variant({plan_rank(0.1): 2})
    assert (third.text, third.changes) == ("3rd cheapest plan", Changes(rank=2)) and not third.changes.has_factors


MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,32,28,28] x) => (float[1,32,28,28] y)
{ a = Conv(x, u) b = Conv(a, v) c = Relu(b) d = Conv<pads=[1,1,1,1]>(c, w) y = Relu(d) }"""
"""The pass `merge-maps` makes one convolution of the first two, so that there is a variant without it on every machine."""


def model() -> onnx.ModelProto:
    found, random = parser.parse_model(MODEL), np.random.default_rng(0)
    for name, size in {"u": 1, "v": 1, "w": 3}.items():
        array = random.normal(size=(32, 32, size, size), scale=0.1).astype(np.float32)
        found.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


def test_threshold_passes_exist() -> None:
    steps = [*default_pipeline("inference").passes, *OnnxRuntime.passes, *OnnxRuntime.baked_passes]
    assert {each.name for each in steps} >= THRESHOLD_PASSES


def test_scaled_prices() -> None:
    """Kernels in other formats and conversions are scaled; canonical kernels are not."""
    found = layoutopt.optimize(model(), "cpu-avx2", measure=False)
    target = find_target("cpu-avx2")
    scaled = ScaledCostModel(target, PriceFactors(2.0, {("convolution", "dense"): 3.0}))
    convolutions = [op for op in found.graph.ops if op.op_type == "Conv"]
    signatures = [found.plan.signatures[op] for op in convolutions]  # type: ignore[union-attr]
    assert "8c" in str(signatures[1])
    for op, signature in zip(convolutions, signatures, strict=True):
        assert scaled.kernel_seconds(op, signature) == pytest.approx(3 * target.kernel_seconds(op, signature))
    cast = next(op for op in found.graph.ops if op.op_type == "CastData")
    value, after = cast.inputs[0], cast.outputs[0]
    assert value is not None and after is not None and value.storage is not None and after.storage is not None
    before, seconds = target.conversion_seconds(value, value.storage, after.storage), scaled.conversion_seconds
    assert seconds(value, value.storage, after.storage) == pytest.approx(2 * before)


def test_the_parts_of_a_plan_have_the_keys_of_factors() -> None:
    """Their seconds add up to the time of the plan; factors of all parts scale the price of the same plan."""
    found = layoutopt.optimize(model(), "cpu-avx2", measure=False)
    target = find_target("cpu-avx2")
    parts = plan_parts(found.graph, target, keeps_qdq_groups=False)
    assert found.plan is not None and total_seconds(parts) == pytest.approx(found.plan.seconds)
    kernels, conversions = [key for key in parts if len(key) == 2], [key for key in parts if len(key) == 3]
    assert len(kernels) >= 2 and conversions
    factors = PriceFactors(planned=dict.fromkeys(kernels, 3.0), conversions=dict.fromkeys(conversions, 2.0))
    scaled = plan_parts(found.graph, ScaledCostModel(target, factors), keeps_qdq_groups=False)
    assert {key: part.seconds for key, part in scaled.items()} == {
        key: pytest.approx(part.seconds * (3 if len(key) == 2 else 2)) for key, part in parts.items()
    }
    assert factors.largest == 3.0
    cheaper = PriceFactors(planned=dict.fromkeys(kernels, 0.5), conversions=dict.fromkeys(conversions, 0.5))
    again = layoutopt.optimize(model(), ScaledCostModel(target, cheaper), dialect="onnxruntime", measure=False)
    assert again.plan is not None and again.plan.seconds == pytest.approx(found.plan.seconds / 2)


def test_the_knobs_of_a_model() -> None:
    """Threshold passes that changed the graph, prices of kernels with a choice, Winograd for 3x3 kernels in blocks."""
    plan = layoutopt.optimize(model(), "cpu-avx2", measure=False).plan
    assert plan is not None
    passes = [PassResult("merge-maps", True, 0.0), PassResult("move-maps", False, 0.0), PassResult("lower", True, 0.0)]
    knobs = knobs_of(plan, passes, find_target("cpu-avx2"), 8)
    assert [each.settings[0].text for each in knobs] == [
        "no Winograd",
        "with merge-maps",
        "conversions at 0.25x their price",
        "kernels of dense convolution outside the canonical format at 0.25x their price",
        "cheapest plan",
        *(each.settings[0].text for each in knobs[5:]),
    ]
    assert all(each.settings[0].text.endswith("as planned") for each in knobs[5:])
    timed = knobs_of(plan, passes, find_target("cpu-avx2"), 8, is_timed=True)
    assert timed[0].settings[1].text == "prices of the target" and len(timed) == len(knobs) + 1
    assert all(0 < each.weight <= 1 and 0 <= each.default < len(each.settings) for each in knobs)


def speed_up(before: float, after: float) -> SpeedUp:
    """A speed-up on a fake clock."""
    machine = FakeMachine({})

    class Session:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds
            machine.now += 1.0

        def run(self, names: object, feeds: object) -> list[object]:
            machine.now += self.seconds
            return []

    (found,) = measure_speed_up(
        lambda: Session(before), lambda: Session(after), [SizedFeed({}, {})], clock=machine.clock, max_seconds=1e6
    )
    return found


def test_a_variant_is_faster_at_one_size_and_slower_at_none() -> None:
    faster, equal, slower = speed_up(2.0, 1.0), speed_up(1.0, 1.0), speed_up(1.0, 1.1)
    assert is_faster([faster]) and is_faster([equal, faster])
    assert not is_faster([equal]) and not is_faster([faster, slower])
    assert is_promising([equal, faster]) and not is_promising([faster, slower]) and not is_promising([equal])


def test_outputs_of_variants_are_compared() -> None:
    x = np.linspace(0, 1, 8, dtype=np.float32)
    assert are_close([x], [x + 1e-4]) and are_close([np.arange(3)], [np.arange(3)])
    assert not are_close([x], [x + 0.1]) and not are_close([x], [x[:-1]]) and not are_close([[x]], [[x]])


Measure = Callable[..., list[SpeedUp]]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Measurements are on: sets the speed-up that every variant is measured to have, over the best one and the original."""
    monkeypatch.delenv(VARIABLE)

    def set_speed(gain: float) -> None:
        row = speed_up(gain, 1.0)
        monkeypatch.setattr(trials_module, "measure_speed_up", lambda *_, **__: [row])
        monkeypatch.setattr("layoutopt.driver.measuring.measure_speed_up", lambda *_, **__: [row])

    return set_speed


def outputs(message: onnx.ModelProto) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(message.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).normal(size=(1, 32, 28, 28)).astype(np.float32)
    return np.asarray(session.run(None, {"x": x})[0])


def test_the_fastest_variant_is_returned(measured: Callable[[float], None]) -> None:
    measured(1.5)
    result = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False)
    tuning = result.report.tuning
    assert result.report.changed and tuning is not None and not tuning.reason
    assert tuning.stopped == "no more variants" and tuning.over_first == 1.5
    (chosen,) = [each for each in tuning.variants if each.outcome == "chosen"]
    assert (chosen.name, chosen.gain) == (tuning.chosen, 1.5)
    assert {each.outcome for each in tuning.variants} <= {"chosen", "faster", "same file", "not possible"}
    assert result.report.verification.status == "passed"
    np.testing.assert_allclose(outputs(result.proto), outputs(model()), rtol=1e-3, atol=1e-3)
    again = layoutopt.optimize(result.proto, "cpu", tune=1.0, calibrate=False).report
    assert again.tuning is not None and again.tuning.reason == "it has been optimised like this before"


def test_prices_are_learnt_from_variants_that_differ_by_their_plan(
    measured: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """All variants are measured to be 20 % slower than the first plan, which no estimate predicts."""
    measured(1.5)
    first = layoutopt.optimize(model(), "cpu", measure=False, calibrate=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials_module, "measure_speed_up", lambda *_, **__: [speed_up(1.0, 1.2)])
        report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    tuning = report.tuning
    assert tuning is not None and tuning.chosen == "" and report.plan.seconds_after == first.report.plan.seconds_after
    names = [each.name for each in tuning.variants]
    learnt = [each for each in tuning.variants if each.name.startswith("plan at prices learnt from ")]
    assert learnt and "2nd cheapest plan" in names
    assert tuning.runs_learnt_from >= 1 and tuning.learnt
    planned = [each for each in tuning.variants if each.gain is not None and each.name.startswith(("2nd", "plan at"))]
    assert all(each.estimated_extra is not None and -1e-9 <= each.estimated_extra < 0.3 for each in planned)
    assert all(each.estimated_extra is None for each in tuning.variants if "merge-maps" in each.name)
    factors = [each.factor for each in tuning.learnt]
    assert any(factor > 1.05 for factor in factors) and all(0.25 <= factor <= 4 for factor in factors)
    print_learnt_prices(tuning)
    assert f"{factors[0]:.2f}" in capsys.readouterr().out


def test_a_plan_at_learnt_prices_can_win(measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings after the search give its plan again: a rank at learnt prices."""
    measured(1.5)
    evaluate = Trials.evaluate

    def only_learnt(trials: Trials, variant: Variant) -> Trial:
        gain = 1.5 if "learnt" in variant.text else 0.8
        monkeypatch.setattr(trials_module, "measure_speed_up", lambda *_, **__: [speed_up(gain, 1.0)])
        return evaluate(trials, variant)

    monkeypatch.setattr(Trials, "evaluate", only_learnt)
    monkeypatch.setattr(Trials, "confirmed", lambda *_: [speed_up(1.5, 1.0)])
    report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    assert report.tuning is not None and report.changed
    assert "plan at prices learnt from " in report.tuning.chosen
    assert report.plan.lower_bound <= report.plan.seconds_after and not report.plan.optimal


def test_the_report_of_a_next_plan_has_the_bound_of_the_cheapest_one(
    measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(1.5)
    monkeypatch.setattr("layoutopt.driver.tuning.knobs_of", lambda *_, **__: [plan_rank(0.5)])
    monkeypatch.setattr(Search, "_at_learnt_prices", lambda self: None)
    cheapest = layoutopt.optimize(model(), "cpu", measure=False, calibrate=False).report.plan
    report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    assert report.tuning is not None and report.tuning.chosen.endswith("cheapest plan")
    (chosen,) = [each for each in report.tuning.variants if each.outcome == "chosen"]
    assert report.plan.lower_bound == cheapest.lower_bound and not report.plan.optimal
    assert report.plan.seconds_after == pytest.approx(cheapest.seconds_after * (1 + (chosen.estimated_extra or 0.0)))
    assert report.plan.gap == pytest.approx(1 - cheapest.lower_bound / report.plan.seconds_after)


def test_a_gain_that_is_not_confirmed_is_not_taken(
    measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(1.5)
    monkeypatch.setattr(Trials, "confirmed", lambda *_: [speed_up(1.0, 1.0)])
    report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    assert report.changed and report.tuning is not None
    assert (report.tuning.chosen, report.tuning.over_first) == ("", 1.0)
    (_, line) = tuning_lines(report.tuning)[0]
    assert line.plain.startswith("no variant is confirmed to be faster  1.00x over the first plan, 1.00 to 1.00  ")


def test_the_first_result_stays_if_no_variant_is_faster(measured: Callable[[float], None]) -> None:
    measured(1.0)
    report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    assert report.tuning is not None and report.tuning.chosen == "" and report.tuning.over_first is None
    assert report.tuning.runs_learnt_from > 1  # differences to the first plan, by its measurement against the original
    assert report.changed
    assert {each.outcome for each in report.tuning.variants} <= {"not faster", "same file", "not possible"}


def test_a_variant_that_is_slower_than_the_original_is_dropped(
    measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(1.5)
    monkeypatch.setattr(trials_module, "measure", lambda *_: "measured, the result is slower: 0.90 times as fast")
    tuning = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report.tuning
    assert tuning is not None and tuning.chosen == ""
    assert any(each.reason.startswith("measured, the result is slower") for each in tuning.variants)


def test_a_variant_that_fails_verification_is_reported(
    measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(1.5)
    verify, verified = Candidate.verify, []

    def refuse(candidate: Candidate, copies: RunnableCopies) -> None:
        verified.append(candidate)
        if len(verified) > 1:
            raise VerificationError("not equivalent to the original")
        verify(candidate, copies)

    monkeypatch.setattr(Candidate, "verify", refuse)
    report = layoutopt.optimize(model(), "cpu", tune=60.0, calibrate=False).report
    assert report.changed and report.tuning is not None and report.tuning.chosen == ""
    assert {each.outcome for each in report.tuning.variants} <= {"failed", "same file", "not possible"}
    assert warnings_of(report)[0].endswith("failed: not equivalent to the original; please report it with the model")


def test_a_small_model_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared machine may find any variant faster or none, so the test asserts what was tried, not how fast it is."""
    monkeypatch.delenv(VARIABLE)
    result = layoutopt.optimize(model(), "cpu", tune=3.0, calibrate=False)
    tuning = result.report.tuning
    assert tuning is not None and not tuning.reason and tuning.stopped in ("time", "no more variants")
    assert tuning.variants and not [each for each in tuning.variants if each.outcome == "failed"]
    assert all(each.low <= each.gain <= each.high for each in tuning.variants if each.gain)  # type: ignore[operator]
    np.testing.assert_allclose(outputs(result.proto), outputs(model()), rtol=1e-3, atol=1e-3)


def test_nothing_is_tuned_where_nothing_is_measured() -> None:
    report = layoutopt.optimize(model(), "cpu", tune=1.0).report
    assert report.tuning is not None and report.tuning.reason == f"measurements are off ({VARIABLE})"
    assert report.changed and not report.tuning.variants


def test_the_job_of_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans at the prices of the first plan, scaled or not, and times no kernels; or at those of the target."""
    monkeypatch.setattr("layoutopt.api._run", lambda job: job)
    first: Any = layoutopt.optimize(model(), "cpu-avx2", tune=1.0)
    first_prices = ScaledCostModel(first.context.cost_model, PriceFactors())
    job = variant_job(first, Changes(omitted=frozenset(["merge-maps"])), first_prices, set())
    assert job.context.cost_model is first_prices and not job.options.calibrate
    names = [each.name for each in job.pipeline.passes]
    assert "merge-maps" not in names and names[names.index("assign-formats") + 1] == "end-at-known-plan"
    scaled = variant_job(first, Changes(2.0), first_prices, set()).context.cost_model
    assert isinstance(scaled, ScaledCostModel) and scaled is not first_prices
    target = variant_job(first, Changes(has_target_prices=True), first_prices, set()).context.cost_model
    assert not isinstance(target, ScaledCostModel) and target.name == "cpu-avx2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": 0}, "tune=0: not a time for tuning"),
        ({"tune": float("nan")}, "not a time for tuning"),
        ({"tune": "fast"}, "not a time for tuning"),
        ({"tune": 1.0, "measure": False}, "tuning needs measurements"),
        ({"tune": 1.0, "runtime": "any"}, "the dialect is standard"),
        ({"tune": 1.0, "target": ["cpu-avx2", "cpu-avx512"]}, "tuning needs a single target"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        layoutopt.optimize(model(), **{"target": "cpu", **options})
