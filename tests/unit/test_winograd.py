"""Winograd convolutions: exact algorithms, graphs against the direct kernel, and prices of algorithms and fused ops."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import MACHINE, OPSETS, calibrated_kernels
from parsed_models import text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.calibrate import price
from layoutopt.cost import Prices, priced_with
from layoutopt.cost.prices import INNER_KERNEL_FACTOR
from layoutopt.cost_models import load_target
from layoutopt.dialects.onnxruntime import DOMAIN, winograd
from layoutopt.dialects.onnxruntime.default_blocks import find_fused_tensors, is_chosen_by_default
from layoutopt.dialects.plain_winograd import PlainWinograd
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Signature
from layoutopt.kernel_times.kernels import LoweredKernel
from layoutopt.kernel_times.prices import StoredPrices
from layoutopt.kernel_times.store import KernelStore, RequestedTimes
from layoutopt.ops import canonical_signature, rule_of
from layoutopt.passes.base import PassContext
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import inference_session

BLOCK = blocked_channels() or 0
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Clip": (-0.5, 0.5),
    "LeakyRelu": (0.1,),
    "HardSigmoid": (0.2, 0.5),
}

needs_blocks = pytest.mark.skipif(not BLOCK, reason="onnxruntime has no blocked kernels on this processor")


@pytest.mark.parametrize(("outputs", "taps"), [(1, 1), (2, 3), (4, 3)])
def test_the_transforms_are_a_correlation(outputs: int, taps: int) -> None:
    algorithm, tiles = winograd.minimal_filtering(outputs), winograd.Tiles(outputs, outputs)
    assert algorithm.num_taps == taps and tiles.num_components == outputs + taps - 1
    random = np.random.default_rng(0)
    for _ in range(20):
        d, g = random.integers(-9, 9, tiles.num_components), random.integers(-9, 9, taps)
        y = algorithm.outputs @ ((algorithm.filters @ g) * (algorithm.inputs @ d))
        np.testing.assert_allclose(y, np.correlate(d, g), rtol=0, atol=1e-11)


def convolution(
    image: tuple[int, int],
    *,
    kernel: tuple[int, int] = (3, 3),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    batch: int | str = 1,
    bias: bool = True,
    residual: bool = False,
    activation: str = "",
    opset: int = 17,
    group: int = 1,
    channels: tuple[int, int] = (0, 0),
    **fields: Any,
) -> onnx.ModelProto:
    """One blocked convolution of 2 blocks to 1, or of `channels`, as a lowered graph has it; any filter is a packed one."""
    read, filters = channels if any(channels) else (2 * BLOCK, 2 * BLOCK if group > 1 else BLOCK)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": (1, 1), "dilations": (1, 1), "group": group}
    attributes |= fields if "auto_pad" in fields else {"pads": pads, **fields}
    if activation:
        attributes["activation"] = activation
        if ACTIVATIONS[activation]:
            attributes["activation_params"] = ACTIVATIONS[activation]
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in attributes.items())
    strides, dilations = attributes["strides"], attributes["dilations"]
    height, width = (
        (image[axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1
        for axis in (0, 1)
    )
    operands = ", ".join(["x", "w", *(["b"] if bias else [""] if residual else []), *(["r"] if residual else [])])
    result = f"float[{batch},{filters},{height},{width}]"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{DOMAIN}" : 1]>'
        f" g (float[{batch},{read},{image[0]},{image[1]}] x{f', {result} r' if residual else ''}) => ({result} y)"
        f" <float[{filters},{read // group},{kernel[0]},{kernel[1]}] w{f', float[{filters}] b' if bias else ''}>"
        f" {{ y = {DOMAIN}.Conv <{given}> ({operands}) }}"
    )


def lifted(model: onnx.ModelProto) -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(model))


def run(model: onnx.ModelProto) -> np.ndarray[Any, Any]:
    """Its output on random inputs."""
    session = inference_session(model.SerializeToString())
    generator = np.random.default_rng(1)
    shapes = {each.name: [dim if isinstance(dim, int) else 2 for dim in each.shape] for each in session.get_inputs()}
    feed = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return np.asarray(session.run(None, feed)[0])


def emitted(graph: Graph) -> onnx.ModelProto:
    model = onnx_io.emit(graph)
    onnx_io.check(model)
    return onnx.load_from_string(onnx_io.to_bytes(model))


def in_tiles(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The model in every tiling."""
    found = []
    for tiling in winograd.tilings(lifted(model).ops[0], BLOCK)[1:]:
        graph = lifted(model)
        winograd.WinogradRewriter(graph, graph.ops[0], tiling, BLOCK).run()
        found.append(emitted(graph))
    assert found
    return found


