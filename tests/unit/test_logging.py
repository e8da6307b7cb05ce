"""The logger `layoutopt`: silent unless configured; stages at info, passes at debug, repairs and doubts at warning."""

import logging
import subprocess
import sys

import onnx
import onnx.parser
import pytest

import layoutopt

MODEL = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1,8,4,4] x) => (float[1,8,4,4] y) { a = Relu(x)  y = Neg(a) }
""")


def test_stages_and_passes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "layoutopt"):
        result = layoutopt.optimize(MODEL, measure=False, calibrate=False)
    levels: dict[int, list[str]] = {}
    for record in caplog.records:
        levels.setdefault(record.levelno, []).append(record.getMessage())
    assert "model: lifting" in levels[logging.INFO]
    passes = [message for message in levels[logging.DEBUG] if message.startswith("model: pass ")]
    assert len(passes) == len(result.report.passes) > 0


def test_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(MODEL)
    wrong.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 9  # a fault that onnxruntime tolerates
    with caplog.at_level(logging.WARNING, "layoutopt"):
        layoutopt.optimize(wrong, verify=False, measure=False, calibrate=False)
    assert any(record.getMessage().startswith("model: y: ") for record in caplog.records)


def test_a_program_without_logging_prints_nothing() -> None:
    program = f"import layoutopt, onnx; layoutopt.optimize(onnx.ModelProto.FromString({MODEL.SerializeToString()!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
