"""Models that onnxruntime has optimised and saved, at every level of its optimiser."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

import layoutopt
from layoutopt.cost_models.registry import host_target

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
HERE = str(host_target())
TARGETS = ("gpu-hopper", "ascend-910b", "cpu" if HERE.startswith("cpu-avx") else "cpu-neon")
IMAGES = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,64,64] x) => (float[1,32,32,32] y) {
    a = Conv <pads = [1,1,1,1]> (x, v)
    b = Relu (a)
    c = Conv <pads = [1,1,1,1]> (b, w)
    d = Add (c, b)
    e = Relu (d)
    f = MaxPool <kernel_shape = [2,2], strides = [2,2]> (e)
    h = Conv (f, u)
    i = Sigmoid (h)
    y = Mul (h, i)
}"""
SEQUENCES = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,12,32] x) => (float[2,12,32] y) {
    q = MatMul (x, p)
    t = Transpose <perm = [0,2,1]> (q)
    s = MatMul (q, t)
    r = Mul (s, scale)
    z = Softmax (r)
    o = MatMul (z, x)
    m = Add (o, x)
    n = LayerNormalization (m, gamma, beta)
    k = MatMul (n, p)
    l = Add (k, beta)
    e = Erf (l)
    y = Mul (l, e)
}"""
ROWS = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,12,32] x) => (float[2,12,32] y) {
    s = Pow (x, two)
    m = ReduceMean <axes = [-1]> (s)
    a = Add (m, small)
    r = Sqrt (a)
    d = Div (x, r)
    n = Mul (d, gamma)
    y = MatMul (n, p)
}"""


def saved(text: str, level: str, folder: Path) -> onnx.ModelProto:
    """The model as onnxruntime optimises and saves it."""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    shapes = {
        "v": (32, 3, 3, 3),
        "w": (32, 32, 3, 3),
        "u": (32, 32, 1, 1),
        "p": (32, 32),
        "gamma": (32,),
        "beta": (32,),
    }
    arrays = {name: generator.normal(size=shape, scale=0.2) for name, shape in shapes.items()}
    arrays |= {"scale": np.asarray(0.25), "two": np.asarray(2), "small": np.asarray(1e-5)}
    read = {name for node in model.graph.node for name in node.input}
    for name in sorted(read & set(arrays)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name].astype(np.float32), name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / "saved.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "saved.onnx")


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}::{node.op_type}" for node in model.graph.node)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("text", [IMAGES, SEQUENCES, ROWS], ids=["images", "sequences", "rows"])
def test_they_are_optimised_and_compute_the_same(text: str, level: str, target: str, tmp_path: Path) -> None:
    model = saved(text, level, tmp_path)
    result = layoutopt.optimize(model, target)
    assert result.report.verification.status == "passed", result.report.verification.reason
    packed = {kind: count for kind, count in kinds(model).items() if kind.startswith("com.microsoft.nchwc")}
    assert all(kinds(result.proto)[kind] >= count for kind, count in packed.items())


def test_what_they_have_in_them(tmp_path: Path) -> None:
    """The saved models contain the ops that the other test is about."""
    assert kinds(saved(IMAGES, "extended", tmp_path))["com.microsoft::FusedConv"] == 1
    assert kinds(saved(IMAGES, "all", tmp_path))["com.microsoft.nchwc::Conv"] >= 3
    assert kinds(saved(SEQUENCES, "extended", tmp_path))["com.microsoft::SkipLayerNormalization"] == 1
    assert kinds(saved(SEQUENCES, "extended", tmp_path))["com.microsoft::FusedMatMul"] == 1
    assert kinds(saved(ROWS, "extended", tmp_path))["::SimplifiedLayerNormalization"] == 1


@pytest.mark.skipif(not HERE.startswith("cpu-avx"), reason="onnxruntime has no blocked kernels here")
def test_a_fused_convolution_is_one_blocked_convolution(tmp_path: Path) -> None:
    result = layoutopt.optimize(saved(IMAGES, "extended", tmp_path), "cpu")
    found = kinds(result.proto)
    assert not found["com.microsoft::FusedConv"] and found["com.microsoft.nchwc::Conv"] >= 3
    fused = [node for node in result.proto.graph.node if node.op_type == "Conv" and len(node.input) == 4]
    assert len(fused) == 1 and any(each.name == "activation" for each in fused[0].attribute)
