"""Plans at prices of the target and at measured ones: gains and their causes, the search with invented times, real calls."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import onnx
import platformdirs
import pytest
from kernel_samples import MACHINE, OPSETS, InventedTimes, calibrated_kernels
from msgspec.structs import replace
from parsed_models import text_model
from tiers import covering

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.calibrate import price
from layoutopt.cost import CostModel, Epilogues, Prices, priced_with
from layoutopt.cost.size_growth import GrowthRequest
from layoutopt.cost_models import load_target
from layoutopt.cost_models.epilogues import EpilogueRule, find_epilogues
from layoutopt.dialects.onnxruntime.default_blocks import find_fused_tensors, is_chosen_by_default
from layoutopt.driver import prices
from layoutopt.errors import ArgumentError, InvariantError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES
from layoutopt.ir.types import Op, Signature, Slot
from layoutopt.kernel_times.kernels import LoweredKernel
from layoutopt.kernel_times.prices import RefinedPlan, StoredPrices, refine_plan
from layoutopt.kernel_times.store import KernelStore, RequestedTimes
from layoutopt.ops import canonical_signature
from layoutopt.planner import Plan, PlanRequest, make_plan
from layoutopt.planner.problem import Option, Problem, Tensor, greedy_choice
from layoutopt.report.facts import TIME_IS_SPENT
from layoutopt.report.schema import GainReport

ANY_OP = EpilogueRule(family=("convolution", "matmul"), source="here")
HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'

NORMALISED = """g (float[1,8,16,16] x) => (float[1,8,16,16] y)
<float[8,8,1,1] w, float[8] s, float[8] b, float[8] m, float[8] v>
{ a = Conv(x, w) y = BatchNormalization(a, s, b, m, v) }"""
CHAIN = """g (float[1,64,28,28] x) => (float[1,64,28,28] y) <float[64,64,3,3] w>
{ a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, w)
  d = Add(c, b) e = Relu(d) y = Conv<pads=[1,1,1,1]>(e, w) }"""


def given_model(text: str) -> onnx.ModelProto:
    return text_model(HEADER + text)


def lifted_graph(text: str) -> Graph:
    return inference.lift(onnx_io.from_message(given_model(text)))


def by_kind(epilogues: Epilogues) -> dict[str, float]:
    return {op.kind: remaining for op, remaining in epilogues.items()}


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
    assert by_kind(find_epilogues(lifted_graph(text), [ANY_OP])) == pytest.approx(expected)


def test_a_rule_names_kernels_op_types_and_constants() -> None:
    text = """g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8] s>
    { a = MatMul(x, w) b = Add(a, s) c = MatMul(b, w) d = Add(c, x) y = Relu(d) }"""
    constant = EpilogueRule(family=("matmul",), ops=("Add",), with_constants=True, source="here")
    assert [op.outputs[0].name for op in find_epilogues(lifted_graph(text), [constant]) if op.outputs[0]] == ["b"]
    assert by_kind(find_epilogues(lifted_graph(text), [EpilogueRule(family=("convolution",), source="here")])) == {}
    assert len(find_epilogues(lifted_graph(text), [ANY_OP])) == 3


@pytest.mark.parametrize("target", ["gpu-hopper", "gpu-turing"])
@pytest.mark.parametrize("runtime", ["compiler", "any"])
def test_a_folded_normalisation_is_no_gain_of_formats(target: str, runtime: str) -> None:
    """Every compiler folds it, so that it is missing from the baseline, too."""
    report = layoutopt.optimize(given_model(NORMALISED), target, runtime=runtime).report
    assert report.changed and [op.kind for op in report.ops] == ["Conv"]
    assert report.gain.seconds_before == report.plan.seconds_before == report.gain.seconds_after
    assert report.gain.baseline == "folded"
    lifted, prices = lifted_graph(NORMALISED), load_target(target)
    assert (
        sum(prices.kernel_seconds(op, canonical_signature(op)) for op in lifted.ops) > 1.5 * report.gain.seconds_before
    )


def test_a_plan_is_compared_with_greedy_formats() -> None:
    """The convolutions stay in NHWC, with one conversion at each end, whether each op decides alone or all together."""
    gain = layoutopt.optimize(given_model(CHAIN), "gpu-hopper", runtime="compiler").report.gain
    assert gain is not None and gain.seconds_greedy == pytest.approx(gain.seconds_after)
    assert gain.seconds_before > 1.5 * gain.seconds_unplanned
    reading = Option(1.0, operand_states=((0, 0),)), Option(0.5, operand_states=((0, 1),))
    problem = Problem([[*reading], [*reading]], [Tensor({(0, 0): None, (0, 1): 0}, [2.0], source_state=0)])
    assert greedy_choice(problem, [True, False]) == (1, 1) and greedy_choice(problem, [False, False]) == (0, 0)


@pytest.mark.parametrize(
    ("target", "runtime"),
    [("gpu-hopper", "compiler"), ("gpu-hopper", "any"), ("ascend-910b", None), ("cpu-avx2", "onnxruntime")],
)
def test_times_of_ops_add_up_to_the_plan(target: str, runtime: str | None) -> None:
    report = layoutopt.optimize(given_model(CHAIN), target, runtime=runtime).report
    assert report.gain.seconds_after == report.plan.seconds_after
    assert sum(each.seconds for each in (*report.ops, *report.casts)) == pytest.approx(report.plan.seconds_after)


def test_onnxruntime_blocks_a_chain_of_convolutions_by_itself() -> None:
    """The baseline has one reorder at either end; every convolution in the canonical format would have two."""
    report = layoutopt.optimize(given_model(CHAIN), "cpu-avx2").report
    assert report.gain.seconds_after > 0.95 * report.gain.seconds_before
    assert report.gain.seconds_before < 0.95 * report.plan.seconds_before


def refined_plan() -> RefinedPlan:
    """A plan of 85 instead of 100 seconds."""
    plan = Plan({}, 85, 100, 100, 85, 0.0, True)
    return RefinedPlan(load_target("cpu-avx2"), plan, [], "optimised", 100, 0.0)


def test_the_baseline_at_measured_prices_is_the_optimised_original() -> None:
    gain = prices.gain_at_timed_prices(refined_plan())
    assert gain.baseline == "optimised"
    assert (gain.seconds_before, gain.seconds_after) == (100, 85)


def declined(source: str, seconds: float) -> GrowthRequest:
    return GrowthRequest(source, "conv", 1, seconds, is_accepted=False)


@pytest.mark.parametrize(
    ("requests", "seconds"),
    [
        ([], 85),
        ([declined("fold-affines", 9)], 85),  # its op is in the plan
        ([declined("winograd", 0.25)], 85.25),
        ([declined("winograd", 1.0), declined("pretransform-weights", 16.0)], 102),
    ],
)
def test_constants_that_the_file_size_does_not_permit_gain_nothing(
    requests: list[GrowthRequest], seconds: float
) -> None:
    gain = prices.gain_at_timed_prices(refined_plan())
    found = prices.within_growth(gain, requests)
    assert found is not None and prices.within_growth(None, requests) is None
    assert found.seconds_after == seconds
    assert bool(prices.reason_of_loss(gain, requests)) is (seconds > found.seconds_before)


@pytest.mark.parametrize(("bound", "is_wrong"), [(0.0, False), (85.0, False), (85.5, True), (95.0, True)])
def test_a_lower_bound_above_the_plan_is_a_fault(bound: float, is_wrong: bool) -> None:
    plan = replace(refined_plan().plan, lower_bound=bound)
    with pytest.raises(InvariantError, match="lower bound") if is_wrong else nullcontext():
        prices.check_bound(plan)


def test_a_plan_that_is_estimated_to_be_slower_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if a pass has rewritten the graph."""
    given = given_model(NORMALISED)
    assert layoutopt.optimize(given, "cpu-avx2").report.changed
    gain = prices.gain_at_target_prices

    def slower(*arguments: Any, **options: Any) -> GainReport:
        """The gain of a plan that takes twice as long."""
        found = gain(*arguments, **options)
        return found.model_copy(update={"seconds_before": found.seconds_after / 2})

    monkeypatch.setattr(prices, "gain_at_target_prices", slower)
    found = layoutopt.optimize(given, "cpu-avx2")
    assert not found.report.changed and found.proto == given
    assert found.report.reason.startswith("the best plan is estimated to be slower than the original: ")
    assert layoutopt.optimize(given, "cpu-avx2", sessions="fast").report.changed


