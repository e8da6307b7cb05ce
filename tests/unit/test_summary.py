"""The summary of a result: the numbers of its report, escaped in HTML."""

import onnx
import onnx.parser
import pytest

import layoutopt
from layoutopt.report.units import seconds, size

NETWORK = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,4,4,32] x) => (float[1,4,4,32] y) <float[32,32,1,1] w = {%s}>
{
    a = Transpose <perm = [0,3,1,2]> (x)
    b = Conv (a, w)
    y = Transpose <perm = [0,2,3,1]> (b)
}"""


@pytest.fixture(scope="module")
def result() -> layoutopt.Result:
    model = onnx.parser.parse_model(NETWORK % ",".join(["0.5"] * 1024))
    return layoutopt.optimize(model, "gpu-hopper", runtime="compiler", measure=False)


def test_the_rows_have_the_numbers_of_the_report(result: layoutopt.Result) -> None:
    report, rows = result.report, {each.label: each.text for each in result.report.facts}
    assert report.changed and report.gain is not None
    assert rows["result"] == "rewritten"
    assert rows["estimated time"].startswith(f"{seconds(report.gain.seconds_before)} -> ")
    assert rows["verification"].startswith(f"equal outputs ({report.verification.largest_error:.1e}; rounding ")
    assert rows["speed"].endswith("faster, estimated") and rows["measured time"].startswith("not measured")
    assert rows["data movement"] == (f"2 -> 0 layout changes, {size(report.before.bytes)} -> 0 B (in the file)")
    shown = [line.split("  ")[0] for line in result.summary().splitlines()[1:]]
    assert shown == [each.label for each in report.facts if each.level != "detail"]


def test_names_are_escaped_in_html(result: layoutopt.Result) -> None:
    report = result.report.model_copy(update={"model": "<script>alert(1)</script>.onnx"})
    shown = layoutopt.Result(result.model, result.plan, report, result.graph)._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_an_unchanged_model_has_its_reason() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    report = layoutopt.optimize(model, "gpu-hopper", measure=False).report
    assert report.facts[0].text == f"left unchanged: {report.reason}" != "left unchanged: "
