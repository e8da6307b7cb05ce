"""Prices of algorithms and of fused ops: Winograd by measured times, and what costs nothing in blocked formats."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_samples import MACHINE, OPSETS
from text_models import text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.calibrate.grid import kernel_cases
from layoutopt.cost import Prices, priced_with
from layoutopt.cost_models import load_target
from layoutopt.dialects.onnxruntime.default_blocks import find_fused_tensors, is_chosen_by_default
from layoutopt.dialects.onnxruntime.winograd import (
    MACHINE_RATES,
    Site,
    Winograd,
    convolution_graph,
    estimated_times,
    site_of,
)
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Signature
from layoutopt.kernel_times import KernelStore, RequestedTimes
from layoutopt.kernel_times.kernels import LoweredGraph
from layoutopt.kernel_times.prices import StoredPrices
from layoutopt.kernel_times.timer import KernelSession, ScratchMemory
from layoutopt.ops import canonical_signature, rule_of
from layoutopt.passes.base import PassContext
from layoutopt.runtime.kernel_queries import blocked_channels

BLOCK = blocked_channels() or 0
needs_blocks = pytest.mark.skipif(not BLOCK, reason="onnxruntime has no blocked kernels on this processor")


def lowered(side: int = 14) -> Graph:
    """A blocked convolution, and a second one with a residual and an activation."""
    domain = "com.microsoft.nchwc"
    model = text_model(
        f"""<ir_version: 10, opset_import: ["" : 18, "{domain}" : 1]>
        g (float[1,64,{side},{side}] x, float[1,64,{side},{side}] r) => (float[1,64,{side},{side}] y)
        <float[64,64,3,3] first, float[64,64,3,3] second, float[64] bias>
        {{
            a = {domain}.Conv<pads=[1,1,1,1]>(x, first)
            y = {domain}.Conv<pads=[1,1,1,1], activation="Relu">(a, second, bias, r)
        }}"""
    )
    graph = inference.lift(onnx_io.from_message(model))
    graph.stage = "lowered"
    return graph


def sites(graph: Graph) -> list[Site]:
    return [site for op in graph.ops if (site := site_of(op, BLOCK)) is not None]


def outputs(graph: Graph) -> Any:
    scratch = ScratchMemory()
    KernelSession(LoweredGraph(graph).serialized(), 1, scratch)
    shape = graph.outputs[0].shape
    return scratch.arrays([SimpleNamespace(type="tensor(float)", shape=shape)])[0].copy()


@needs_blocks
def test_winograd_counts_in_the_price_of_a_convolution_before_it_is_timed() -> None:
    """The pass chooses it by estimates where no tiling was timed, so the price of the plan has it, too."""
    case = next(each for each in kernel_cases(BLOCK) if each.kernel.estimated_speed_up > 1)
    kernel = case.kernel
    target = "cpu-avx512" if BLOCK == 16 else "cpu-avx2"
    model, store, speed_up = load_target(target), KernelStore(MACHINE), kernel.estimated_speed_up
    times = RequestedTimes(store, 60.0)
    prices, estimate = StoredPrices(times, OPSETS), case.price(model)

    def found_prices() -> tuple[float, float, bool]:
        """The price, that of the direct convolution, and whether the former is a time."""
        with prices.recording() as recorded:
            found = case.price(model.with_measured(prices))
        with prices.default_algorithms():
            return found, case.price(model.with_measured(prices)), recorded[0].is_timed

    assert found_prices() == (pytest.approx(estimate / speed_up), pytest.approx(estimate), False)
    store.add({kernel.key: 2 * estimate, kernel.alternatives[0].key: 1.9 * estimate})
    assert times.request([kernel])
    assert found_prices() == (pytest.approx(2 * estimate / speed_up), pytest.approx(2 * estimate), False)
    assert times.request(kernel.alternatives[:1])
    assert found_prices() == (pytest.approx(1.9 * estimate), pytest.approx(2 * estimate), True)


def rewritten(time: Callable[[Sequence[Graph]], Sequence[float | None]] | None) -> Graph:
    graph = lowered()
    Winograd().run(graph, PassContext(load_target("cpu-avx2"), block=BLOCK, time_graphs=time))
    return graph


@needs_blocks
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_the_fastest_measured_tiling_is_chosen(chosen: int) -> None:
    """The invented times make one tiling three times as fast as all other graphs."""
    candidates = [estimated_times(site, MACHINE_RATES[BLOCK]).promising for site in sites(lowered())]
    favourites = {
        LoweredGraph(convolution_graph(site, found_tilings[chosen % len(found_tilings)], BLOCK)).key
        for site, found_tilings in zip(sites(lowered()), candidates, strict=True)
    }
    seen: list[str] = []

    def time(graphs: Sequence[Graph]) -> list[float | None]:
        seen.extend(LoweredGraph(each).key for each in graphs)
        return [1e-4 if LoweredGraph(each).key in favourites else 3e-4 for each in graphs]

    found = rewritten(time)
    assert favourites <= set(seen)
    expected = 0
    for site, found_tilings in zip(sites(lowered()), candidates, strict=True):
        expected += len(convolution_graph(site, found_tilings[chosen % len(found_tilings)], BLOCK).ops)
    assert len(found.ops) == expected


class Reversed(Prices):
    """Prices under which a kernel is the cheaper, the more it should cost."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return 1e-9 / self.model.kernel_seconds(op, signature)