@needs_blocks
@settings(max_examples=6, derandomize=True)
@given(
    image=st.tuples(st.integers(2, 17), st.integers(1, 13)),
    batch=st.sampled_from([1, 2, 3, "N"]),
    bias=st.booleans(),
    residual=st.booleans(),
    activation=st.sampled_from(["", *ACTIVATIONS]),
    opset=st.sampled_from([9, 17]),
)
def test_every_tiling_equals_the_direct_kernel(image: tuple[int, int], **fields: Any) -> None:
    model = convolution(image, **fields)
    want = run(model)
    for rewritten in in_tiles(model):
        np.testing.assert_allclose(run(rewritten), want, rtol=0, atol=3e-5, strict=True)


@needs_blocks
@pytest.mark.parametrize(
    "fields",
    [
        {"strides": (1, 2)},
        {"dilations": (2, 1)},
        {"group": 2},
        {"auto_pad": "SAME_UPPER", "pads": (0, 0, 0, 0)},
        {"pads": (0, 1, 1, 1)},
        {"kernel": (3, 1)},
        {"image": (1, 1)},
    ],
)
def test_what_cannot_be_tiled_stays(fields: dict[str, Any]) -> None:
    (op,) = lifted(convolution(fields.pop("image", (12, 12)), **fields)).ops
    assert winograd.tilings(op, BLOCK) == []


@needs_blocks
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 64, 56, 56), (4, 1)),
        ((128, 128, 28, 28), (4, 1)),
        ((512, 512, 7, 7), None),
        ((512, 512, 64, 64), (4, 4)),
        ((32, 32, 256, 256), None),
    ],
)
def test_the_tiling_that_was_fastest_is_chosen(shape: tuple[int, int, int, int], expected: tuple[int, int]) -> None:
    (op,) = lifted(convolution(shape[2:], channels=shape[:2])).ops
    found = winograd.faster(winograd.candidates(op, BLOCK, winograd.MachineRates(), winograd.WinogradRewriter))
    assert next((tuple(axis.outputs for axis in each.tiling) for each in found), None) == expected


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


@needs_blocks
def test_winograd_counts_in_the_price_of_a_convolution_before_it_is_timed() -> None:
    """The pass chooses it by estimates where no tiling was timed, so the price of the plan has it, too."""
    kernel = next(each for each in calibrated_kernels() if each.alternatives[1] > 1)
    target = "cpu-avx512" if BLOCK == 16 else "cpu-avx2"
    model, store, speed_up = load_target(target), KernelStore(MACHINE), kernel.alternatives[1]
    times = RequestedTimes(store, 60.0)
    prices, estimate = StoredPrices(times, OPSETS), price(kernel, model)

    def found_prices() -> tuple[float, float, bool]:
        """The price, that of the direct convolution, and whether the former is a time."""
        found, is_timed = price(kernel, model.with_measured(prices)), prices.priced[-1].is_timed
        prices.uses_alternatives = False
        direct = price(kernel, model.with_measured(prices))
        prices.uses_alternatives = True
        return found, direct, is_timed

    assert found_prices() == (pytest.approx(estimate / speed_up), pytest.approx(estimate), False)
    store.add({kernel.key: 2 * estimate, kernel.alternatives[0][0].key: 1.9 * estimate})
    assert times.request([kernel])
    assert found_prices() == (pytest.approx(2 * estimate / speed_up), pytest.approx(2 * estimate), False)
    assert times.request(kernel.alternatives[0][:1])
    assert found_prices() == (pytest.approx(1.9 * estimate), pytest.approx(2 * estimate), True)


def rewritten(time: Callable[[Sequence[Graph]], Sequence[float | None]] | None) -> Graph:
    graph = lowered()
    winograd.Winograd().run(graph, PassContext(load_target("cpu-avx2"), block=BLOCK, time_graphs=time))
    return graph


@needs_blocks
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_the_fastest_measured_tiling_is_chosen(chosen: int) -> None:
    """The invented times make one tiling three times as fast as all other graphs."""
    rates = winograd.MACHINE_RATES[BLOCK]
    tiled = [winograd.candidates(op, BLOCK, rates, winograd.WinogradRewriter)[1:] for op in lowered().ops]
    favourites = [LoweredKernel(each[chosen % len(each)].graph) for each in tiled]
    keys = {each.key for each in favourites}
    seen: list[str] = []

    def time(graphs: Sequence[Graph]) -> list[float | None]:
        seen.extend(LoweredKernel(each).key for each in graphs)
        return [1e-4 if LoweredKernel(each).key in keys else 3e-4 for each in graphs]

    found = rewritten(time)
    assert keys <= set(seen)
    assert len(found.ops) == sum(len(each.graph.ops) for each in favourites)


