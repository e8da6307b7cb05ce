"""The dialect of onnxruntime's blocked kernels: native ops, fused ops, resampling, and the block-size check."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import floor

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from parsed_models import text_model
from tiers import covering

import layoutopt
from layoutopt import inference, planner
from layoutopt.cost_models import load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.ops import Y
from layoutopt.ops.feature_maps import REPEATING_MODES
from layoutopt.runtime.session import Session

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
OTHER = {"cpu-avx2": "cpu-avx512", "cpu-avx512": "cpu-avx2"}

PADDED_OTHERWISE = 24 if host_target() == "cpu-avx512" else 120
"""Channels that fill another number of blocks on the other machine, and that a plan for that machine pads."""

pytestmark = pytest.mark.skipif(host_target() not in OTHER, reason="the blocks of this processor are not known")


def network(body: str, channels: int = 32, batch: str = "1") -> onnx.ModelProto:
    """A model from ONNX's text syntax, with random weights w<n> (c, c, 3, 3), d<n> (depthwise), b<n> and s<n> (c)."""
    shapes = {"w": f"{channels},{channels},3,3", "d": f"{channels},1,3,3", "b": f"{channels}", "s": f"1,{channels},1,1"}
    used = ", ".join(f"float[{shapes[name[0]]}] {name}" for name in sorted(set(re.findall(r"\b[wdbs]\d", body))))
    shape = f"{batch},{channels},16,16"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float[?,?,?,?] y) <{used}> {{{body}}}'
    )


def kinds(model: onnx.ModelProto) -> Counter[str]:
    """The ops of the result for this machine; the result for the other block size is compared by definition."""
    other = layoutopt.optimize(model, OTHER[host_target()])
    assert other.report.verification.status == "passed"
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime")
    assert result.report.verification.status == "passed"
    check = {node.name for node in result.proto.graph.node if any("block_guard" in name for name in node.output)}
    return Counter(node.op_type for node in result.proto.graph.node if node.name not in check)


CONV = "Conv <pads = [1,1,1,1]>"


def test_activations_and_residuals_are_taken_into_the_convolution() -> None:
    found = kinds(network(f"a = {CONV} (x, w1, b1) r = Relu(a) c = {CONV} (r, w2, b2) t = Add(c, r) y = Relu(t)"))
    assert found == {"ReorderInput": 1, "Conv": 2, "ReorderOutput": 1}


def test_squeeze_and_excite_needs_no_reorder() -> None:
    gate = f"p = GlobalAveragePool(a) q = {CONV} (p, w3) z = Sigmoid(q)"
    found = kinds(network(f"a = {CONV} (x, w1, b1) {gate} m = Mul(a, z) y = {CONV} (m, w2)"))
    assert found["ReorderInput"] == 1 and found["ReorderOutput"] == 1
    assert found["Mul"] == 0


@pytest.mark.parametrize(("channels", "batch"), covering([8, 20, 17, 40], ["1", "N"]))
def test_any_channel_count_and_batch(channels: int, batch: str) -> None:
    body = (
        f"a = {CONV} (x, w1, b1) p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a) "
        f"d = Conv <group = {channels}, pads = [1,1,1,1]> (p, d1) z = Sigmoid(d) m = Mul(d, z) k = Mul(m, s1) "
        f"c = Concat <axis = 1> (k, p) y = Relu(c)"
    )
    assert kinds(network(body, channels, batch))


ROWS = """<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},32,16,16] x) => (float[?,?,?,?] y)
<float[32,32,3,3] v, float[32,64] w, float[64] b, float[64,1,3,3] d,
 int64[3] rows = {{0, 32, 256}}, int64[4] image = {{0, 64, 16, 16}}> {{
    a = Conv <pads = [1,1,1,1]> (x, v)
    r = Reshape (a, rows)
    t = Transpose <perm = [0, 2, 1]> (r)
    m = MatMul (t, w)
    n = Add (m, b)
    h = Relu (n)
    s = Transpose <perm = [0, 2, 1]> (h)
    i = Reshape (s, image)
    y = Conv <group = 64, pads = [1,1,1,1]> (i, d)
}}"""


@pytest.mark.parametrize("batch", ["1", "N"])
def test_products_of_blocked_rows_are_convolutions(batch: str) -> None:
    found = kinds(text_model(ROWS.format(batch=batch)))
    assert {kind: count for kind, count in found.items() if kind != "Reshape"} == {
        "ReorderInput": 1,
        "Conv": 3,
        "ReorderOutput": 1,
    }