NETWORK = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,32,14,14] x) => (float[1,32,14,14] y)
<float[64,32,3,3] first, float[64,1,3,3] second, float[32,64,1,1] third>
{
    a = Conv<pads=[1,1,1,1]>(x, first)
    b = Relu(a)
    c = Conv<pads=[1,1,1,1], group=64>(b, second)
    d = Sigmoid(c)
    e = Conv(d, third)
    f = Transpose<perm=[0,2,3,1]>(e)
    h = Softmax<axis=-1>(f)
    y = Transpose<perm=[0,3,1,2]>(h)
}"""


def network() -> onnx.ModelProto:
    return text_model(NETWORK)


@pytest.fixture
def graph() -> Graph:
    return inference.lift(onnx_io.from_message(network()))


def plan(graph: Graph, model: CostModel) -> Plan:
    return make_plan(PlanRequest(graph, model))


class InterruptedTimes(InventedTimes):
    """Invented times; the second batch is interrupted."""

    is_second = False

    def __call__(self, kernels: Sequence[LoweredKernel], *others: Any) -> dict[str, float | None]:
        if self.is_second:
            raise KeyboardInterrupt
        self.is_second = True
        return super().__call__(kernels, *others)


class AllKnown(StoredPrices):
    """The prices of all kernels at invented times."""

    def __init__(self, times: InventedTimes) -> None:
        super().__init__(RequestedTimes(KernelStore(MACHINE), 0.0), {"": 18})
        self.times = times

    def _price(self, kernel: LoweredKernel | None, kind: object, estimate: float) -> float:
        return estimate if kernel is None else self.times.seconds(kernel)


class Refined:
    """Plans at measured prices, with invented times; each batch of kernels takes a second.

    `prices` are those of a matrix product, which the graph does not have, during the planning with each of the `models`.
    """

    def __init__(self, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        self.graph, self.monkeypatch = graph, monkeypatch
        self.times = RequestedTimes(KernelStore(MACHINE), 0.0)
        self.models: list[CostModel] = []
        self.prices: list[float] = []
        self.product = next(each for each in calibrated_kernels("cpu-avx2") if each.op.op_type == "MatMul")

    def __call__(
        self, times: InventedTimes, max_seconds: float = 60.0, store: KernelStore | None = None
    ) -> RefinedPlan:
        self.monkeypatch.setattr("layoutopt.kernel_times.store.time_kernels", times)
        self.monkeypatch.setattr("layoutopt.kernel_times.store.process_time", count().__next__)
        model = load_target("cpu-avx2")
        self.times = RequestedTimes(store or KernelStore(MACHINE), max_seconds)
        return refine_plan(self.graph, model, NO_SIZES, self.plan, self.times, self.plan(model))

    def plan(self, model: CostModel) -> Plan:
        self.models.append(model)
        self.prices.append(model.kernel_seconds(self.product.op, self.product.op.signature))
        return plan(self.graph, model)


@pytest.fixture
def refined(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Refined:
    return Refined(graph, monkeypatch)


@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0])
def test_the_last_plan_is_nearly_as_good_as_one_that_knows_every_time(
    factor: float, graph: Graph, refined: Refined
) -> None:
    times = InventedTimes(factor)
    found = refined(times)
    measured = load_target("cpu-avx2").with_measured(AllKnown(times))
    known = priced_with(measured, fused_tensors=find_fused_tensors(graph), is_default_kernel=is_chosen_by_default)
    best = plan(graph, known)
    price = plan(graph, Forced(known, found.plan)).seconds
    assert sum(each.total for each in found.kernels if each.is_timed) > 0.95 * found.plan.seconds
    assert refined.times.num_newly_timed == len(times.timed) and not refined.times.skipped
    assert best.seconds <= price * (1 + 1e-9)
    assert price <= best.seconds * 1.15


class Forced(Prices):
    """The prices of a cost model, under which ops have the signatures of a given plan, because others cost a second more."""

    def __init__(self, model: CostModel, plan: Plan) -> None:
        super().__init__(model)
        self._plan = plan

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        seconds = self.model.kernel_seconds(op, signature)
        chosen = self._plan.signatures.get(op)
        return seconds if chosen is None or str(chosen) == str(signature) else seconds + 1.0


@pytest.mark.parametrize(
    ("before", "max_seconds"),
    covering(["nothing", "the same", "an interrupted run", "a run with more time"], [0.5, 2.0, 60.0]),
)
def test_a_plan_depends_on_no_other_run(max_seconds: float, before: str, refined: Refined, tmp_path: Path) -> None:
    """A run has the times that it requests, and pays for those that it finds, as if it had timed them."""
    store = KernelStore(MACHINE, tmp_path)
    first = refined(InventedTimes(2.0), max_seconds, KernelStore(MACHINE, tmp_path / "first"))
    skipped = refined.times.skipped
    if before == "an interrupted run":
        with pytest.raises(KeyboardInterrupt):
            refined(InterruptedTimes(2.0), 60.0, store)
    elif before != "nothing":
        refined(InventedTimes(2.0), 60.0 if before == "a run with more time" else max_seconds, store)
    times = InventedTimes(2.0)
    found = refined(times, max_seconds, KernelStore(MACHINE, tmp_path))
    assert bool(times.timed) is (before == "nothing" or (before == "an interrupted run" and max_seconds > 1))
    assert refined.times.skipped == skipped
    assert (found.plan.signatures, found.plan.seconds) == (first.plan.signatures, first.plan.seconds)


def test_without_time_the_plan_is_cautious(refined: Refined) -> None:
    """The last plan is made at raised prices of kernels that were not timed; with time enough, no price is raised."""
    estimate = price(refined.product, load_target("cpu-avx2"))
    found = refined(InventedTimes(2.0), max_seconds=0.0)
    assert refined.times.num_newly_timed == 0 < len(refined.times.skipped)
    assert found.plan.optimal
    assert refined.prices[-1] == pytest.approx(1.1 * estimate)
    refined(InventedTimes(2.0))
    assert refined.prices[-1] == pytest.approx(estimate)


def test_estimates_are_corrected_by_kernels_of_the_same_kind() -> None:
    model, store = load_target("cpu-avx2"), KernelStore(MACHINE)
    times = RequestedTimes(store, 60.0)
    kernels = [each for each in calibrated_kernels("cpu-avx2") if each.op.op_type == "MatMul"]
    store.add({each.key: 3 * price(each, model) for each in kernels[:-1]})
    store.is_complete = True
    times.request(kernels)
    prices = StoredPrices(times, OPSETS)
    for _ in range(2):
        priced = model.with_measured(prices)
        found = [price(each, priced) for each in kernels]
        prices.correct_estimates()
    assert found == pytest.approx([3 * price(each, model) for each in kernels])
    prices.is_cautious = True
    assert price(kernels[-1], model.with_measured(prices)) == pytest.approx(3.3 * price(kernels[-1], model))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, with measuring on."""
    monkeypatch.delenv(prices.VARIABLE)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    return tmp_path


