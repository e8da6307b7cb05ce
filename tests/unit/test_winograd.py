"""Winograd convolutions: the algorithms in exact fractions, and rewritten graphs against the direct kernel."""

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from layoutopt import inference, onnx_io
from layoutopt.cost_models.registry import host_target, load_target
from layoutopt.dialects.onnxruntime import DOMAIN
from layoutopt.dialects.onnxruntime.winograd import (
    Constants,
    MachineRates,
    Winograd,
    WinogradRewriter,
    estimated_times,
    minimal_filtering,
    site_of,
    tilings,
)
from layoutopt.formats import lookup, pack
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import PassContext

BLOCK = {"cpu-avx2": 8, "cpu-avx512": 16}.get(host_target(), 0)
EAGER = MachineRates(
    op_seconds=0.0, min_speedup=1.0, cache_bandwidth=1e30, memory_bandwidth=1e30, filter_bandwidth=1e30
)  # the tiling with the fewest products
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Clip": (-0.5, 0.5),
    "LeakyRelu": (0.1,),
    "HardSigmoid": (0.2, 0.5),
}

needs_blocks = pytest.mark.skipif(not BLOCK, reason="the blocks of this processor are not known")


def rewrite(graph: Graph) -> None:
    """Run the pass, for speeds at which the fewest products are fastest."""
    Winograd(EAGER).run(graph, PassContext(load_target("cpu-avx2"), block=BLOCK))


# --- mathematics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (2, 5), (3, 2), (3, 4)])
def test_the_transforms_are_a_correlation(outputs: int, taps: int) -> None:
    algorithm = minimal_filtering(outputs, taps)
    assert algorithm is not None and algorithm.num_components == outputs + taps - 1
    random = Random(0)
    for _ in range(20):
        d = [Fraction(random.randint(-9, 9)) for _ in range(algorithm.num_components)]
        g = [Fraction(random.randint(-9, 9)) for _ in range(taps)]
        v, u = _times(algorithm.input_rows, d), _times(algorithm.filter_rows, g)
        y = _times(algorithm.output_rows, [a * b for a, b in zip(u, v, strict=True)])
        assert y == [sum(g[tap] * d[at + tap] for tap in range(taps)) for at in range(outputs)]


