"""The reason why an op has no signature to choose is in the report and in the output of `inspect`."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import layoutopt
from layoutopt.cli import main
from layoutopt.inference import lift
from layoutopt.onnx_io import from_message
from layoutopt.ops import OPS_WITHOUT_RULE
from layoutopt.ops.ops_without_rule import NO_RULE, reason_without_signature

NODES = {
    "y = Det (x)": OPS_WITHOUT_RULE["Det"],
    "y = other.domain.Mystery (x)": NO_RULE,
    "y = ReduceSum (x, axes)": "the reduced axes are computed",
    "y = Relu (x)": "",
    "y = Transpose <perm = [1, 0, 2]> (x)": "",
    "y = Softmax <axis = 0> (x)": "",
}


def model_of(node: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "other.domain" : 1]>'
        f"g (float[4, 3, 3] x, int64[n] axes) => (float y) {{ {node} }}"
    )


@pytest.mark.parametrize("node", NODES)
def test_the_reason(node: str) -> None:
    (op,) = lift(from_message(model_of(node))).ops
    assert reason_without_signature(op) == NODES[node]


def test_the_report_and_inspect_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of("d = Det (x) y = Relu (d)")
    report = layoutopt.optimize(model, "gpu-hopper", inputs={"x": np.ones((4, 3, 3), np.float32)}).report
    assert [each.reason for each in report.ops] == [OPS_WITHOUT_RULE["Det"], ""]
    onnx.save(model, tmp_path / "net.onnx")
    for options in ((), ("--all",), ("--json",)):
        assert main(["inspect", str(tmp_path / "net.onnx"), "-t", "gpu-hopper", *options]) == 0
        out = capsys.readouterr().out
        assert OPS_WITHOUT_RULE["Det"] in " ".join(out.split())
    assert [each["after"]["reason"] for each in json.loads(out)["ops"]] == [OPS_WITHOUT_RULE["Det"], ""]
