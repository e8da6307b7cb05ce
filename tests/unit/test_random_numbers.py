"""Models that draw random numbers: both models of a comparison draw the same ones."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt.verification.file_comparison import verify_files

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,24,24] x) => (float[1,32,24,24] y)
{
    a = Transpose<perm=[0,2,3,1]>(x)
    b = Relu(a)
    c = Transpose<perm=[0,3,1,2]>(b)
    noise = RandomNormalLike(c)
    d = Add(c, noise)
    e = Conv<pads=[1,1,1,1]>(d, filter)
    y = Tanh(e)
}"""


def model() -> onnx.ModelProto:
    found = onnx.parser.parse_model(MODEL)
    weights = np.random.default_rng(0).normal(size=(32, 16, 3, 3), scale=0.1).astype(np.float32)
    found.graph.initializer.append(numpy_helper.from_array(weights, "filter"))
    return found


@pytest.mark.parametrize(("target", "runtime"), [("cpu", None), ("gpu-hopper", "compiler"), ("gpu-hopper", "any")])
def test_a_model_that_draws_random_numbers_is_verified(target: str, runtime: str | None) -> None:
    result = layoutopt.optimize(model(), target, runtime=runtime)
    assert result.report.changed and result.report.verification.status == "passed"
    (noise,) = [node for node in result.proto.graph.node if node.op_type == "RandomNormalLike"]
    assert "seed" not in {each.name for each in noise.attribute}, "the seed is for the comparison only"


def test_a_fault_behind_random_numbers_is_detected(tmp_path: Path) -> None:
    original, changed = tmp_path / "original.onnx", tmp_path / "changed.onnx"
    onnx.save(model(), original)
    onnx.save(model(), changed)
    assert verify_files(original, changed).status == "passed"
    faulty = model()
    weights = numpy_helper.to_array(faulty.graph.initializer[0]).copy()
    weights[[3, 4]] = weights[[4, 3]]
    faulty.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "filter"))
    onnx.save(faulty, changed)
    assert verify_files(original, changed).status == "failed"
