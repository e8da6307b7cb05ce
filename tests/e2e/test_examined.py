"""The report and the summary contain what the proof of a plan covers."""

import onnx
import pytest
from onnx import parser

import layoutopt
from layoutopt.cli.rendering.optimize import plan_lines
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


def summary(report: Report) -> str:
    return "\n".join(f"{name} {line.plain}" for name, line in plan_lines(report))


def optimized() -> Report:
    return layoutopt.optimize(model(), "ascend-910b", verify=False).report


def test_without_cut_candidates_nothing_is_examined() -> None:
    report = optimized()
    assert report.plan is not None
    assert (report.plan.examined, report.plan.unexamined, report.plan.gap) == (0, 0, 0.0)
    assert summary(report).endswith("proven optimal for these formats")


def test_the_proof_covers_the_candidates_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = optimized().plan
    monkeypatch.setattr(propagation, "MAX_FORMATS", 1)
    monkeypatch.setattr(propagation, "MAX_COMBINATIONS", 1)
    report = optimized()
    assert report.plan is not None and whole is not None
    assert report.plan.examined > 0 and report.plan.unexamined == 0 and report.plan.optimal
    assert report.plan.seconds_after == pytest.approx(whole.seconds_after)
    assert f"proven optimal for these formats and {report.plan.examined} candidates beyond the limits" in summary(
        report
    )


def test_candidates_that_are_not_examined_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_FORMATS", "MAX_COMBINATIONS", "MIN_EXAMINED"):
        monkeypatch.setattr(propagation, name, 1)
    monkeypatch.setattr(propagation, "EXAMINED_SHARE", 0.0)
    report = optimized()
    assert report.plan is not None
    assert report.plan.unexamined > 0 and report.plan.gap > 0 and not report.plan.optimal
    assert f"{report.plan.unexamined} formats or more beyond the limits were not examined" in summary(report)