@pytest.mark.parametrize(
    ("batch", "channels", "seconds", "is_tiled"),
    [(1, 256, 1.0, True), (1, 256, -1.0, False), ("N", 256, 1.0, False), (1, 1, 1.0, False)],
)
def test_plain_arrays_are_tiled_where_that_is_timed_as_faster(
    batch: int | str, channels: int, seconds: float, is_tiled: bool
) -> None:
    """A symbolic batch cannot be timed, and a filter of one channel is depthwise."""
    text = f"(float[{batch},{channels},28,28] x) => (float[{batch},256,28,28] y, float m) <float[256,{channels},3,3] w>"
    convolution = f"{text} {{ y = Conv <pads = [1, 1, 1, 1]> (x, w) m = ReduceMax <keepdims = 0> (x) }}"
    graph = lifted(text_model(f'<ir_version: 10, opset_import: ["" : 18]> g {convolution}'))
    graph.stage = "lowered"
    assert any(winograd.tilings(op, winograd.PLAIN) for op in graph.ops) == (channels > 1 and batch == 1)

    def time(graphs: Sequence[Graph]) -> list[float | None]:
        return [len(each.ops) ** -seconds for each in graphs]

    PlainWinograd().run(graph, PassContext(load_target("cpu-avx2"), time_graphs=time))
    assert (len(graph.ops) > 2) == is_tiled


class Reversed(Prices):
    """Prices under which a kernel is the cheaper, the more it should cost."""

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return 1e-9 / self.model.kernel_seconds(op, signature)


@pytest.mark.parametrize("prices", [Prices, Reversed])
def test_a_plain_convolution_costs_at_least_a_blocked_one(prices: type[Prices]) -> None:
    roofline = load_target("cpu-avx2")
    inner = Reversed(roofline) if prices is Reversed else roofline
    bounded = priced_with(inner, is_default_kernel=is_chosen_by_default)
    for kernel in calibrated_kernels("cpu-avx2"):
        op = kernel.op
        rule = rule_of(op)
        if rule is None or is_cast(op):
            continue
        plain = canonical_signature(op)
        found = [rule.signature(op, dict(formats)) for formats in roofline.preferred_formats(op)]
        blocked = [each for each in found if isinstance(each, Signature) and each != plain]
        assert all(bounded.kernel_seconds(op, each) == inner.kernel_seconds(op, each) for each in blocked)
        least = [inner.kernel_seconds(op, each) for each in blocked if is_chosen_by_default(op, each)]
        if least:
            assert bounded.kernel_seconds(op, plain) == max(
                inner.kernel_seconds(op, plain), INNER_KERNEL_FACTOR * min(least)
            )
        else:
            assert bounded.kernel_seconds(op, plain) == inner.kernel_seconds(op, plain)


def test_a_blocked_convolution_of_one_pixel_is_recognised_by_its_filter() -> None:
    graph = lifted(
        text_model(
            '<ir_version: 10, opset_import: ["" : 18]> g (float[1,16,1,1] x) => (y) <float[8,16,1,1] w> { y = Conv(x, w) }'
        )
    )
    (op,) = graph.ops
    signatures = [rule_of(op).signature(op, dict(each)) for each in load_target("cpu-avx2").preferred_formats(op)]
    assert [is_chosen_by_default(op, each) for each in signatures] == [
        each != canonical_signature(op) for each in signatures
    ]


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
        ("a = Mul(x, gate) y = Conv(a, w) z = Neg(r)", set()),
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
    """The named ops are not in the written model; what remains of their prices is a share."""
    statements = body.replace(") ", ")\n")
    model = text_model(f"{HEAD}{{ {statements} }}")
    graph = inference.lift(onnx_io.from_message(model))
    shares = find_fused_tensors(graph)
    assert set(shares) == fused and all(0 <= share <= 1 for share in shares.values())
    if BLOCK:
        result = layoutopt.optimize(model, "cpu", pins={"x": f"NCHW{BLOCK}c", "r": f"NCHW{BLOCK}c"})
        chosen = {op.outputs[0]: signature.outputs[0] for op, signature in result.plan.signatures.items()}
        blocked_names = {
            value.name.split("__")[0]
            for value, storage in chosen.items()
            if value and storage and not storage.format.is_plain
        }
        left = {name for node in result.proto.graph.node for name in node.output if node.op_type in LEFT}
        assert not {name.split("__")[0] for name in left} & blocked_names & fused


@pytest.mark.parametrize(("format", "is_fused"), [("NWC8w", True), ("NWC32w", False), ("NCW", False)])
def test_an_op_is_fused_in_formats_of_convolutions_only(format: str, is_fused: bool) -> None:
    """Heads of 32 elements are an innermost block too."""
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[1,16,64] x, float[1,16,64] r) => (y) { y = Add(x, r) }'
    (op,) = lifted(text_model(text)).ops
    rule, model = rule_of(op), load_target("cpu-avx2")
    assert rule is not None
    signature = rule.signature(op, dict.fromkeys(op.slots(), Format.parse(format, "NCW")))
    assert isinstance(signature, Signature)
    price = Prices(model, fused_tensors={"y": 0.0}).kernel_seconds(op, signature)
    assert price == (0.0 if is_fused else model.kernel_seconds(op, signature))
