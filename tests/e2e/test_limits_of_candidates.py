"""The report and the summary contain the number of candidates that the proof of a plan does not cover."""

import onnx
import pytest
from onnx import parser

import layoutopt
from layoutopt.planner import propagation
from layoutopt.report.schema import Report

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
attention (float16[1,64,32] queries, float16[1,32,64] keys) => (float16[1,64,64] scores)
{
   products = MatMul (queries, keys)
   turned = Transpose <perm = [0, 2, 1]> (products)
   again = MatMul (turned, products)
   scores = Relu (again)
}
"""


def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def proof(report: Report) -> str:
    return next(each.detail for each in report.facts if each.label == "lower bound")


def optimized() -> Report:
    return layoutopt.optimize(model(), "ascend-910b", verify=False).report


def test_candidates_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = optimized()
    assert whole.plan is not None and whole.plan.cut == 0
    assert proof(whole).endswith("proven optimal for these formats")
    for name in ("MAX_FORMATS", "MAX_COMBINATIONS"):
        monkeypatch.setattr(propagation, name, 1)
    report = optimized()
    assert report.plan is not None
    assert report.plan.cut > 0 and report.plan.optimal and report.plan.seconds_after >= whole.plan.seconds_after
    assert proof(report).endswith(
        f"proven optimal for these formats, {report.plan.cut} candidates beyond the limits were cut"
    )