@pytest.mark.parametrize(
    ("body", "is_candidate"),
    [("c = Relu (x)", False), ("c = Conv <pads = [1,1], group = 32> (x, d)", True)],
)
def test_products_in_blocks_are_candidates_next_to_blocks_only(body: str, is_candidate: bool) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[1,32,16] x) => (float[1,16,64] y)
<float[32,1,3] d, float[32,64] w> {{ {body} t = Transpose <perm = [0, 2, 1]> (c) y = MatMul (t, w) }}"""
    graph = inference.lift(onnx_ir.serde.deserialize_model(text_model(text)))
    found = planner.propose(planner.RegionTree(graph), load_target("cpu-avx2"), {}).signatures
    (multiplication,) = (op for op in graph.ops if op.op_type == "MatMul")
    assert any(str(each[Y]) == "NWC8w" for each in found[multiplication]) == is_candidate


SIGNAL = """<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},32,4000] x) => (float[?,?,?] y)
<float[32,32,3] w1, float[32,32,3] w2, float[32,1,3] d1, float[32] b1, float[1,32,1] s1> {{
    a = Conv <pads = [3, 2], dilations = [2]> (x, w1, b1)
    l = LeakyRelu <alpha = 0.1> (a)
    d = Conv <group = 32, pads = [1, 1], strides = [2]> (l, d1)
    m = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 0]> (d)
    k = Mul (m, s1)
    y = Conv <pads = [1, 1]> (k, w2)
}}"""


@pytest.mark.parametrize("batch", ["1", "2", "N"])
def test_signals_are_images_of_one_row(batch: str) -> None:
    found = kinds(text_model(SIGNAL.format(batch=batch)))
    assert found["ReorderInput"] == 1 and found["ReorderOutput"] == 1
    assert found["LeakyRelu"] == 0 and found["MaxPool"] == 1


@pytest.mark.parametrize(("channels", "gate"), [(32, "Relu(a)"), (PADDED_OTHERWISE, "Mul(a, x)")])
@pytest.mark.parametrize("level", LEVELS)
def test_a_model_for_another_block_stops(level: str, channels: int, gate: str) -> None:
    """With the block-size check's own message, also where the padding of the input's channels depends on the block."""
    model = network(f"a = {CONV} (x, w1, b1) r = {gate} y = {CONV} (r, w2)", channels)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    x = np.ones((1, channels, 16, 16), dtype=np.float32)
    right, wrong = (
        layoutopt.optimize(model, target, dialect="onnxruntime", verify=False).proto.SerializeToString()
        for target in (host_target(), OTHER[host_target()])
    )
    assert onnxruntime.InferenceSession(right, options).run(None, {"x": x})[0].shape == x.shape
    with pytest.raises(Exception, match="this machine has others"):
        onnxruntime.InferenceSession(wrong, options).run(None, {"x": x})


PIXELS = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = (("linear", ROUNDINGS[:1]), ("nearest", ROUNDINGS[1:3]), ("nearest", (ROUNDINGS[0], ROUNDINGS[3])))


def resampling(
    node: str, image: tuple[int | str, int | str], opset: int, channels: int = 32, batch: str = "1"
) -> onnx.ModelProto:
    """A resampling between two convolutions without a bias or an activation."""
    extents, filters = ",".join(map(str, image)), f"float[{channels},{channels},3,3]"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{batch},{channels},{extents}] x) => (float[?,?,?,?] y)'
        f"<{filters} w1, {filters} w2> {{"
        f"a = Conv <pads = [1,1,1,1]> (x, w1) b = {node} y = Conv <pads = [1,1,1,1]> (b, w2)}}"
    )


def constants(model: onnx.ModelProto, **arrays: np.ndarray) -> onnx.ModelProto:
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def resampled(model: onnx.ModelProto, pins: dict[str, str] | None = None) -> Counter[str]:
    """The ops of the optimised and verified model."""
    symbols = {dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim if dim.dim_param}
    sizes = dict.fromkeys(symbols, 9)  # verification at the usual size of images takes long
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime", pins=pins or {}, dims=sizes)
    assert result.report.verification.status == "passed"
    return Counter(f"{node.domain}:{node.op_type}".removeprefix(":") for node in result.proto.graph.node)


def repeats(coordinates: str, rounding: str) -> bool:
    """Whether ONNX Runtime's Resize of this mode repeats elements for all extents and scales."""
    opset = 13 if coordinates == "tf_half_pixel_for_nn" else 19  # which later opsets do not have
    attributes = f'mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    session = Session(
        onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N] x, float[1] s) => (float[M] y)'
            f"{{ y = Resize <{attributes}> (x, , s) }}"
        ).SerializeToString()
    )
    cases = [(np.arange(extent, dtype=np.float32), scale) for extent in range(1, 7) for scale in range(1, 9)]
    given = ((x.repeat(scale), {"x": x, "s": np.asarray([scale], np.float32)}) for x, scale in cases)
    return all(np.array_equal(session.run(None, feed)[0], repeated) for repeated, feed in given)


