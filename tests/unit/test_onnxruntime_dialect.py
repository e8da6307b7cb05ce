"""The dialect of onnxruntime's blocked kernels: what becomes native, what is fused, and the guard."""

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime.guard import expected

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
OTHER = {"cpu-avx2": "cpu-avx512", "cpu-avx512": "cpu-avx2"}

pytestmark = pytest.mark.skipif(host_target() not in OTHER, reason="the blocks of this processor are not known")


def network(body: str, channels: int = 32, batch: str = "1") -> onnx.ModelProto:
    """A model from ONNX's text syntax, with random weights w<n> (c, c, 3, 3), d<n> (depthwise), b<n> and s<n> (c)."""
    generator = np.random.default_rng(0)
    shapes = {"w": (channels, channels, 3, 3), "d": (channels, 1, 3, 3), "b": (channels,), "s": (1, channels, 1, 1)}
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},{channels},16,16] x) => (float[?,?,?,?] y) {{{body}}}'
    )
    used = {name for node in model.graph.node for name in node.input}
    for name in sorted(used):
        if name[0] in shapes and name[1:].isdigit():
            shape = shapes[name[0]]
            values = generator.normal(scale=float(np.prod(shape[1:])) ** -0.5, size=shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


def kinds(model: onnx.ModelProto) -> Counter[str]:
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime")
    assert result.report.verification.status == "passed"
    guard = {node.name for node in result.proto.graph.node if any("block_guard" in name for name in node.output)}
    return Counter(node.op_type for node in result.proto.graph.node if node.name not in guard)


CONV = "Conv <pads = [1,1,1,1]>"


def test_activations_and_residuals_are_taken_into_the_convolution() -> None:
    found = kinds(network(f"a = {CONV} (x, w1, b1) r = Relu(a) c = {CONV} (r, w2, b2) t = Add(c, r) y = Relu(t)"))
    assert found == {"ReorderInput": 1, "Conv": 2, "ReorderOutput": 1}


def test_squeeze_and_excite_needs_no_reorder() -> None:
    gate = f"p = GlobalAveragePool(a) q = {CONV} (p, w3) z = Sigmoid(q)"
    found = kinds(network(f"a = {CONV} (x, w1, b1) {gate} m = Mul(a, z) y = {CONV} (m, w2)"))
    assert found["ReorderInput"] == 1 and found["ReorderOutput"] == 1
    assert found["Mul"] == 0


def test_affines_in_a_row_are_one() -> None:
    body = f"a = {CONV} (x, w1) r = Tanh(a) m = Mul(r, s1) n = Sub(m, s2) o = Add(n, s3) q = Relu(o) y = {CONV} (q, w2)"
    found = kinds(network(body))
    assert found == {"ReorderInput": 1, "Conv": 3, "ReorderOutput": 1}


@pytest.mark.parametrize("channels", [8, 20, 17, 40])
@pytest.mark.parametrize("batch", ["1", "N"])
def test_any_channel_count_and_batch(channels: int, batch: str) -> None:
    body = (
        f"a = {CONV} (x, w1, b1) p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a) "
        f"d = Conv <group = {channels}, pads = [1,1,1,1]> (p, d1) z = Sigmoid(d) m = Mul(d, z) k = Mul(m, s1) "
        f"c = Concat <axis = 1> (k, p) y = Relu(c)"
    )
    assert kinds(network(body, channels, batch))


def test_both_blocks_are_told_apart() -> None:
    assert expected(8) != expected(16)


@pytest.mark.parametrize("level", LEVELS)
def test_a_model_for_another_block_stops(level: str) -> None:
    model = network(f"a = {CONV} (x, w1, b1) r = Relu(a) y = {CONV} (r, w2)")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    x = np.ones((1, 32, 16, 16), dtype=np.float32)
    right, wrong = (
        layoutopt.optimize(model, target, dialect="onnxruntime", verify=False).proto.SerializeToString()
        for target in (host_target(), OTHER[host_target()])
    )
    assert onnxruntime.InferenceSession(right, options).run(None, {"x": x})[0].shape == (1, 32, 16, 16)
    with pytest.raises(Exception, match="this machine has others"):
        onnxruntime.InferenceSession(wrong, options).run(None, {"x": x})
