"""layoutopt as an ONNX backend: it passes ONNX's own runner, and runs single nodes."""

import unittest

import ml_dtypes
import numpy as np
import onnx.backend.test
import onnx.parser
import pytest
import suite
from onnx import helper
from optimizing_backend import Backend

import layoutopt

NETWORK = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,3,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] y) <float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
{ a = Conv(x, w) b = Relu(a) y = Add(b, z) }"""


class Hopper(Backend):
    target = "gpu-hopper"
    dialect = "ops"


def test_onnx_runs_its_suite_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("onnx.backend.test.runner.load_model_tests", lambda kind: list(some(kind)))
        runner = onnx.backend.test.BackendTest(Hopper, __name__)
    result = unittest.TestResult()
    runner.test_suite.run(result)
    assert result.testsRun == 6
    assert len(result.skipped) == 3  # those for CUDA
    assert not result.failures and not result.errors


def some(kind: str) -> list[onnx.backend.test.case.test_case.TestCase]:
    if kind == "node":
        return [suite.node_case("conv", "test_basic_conv_with_padding")]
    return [suite.cases(kind)[name] for name in ("test_Conv2d", "test_sequence_model1") if name in suite.cases(kind)]


def test_inputs_by_place_and_by_name() -> None:
    model = onnx.parser.parse_model(NETWORK)
    x, z = np.ones((1, 3, 8, 8), np.float32), np.full((1, 4, 8, 8), 0.5, np.float32)
    (by_place,) = Hopper.run_model(model, [x, z])
    (by_name,) = Hopper.run_model(model, {"z": z, "x": x})
    assert np.array_equal(by_place, by_name)
    assert by_place[0, :, 0, 0].tolist() == [6.5, 15.5, 24.5, 33.5]


def test_options_of_a_call() -> None:
    model = onnx.parser.parse_model(NETWORK)
    with pytest.raises(layoutopt.LayoutoptError, match="no target 'none'"):
        Hopper.prepare(model, target="none")
    with pytest.raises(layoutopt.LayoutoptError, match="none"):
        Hopper.prepare(model, dialect="none")
    assert Hopper.prepare(model, target="cpu", dialect=None, rtol=0.1)


def test_devices() -> None:
    assert Backend.supports_device("CPU") and Backend.supports_device("CPU:0")
    assert not Backend.supports_device("CUDA")


def test_one_node() -> None:
    x = np.array([[-1.0, 2.0]], np.float32)
    (y,) = Hopper.run_node(helper.make_node("Relu", ["x"], ["y"]), [x])
    assert y.tolist() == [[0, 2]]
    (y,) = Hopper.run_node(helper.make_node("Clip", ["x", "", "high"], ["y"]), [x, np.float32(1)])
    assert y.tolist() == [[-1, 1]]
    (y,) = Hopper.run_node(helper.make_node("Relu", ["x"], ["y"]), [x], opset_version=6)
    assert y.tolist() == [[0, 2]]


@pytest.mark.parametrize("version", [None, 1])
def test_one_node_of_a_custom_domain(version: int | None) -> None:
    """onnx has no schemas of onnxruntime's operators."""
    x = np.array([[-1.0, 2.0]], np.float32)
    node = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1, alpha=2.0)
    (y,) = Hopper.run_node(node, [x, x], opset_version=version) if version else Hopper.run_node(node, [x, x])
    assert y.tolist() == [[10]]


def test_one_node_without_an_operator() -> None:
    with pytest.raises(layoutopt.ModelError, match=r"no operator 'Unheard' in ai\.onnx"):
        Hopper.run_node(helper.make_node("Unheard", ["x"], ["y"]), [np.zeros(1, np.float32)])


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float16"]
)
def test_types_that_numpy_has_no_name_for(dtype: str) -> None:
    """They pass through onnxruntime, also with an odd number of elements, whose last byte is not full."""
    x = np.array([[0, 1, 1]]).astype(getattr(ml_dtypes, dtype, dtype))
    (y,) = Hopper.run_node(helper.make_node("Transpose", ["x"], ["y"]), [x], opset_version=25)
    assert y.dtype == x.dtype
    assert y.astype(np.float32).tolist() == [[0], [1], [1]]


def test_the_wrong_type_is_refused() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (bfloat16[1] x) => (float[1] y) { y = Cast<to = 1>(x) }'
    prepared = Hopper.prepare(onnx.parser.parse_model(text))
    with pytest.raises(ValueError, match="bfloat16"):
        prepared.run([np.ones(1, np.float16)])
