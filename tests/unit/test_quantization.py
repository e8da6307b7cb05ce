"""Quantised units stay whole: no cast and no folding comes between the ops that a runtime joins."""

import numpy as np
import onnx
import onnx.parser
import pytest

import layoutopt
from layoutopt.cost_models.registry import host_target

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64,56,56] x) => (float[1,64,56,56] y)
<float scale = {0.05}, uint8 zero = {128}, float weight_scale = {0.01}, int8 weight_zero = {0}>
{
    q = QuantizeLinear (x, scale, zero)
    d = DequantizeLinear (q, scale, zero)
    w = DequantizeLinear (v, weight_scale, weight_zero)
    c = Conv <pads = [1, 1, 1, 1]> (d, w)
    r = Relu (c)
    p = QuantizeLinear (r, scale, zero)
    y = DequantizeLinear (p, scale, zero)
}"""


@pytest.mark.parametrize("target", ["gpu-hopper", "ascend-910b", "cpu-avx512", host_target() or "cpu-avx2"])
@pytest.mark.parametrize("dialect", [None, "ops"])
def test_units_stay_whole(target: str, dialect: str | None) -> None:
    model = onnx.parser.parse_model(MODEL)
    weight = np.random.default_rng(0).integers(-128, 128, (64, 64, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "v"))
    result = layoutopt.optimize(model, target, dialect=dialect)
    assert result.report.verification.status == "passed"
    graph = result.graph
    conv, relu = (next(op for op in graph.ops if op.op_type == kind) for kind in ("Conv", "Relu"))
    producers = [graph.producer(value) for value in conv.inputs if value is not None]
    assert [producer and producer.op_type for producer in producers] == ["DequantizeLinear", "DequantizeLinear"]
    readers = [use.op.op_type for value in relu.outputs if value is not None for use in graph.uses(value)]
    assert readers == ["QuantizeLinear"]


def test_the_rest_of_the_model_is_planned() -> None:
    body = MODEL.replace("(float[1,64,56,56] y)", "(float[1,64,56,56] t)").replace(
        "y = DequantizeLinear (p, scale, zero)",
        "y = DequantizeLinear (p, scale, zero) i = Identity (y) s = Conv <pads = [1, 1, 1, 1]> (i, u) t = Relu (s)",
    )
    model = onnx.parser.parse_model(body)
    generator = np.random.default_rng(0)
    weights = {
        "v": generator.integers(-128, 128, (64, 64, 3, 3)).astype(np.int8),
        "u": generator.normal(size=(64, 64, 3, 3)).astype(np.float32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    result = layoutopt.optimize(model, "cpu-avx512", dialect="ops", verify=False)
    kinds = [op.op_type for op in result.graph.ops if op.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert kinds == [node.op_type for node in model.graph.node if node.op_type in kinds]
    blocked = [op.name for op in result.graph.ops if op.op_type == "Conv" and "16c" in str(op.signature)]
    assert len(blocked) == 1