def test_what_repeats_is_known() -> None:
    ways = product((*PIXELS, "tf_half_pixel_for_nn"), ROUNDINGS)
    assert {way for way in ways if repeats(*way)} == REPEATING_MODES


@pytest.mark.parametrize(("pixels", "way"), covering(PIXELS, MODES))
def test_every_mode_by_scales_and_by_sizes(way: tuple[str, Sequence[str]], pixels: str) -> None:
    """For integral scales the blocked kernel is used if it is equivalent; otherwise Resize runs on the blocked array."""
    mode, roundings = way
    for rounding in roundings:
        attributes = f'mode="{mode}", coordinate_transformation_mode="{pixels}", nearest_mode="{rounding}"'
        for scales in ((3, 2), (1.5, 0.7)):
            by_scales = constants(
                resampling(f"Resize <{attributes}> (a, , s)", (6, 5), 19), s=np.asarray([1, 1, *scales], np.float32)
            )
            sizes = np.asarray([floor(extent * scale) for extent, scale in zip((6, 5), scales, strict=True)], np.int64)
            by_sizes = constants(resampling(f"Resize <axes=[2,3], {attributes}> (a, , , s)", (6, 5), 19), s=sizes)
            whole = all(scale == int(scale) for scale in scales)
            repeats = mode == "nearest" and (pixels, rounding) in REPEATING_MODES
            native = whole and (mode == "linear" or repeats)
            for model in (by_scales, by_sizes):
                found = resampled(model)
                assert found["com.microsoft.nchwc:Upsample"] == native, (attributes, scales)
                assert found["Resize"] == (not native), (attributes, scales)
                assert not found["Transpose"], (attributes, scales)


@pytest.mark.parametrize(("channels", "image", "batch"), covering([31, 40], [(1, 1), ("H", "W")], ["1", "N"]))
def test_any_channel_count_batch_and_image(channels: int, batch: str, image: tuple[int | str, int | str]) -> None:
    for mode, scale in product(("nearest", "linear"), (2, 1.5)):
        model = resampling(f'Resize <mode="{mode}"> (a, , s)', image, 18, channels, batch)
        block = {"cpu-avx2": 8, "cpu-avx512": 16}[host_target()]
        pins = dict.fromkeys("ab", f"NCHW{block}c")
        found = resampled(constants(model, s=np.asarray([1, 1, scale, scale], np.float32)), pins)
        assert found["com.microsoft.nchwc:Upsample"] == (scale == 2)


@pytest.mark.parametrize(("mode", "scale"), [*product(("nearest", "linear"), (2, 1.5))])
def test_every_opset(mode: str, scale: float) -> None:
    used = {"s": np.asarray([1, 1, scale, scale], np.float32), "r": np.empty(0, np.float32)}
    inline = f'Upsample <mode="{mode}", scales=[1.0,1.0,{float(scale)},{float(scale)}]> (a)'
    nodes = {7: inline, 9: f'Upsample <mode="{mode}"> (a, s)', 10: f'Resize <mode="{mode}"> (a, s)'}
    nodes |= {11: f'Resize <mode="{mode}"> (a, r, s)', 13: f'Resize <mode="{mode}"> (a, , s)'}
    for opset, node in nodes.items() if scale == 2 else [*nodes.items()][-2:]:
        model = constants(resampling(node, (4, 5), opset), **{name: used[name] for name in used if f", {name}" in node})
        found = resampled(model)
        assert found["com.microsoft.nchwc:Upsample"] == (scale == 2) and not found["Transpose"], opset