@pytest.mark.parametrize("prices", [Prices, Reversed])
def test_a_plain_convolution_costs_at_least_a_blocked_one(prices: type[Prices]) -> None:
    roofline = load_target("cpu-avx2")
    inner = Reversed(roofline) if prices is Reversed else roofline
    bounded = priced_with(inner, is_default_kernel=is_chosen_by_default)
    for case in kernel_cases(8):
        op = case.op
        rule = rule_of(op)
        if rule is None or is_cast(op):
            continue
        plain = canonical_signature(op)
        found = [rule.signature(op, dict(formats)) for formats in roofline.preferred_formats(op)]
        blocked = [each for each in found if isinstance(each, Signature) and each != plain]
        assert all(bounded.kernel_seconds(op, each) == inner.kernel_seconds(op, each) for each in blocked)
        least = [inner.kernel_seconds(op, each) for each in blocked if is_chosen_by_default(op, each)]
        if least:
            assert bounded.kernel_seconds(op, plain) == max(inner.kernel_seconds(op, plain), min(least))
        else:
            assert bounded.kernel_seconds(op, plain) == inner.kernel_seconds(op, plain)


LEFT = ("Add", "Mul", "Relu", "Sigmoid")
HEAD = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,32,28,28] x, float[1,32,28,28] r, float[1,32,1,1] gate) => (float[1,32,28,28] y, float[1,32,28,28] z)
<float[32,32,1,1] w, float[32,1,1] s>
"""


@pytest.mark.parametrize(
    ("body", "fused"),
    [
        ("a = Conv(x, w) b = Add(a, r) y = Relu(b) z = Identity(r)", {"b", "y"}),
        ("a = Conv(x, w) b = Relu(a) y = Add(b, r) z = Identity(r)", {"b"}),
        ("a = Conv(x, w) y = Sigmoid(a) z = Neg(a)", set()),
        ("a = Mul(x, gate) y = Conv(a, w) z = Neg(r)", {"a"}),
        ("a = Mul(x, gate) y = Conv(a, w) z = Neg(a)", set()),
        (
            "a = Conv(x, w) b = Transpose<perm=[0,2,3,1]>(a) c = Relu(b) y = Transpose<perm=[0,3,1,2]>(c) z = Neg(r)",
            {"c"},
        ),
        ("a = Sub(x, s) b = Mul(a, s) c = Add(b, s) y = Relu(c) z = Conv(r, w)", {"b", "c", "y"}),
        ("a = Sub(x, s) b = Sub(s, a) y = Relu(b) z = Conv(r, w)", set()),
        ("a = Sub(x, s) b = Mul(a, s) y = Add(b, r) z = Conv(a, w)", {"y"}),
    ],
)
def test_what_the_dialect_fuses_costs_less_in_blocks(body: str, fused: set[str]) -> None:
    """The named ops are not in the written model, and their prices are shares of those alone if they are blocked."""
    statements = body.replace(") ", ")\n")
    model = text_model(f"{HEAD}{{ {statements} }}")
    graph = inference.lift(onnx_io.from_message(model))
    shares = find_fused_tensors(graph)
    assert set(shares) == fused and all(0 <= share <= 1 for share in shares.values())
    roofline = load_target("cpu-avx2")
    model_of_fused = priced_with(roofline, fused_tensors=find_fused_tensors(graph))
    for op in graph.ops:
        rule, y = rule_of(op), op.outputs[0]
        assert rule is not None and y is not None
        plain = canonical_signature(op)
        assert model_of_fused.kernel_seconds(op, plain) == roofline.kernel_seconds(op, plain)
        for formats in roofline.preferred_formats(op):
            blocked = rule.signature(op, dict(formats))
            if isinstance(blocked, Signature) and y.name not in fused:
                assert model_of_fused.kernel_seconds(op, blocked) == roofline.kernel_seconds(op, blocked)
    if BLOCK:
        result = layoutopt.optimize(model, "cpu", pins={"x": f"NCHW{BLOCK}c", "r": f"NCHW{BLOCK}c"})
        assert result.plan is not None
        chosen = {op.outputs[0]: signature.outputs[0] for op, signature in result.plan.signatures.items()}
        blocked_names = {
            value.name.split("__")[0]
            for value, storage in chosen.items()
            if value and storage and not storage.format.is_plain
        }
        left = {name for node in result.proto.graph.node for name in node.output if node.op_type in LEFT}
        assert not {name.split("__")[0] for name in left} & blocked_names & fused