@contextmanager
def load() -> Iterator[None]:
    """A process that computes all the time."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("max_seconds", [prices.MAX_SECONDS, 0.0])
def test_two_runs_in_a_row_write_the_same_bytes(
    max_seconds: float, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first one had time for, which is said."""
    monkeypatch.setattr(prices, "MAX_SECONDS", max_seconds)
    with load():
        first = layoutopt.optimize(network(), "cpu", measure=False)
    report, gain = first.report.calibration, first.report.gain
    assert report is not None and not report.reason
    assert (report.timed > 0 and report.known > 0 and report.share > 0) is (max_seconds > 0)
    assert (report.skipped > 0) is (TIME_IS_SPENT in first.summary()) is (max_seconds < 1)
    folder = cache / "layoutopt" / "kernel_times"
    assert gain is not None and gain.baseline == "optimised" and first.plan is not None
    assert sum(each.seconds for each in (*first.report.ops, *first.report.casts)) == pytest.approx(first.plan.seconds)
    stored = {path: path.read_bytes() for path in folder.glob("*")}
    for profile in (None, *stored):
        found = layoutopt.optimize(network(), "cpu", measure=False, profile=profile)
        assert found.report.calibration is not None and found.report.calibration.timed == 0
        assert (found.proto, found.report.gain) == (first.proto, gain)
    assert {path: path.read_bytes() for path in folder.glob("*")} == stored


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"calibrate": False}, "off"),
        ({"target": "gpu-hopper"}, "gpu-hopper is not this machine"),
        ({"runtime": "any"}, "kernels of any are not timed on this machine"),
    ],
)
def test_other_plans_have_the_prices_of_the_target(options: dict[str, str], reason: str, cache: Path) -> None:
    report = layoutopt.optimize(network(), **{"target": "cpu", **options}, measure=False).report  # type: ignore[arg-type]
    assert report.calibration is not None and report.calibration.reason == reason
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\x00\xff", "is no file of kernel times"),
        (
            json.dumps(
                {"kernel_times": 10, "cpu": "", "instructions": "", "caches": "", "onnxruntime": "", "threads": 1}
            ),
            "9",
        ),
    ],
)
def test_what_is_no_profile_is_refused(content: bytes | str | None, error: str, cache: Path) -> None:
    path = cache / "profile.jsonl"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ArgumentError, match=error):
        layoutopt.optimize(network(), "cpu", profile=path)


def test_no_kernel_has_a_format_that_its_shape_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extents of r are unknown, so its channels are in no blocks."""
    graph = lifted_graph("g (float[1,8,4,4] x, int64[4] s) => (float[?,?,?,?] y) { r = Reshape(x, s) y = Relu(r) }")
    model, blocked = load_target("gpu-hopper"), {Slot("in", 0): Format.parse("NCHW8c")}
    monkeypatch.setattr(type(model), "preferred_formats", lambda self, op: [blocked])
    assert [Prices(model).preferred_formats(op) for op in graph.ops] == [[blocked], []]
