"""`verify` compares two files as `optimize` compares a model with its rewrite; perturbations change only rounding."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from layoutopt.runtime.session import Session
from layoutopt.verification.file_comparison import verify_files
from layoutopt.verification.perturbation import perturbed_inputs

HEAD = '<ir_version: 9, opset_import: ["" : 18]> net'
BODY = """
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
    r1 = Relu (c1)
    c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
    s2 = Add (c2, r1)
    m = ReduceMean <keepdims = 1> (s2, axes)
    g = Sigmoid (m)
    y = Mul (s2, g)
"""


def network(body: str = BODY, shape: str = "1,3,16,16", name: str = "x") -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEAD} (float[{shape}] {name}) => (float[1,16,16,16] y) {{ {body} }}")
    numbers = np.random.default_rng(0)
    for weight, dims in {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "b1": (16,)}.items():
        array = numbers.normal(size=dims).astype(np.float32) / np.sqrt(np.prod(dims[1:]), dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, weight))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([2, 3], np.int64), "axes"))
    return model


def test_models_with_different_inputs_are_told_apart(tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(network(BODY.replace("(x,", "(z,"), name="z"), other)
    onnx.save(network(), tmp_path / "one.onnx")
    verdict = verify_files(tmp_path / "one.onnx", other)
    assert verdict.status == "failed"
    assert verdict.reason == "the models take different inputs: only the first has x, only the second z"


def test_perturbations_stay_within_their_units() -> None:
    x = {"x": np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32), "n": np.arange(9.0, dtype=np.float32)}
    moved = perturbed_inputs(x, 0)
    ratio = np.abs(moved["x"] / x["x"] - 1) / 2.0**-23
    assert 0 < ratio.max() < 1.6
    assert moved["n"] is x["n"], "whole numbers stay"


def test_a_run_that_takes_too_long_ends() -> None:
    body = "".join(f"a{n + 1} = MatMul (a{n}, a0) " for n in range(60))
    text = f"{HEAD} (float[1500,1500] a0) => (float[1500,1500] a60) {{ {body} }}"
    session = Session(onnx.parser.parse_model(text).SerializeToString(), threads=1)
    with pytest.raises(TimeoutError, match="did not finish within 0 s of processor time"):
        session.run(None, {"a0": np.zeros((1500, 1500), np.float32)}, 0.05)