def _times(matrix: tuple[tuple[Fraction, ...], ...], vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


# --- graphs ------------------------------------------------------------------------------------------------------


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
    **fields: Any,
) -> onnx.ModelProto:
    """One blocked convolution of 2 blocks to 1, as a lowered graph has it."""
    generator = np.random.default_rng(0)
    channels, filters = 2 * BLOCK, BLOCK
    strides, dilations = fields.setdefault("strides", (1, 1)), fields.setdefault("dilations", (1, 1))
    group = fields.setdefault("group", 1)
    extents = [
        (image[place] + pads[place] + pads[2 + place] - dilations[place] * (kernel[place] - 1) - 1) // strides[place]
        + 1
        for place in (0, 1)
    ]
    if group != 1:
        filters = channels
    weight = generator.normal(size=(filters, channels // group, *kernel)).astype(np.float32)
    weight *= np.float32((channels // group * kernel[0] * kernel[1]) ** -0.5)
    packed = pack(weight, lookup(f"NCHW{BLOCK}c{BLOCK}n")).reshape(weight.shape)
    operands = ["x", "w", "b" if bias else "", *(["r"] if residual else [])]
    while not operands[-1]:
        operands.pop()
    if "auto_pad" not in fields:
        fields["pads"] = pads
    if activation:
        fields["activation"] = activation
        if ACTIVATIONS[activation]:
            fields["activation_params"] = ACTIVATIONS[activation]
    node = helper.make_node("Conv", operands, ["y"], domain=DOMAIN, kernel_shape=kernel, **fields)

    def info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = [info("x", batch, channels, *image), *([info("r", batch, filters, *extents)] if residual else [])]
    constants = [numpy_helper.from_array(packed, "w")]
    if bias:
        constants.append(numpy_helper.from_array(generator.normal(size=filters).astype(np.float32), "b"))
    graph = helper.make_graph([node], "g", inputs, [info("y", batch, filters, *extents)], constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def lifted(model: onnx.ModelProto) -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(model))


def run(model: onnx.ModelProto, level: str = "ORT_ENABLE_ALL", images: int = 2) -> np.ndarray[Any, Any]:
    """Its output on random inputs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(1)
    shapes = {
        each.name: [dim if isinstance(dim, int) else images for dim in each.shape] for each in session.get_inputs()
    }
    feed = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return np.asarray(session.run(None, feed)[0])


def emitted(graph: Graph) -> onnx.ModelProto:
    model = onnx_io.emit(graph)
    onnx_io.check(model)
    return onnx.load_from_string(onnx_io.to_bytes(model))


def in_tiles(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The model in every tiling."""
    count = len(tilings(_site(lifted(model))))
    found = []
    for index in range(count):
        graph = lifted(model)
        site = _site(graph)
        WinogradRewriter(graph, Constants(graph, BLOCK), site, tilings(site)[index]).run()
        found.append(emitted(graph))
    return found


def _site(graph: Graph) -> Any:
    (site,) = [site_of(op, BLOCK) for op in graph.ops]
    assert site is not None
    return site


def same(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> None:
    assert want.shape == got.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-5)


@needs_blocks
@settings(max_examples=15, derandomize=True)
@given(
    image=st.tuples(st.integers(2, 17), st.integers(2, 13)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    batch=st.sampled_from([1, 2, 3, "N"]),
    bias=st.booleans(),
    residual=st.booleans(),
    activation=st.sampled_from(["", *ACTIVATIONS]),
    opset=st.sampled_from([9, 17]),
)
def test_every_tiling_equals_the_direct_kernel(image: tuple[int, int], pads: tuple[int, ...], **fields: Any) -> None:
    if any(extent + front + back < 3 for extent, front, back in zip(image, pads[:2], pads[2:], strict=True)):
        return
    model = convolution(image, pads=pads, **fields)  # type: ignore[arg-type]
    want = run(model)
    for rewritten in in_tiles(model):
        same(want, run(rewritten))


@needs_blocks
@pytest.mark.parametrize(
    ("kernel", "fields"),
    [
        ((3, 1), {}),
        ((3, 5), {}),
        ((3, 3), {"strides": (1, 2)}),
        ((3, 3), {"dilations": (2, 1)}),
        ((3, 3), {"auto_pad": "VALID", "pads": (0, 0, 0, 0)}),
    ],
)
def test_one_axis_may_be_as_it_is(kernel: tuple[int, int], fields: dict[str, Any]) -> None:
    model = convolution((9, 10), kernel=kernel, **fields)
    want, found = run(model), in_tiles(model)
    assert found
    for rewritten in found:
        same(want, run(rewritten))


@needs_blocks
@pytest.mark.parametrize(
    "fields",
    [
        {"strides": (2, 2)},
        {"dilations": (2, 2)},
        {"group": 2},
        {"auto_pad": "SAME_UPPER", "pads": (0, 0, 0, 0)},
        {"pads": (3, 3, 3, 3)},
        {"image": (1, 1)},
    ],
)
def test_what_cannot_be_tiled_stays(fields: dict[str, Any]) -> None:
    graph = lifted(convolution(fields.pop("image", (12, 12)), **fields))
    before = graph.version
    rewrite(graph)
    assert graph.version == before


def _site_of(channels: int, filters: int, height: int, width: int) -> Any:
    """A convolution of that size, without its filter's elements."""
    site = _site(lifted(convolution((height, width))))
    return replace(site, channels=channels, filters=filters)


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
    """As measured; see the docstring of Speeds."""
    tiles = estimated_times(_site_of(*shape), MachineRates()).best
    assert (tiles and tuple(each.outputs for each in tiles)) == expected
