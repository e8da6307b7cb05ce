"""The report of a result: summary, reasons, remaining moves, the table of operators, and explanations of plans."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from parsed_models import parsed, text_model
from typer.testing import CliRunner

import layoutopt
from layoutopt import Explanation, explain, inference, onnx_io
from layoutopt.cli import main
from layoutopt.cli.app import app
from layoutopt.errors import ArgumentError
from layoutopt.inference import lift
from layoutopt.onnx_io import from_message
from layoutopt.ops import OPS_WITHOUT_RULE, rules
from layoutopt.ops.ops_without_rule import NO_RULE, reason_without_signature
from layoutopt.report.builder import counts
from layoutopt.report.operators import UNKNOWN, known_operators
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
    assert rows["estimated time"].startswith(f"{seconds(report.gain.seconds_unplanned)} -> ")
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


NODES = {
    "y = Det (x)": OPS_WITHOUT_RULE["Det"],
    "y = other.domain.Mystery (x)": NO_RULE,
    "y = ReduceSum (x, axes)": "the reduced axes are computed",
    "y = Relu (x)": "",
    "y = Transpose <perm = [1, 0, 2]> (x)": "",
    "y = Softmax <axis = 0> (x)": "",
}


def model_of_node(node: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "other.domain" : 1]>'
        f"g (float[4, 3, 3] x, int64[n] axes) => (float y) {{ {node} }}"
    )


@pytest.mark.parametrize("node", NODES)
def test_the_reason(node: str) -> None:
    (op,) = lift(from_message(model_of_node(node))).ops
    assert reason_without_signature(op) == NODES[node]


def test_the_report_and_inspect_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of_node("d = Det (x) y = Relu (d)")
    report = layoutopt.optimize(model, "gpu-hopper", inputs={"x": np.ones((4, 3, 3), np.float32)}).report
    assert [each.reason for each in report.ops] == [OPS_WITHOUT_RULE["Det"], ""]
    onnx.save(model, tmp_path / "net.onnx")
    for options in ((), ("--all",), ("--json",)):
        assert main(["inspect", str(tmp_path / "net.onnx"), "-t", "gpu-hopper", *options]) == 0
        out = capsys.readouterr().out
        assert OPS_WITHOUT_RULE["Det"] in " ".join(out.split())
    assert [each["after"]["reason"] for each in json.loads(out)["ops"]] == [OPS_WITHOUT_RULE["Det"], ""]


PERMUTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,6] x) => (float[4,6] y) <int64 m = {5}, bool t = {1}> {
  [loop] y = Loop (m, t, x) <body = again (int64 i, bool c, float[4,6] s) => (bool d, float[4,6] r) {
    d = Identity(c)
    [turn] p = Transpose <perm = [1, 0]> (s)
    [flat] r = Reshape <allowzero = 0> (p, e)
  }>
}"""


def test_the_bytes_of_a_body_count_once_per_run() -> None:
    found = counts(inference.lift(onnx_io.from_message(parsed(PERMUTED, e=[4, 6]))))
    assert (found.transposes, found.casts, found.bytes) == (1, 0, 5 * 2 * 4 * 6 * 4)


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["list", "ops", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_operator_of_onnx_has_a_rule_or_a_reason_to_have_none() -> None:
    kinds = {f"{each.domain}::{each.name}" if each.domain else each.name for each in onnx.defs.get_all_schemas()}
    assert not kinds - set(rules()) - set(OPS_WITHOUT_RULE)
    assert not [each.kind for each in known_operators() if each.reason == UNKNOWN]


def test_the_command() -> None:
    (conv,) = [each for each in json.loads(output_of("Conv", "--json=-"))["operators"] if not each["domain"]]
    assert conv["family"] == "convolution" and conv["opsets"][:2] == [7, 11]
    assert "com.microsoft" in output_of("com.microsoft::gelu") and "its indices" in output_of("maxunpool")


TARGET = "ascend-310"

HEADER = '<ir_version: 10, opset_import: ["" : 18, "other" : 1]>'
DECLARED = f"""{HEADER} net (float[1,16,28,28] x) => (float[1,16,28,28] y) <float[16,16,3,3] v, float[16,16,3,3] w> {{
    [first] a = Conv <pads = [1, 1, 1, 1]> (x, v)
    [strange] b = other.Strange (a)
    [second] y = Conv <pads = [1, 1, 1, 1]> (b, w)
}}"""


def declared() -> onnx.ModelProto:
    """Two convolutions, and between them an op of a declared shape that runs in canonical formats only."""
    found = text_model(DECLARED)
    found.graph.value_info.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 16, 28, 28]))
    return found


def explained(given: onnx.ModelProto, item: str | None = None, **options: object) -> Explanation:
    return explain(given, item, TARGET, **options)  # type: ignore[arg-type]


def test_an_op_without_a_rule_is_a_remedy_with_a_bound() -> None:
    found = explained(declared())
    conversions = {each.tensor: each for each in found.conversions}
    remedy = next(each for each in conversions["a"].remedies if "strange" in each.what)
    assert remedy.reason == "there is no layout rule for its op type"
    assert found.plan is not None and remedy.saved_seconds is not None
    assert 0 < remedy.saved_seconds < found.plan.seconds_after


def test_items_without_a_choice_have_a_note() -> None:
    item = explained(declared(), "x").item
    assert item is not None and item.note.startswith("an input: --pin gives it another format")
    fixed = explained(declared(), "b").item
    assert fixed is not None and not fixed.alternatives
    assert fixed.note == "other::Strange strange produces one format only: there is no layout rule for its op type"
    weight = explained(declared(), "w").item
    assert weight is not None and weight.note.startswith("a constant")


def test_a_node_that_is_folded_has_no_choices() -> None:
    folded = f"""{HEADER} net (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] v> {{
        [scale] s = Add (v, v)
        y = Conv (x, s)
    }}"""
    with pytest.raises(ArgumentError, match="scale: there is no such tensor or node when formats are planned"):
        explained(text_model(folded), "scale")


def test_conversions_in_bodies_and_symbolic_sizes() -> None:
    looped = text_model(
        f"""{HEADER} net (float[1,16,H,12] x, int64 m) => (float[1,16,H,12] y) <bool t = {{1}}, float[16,16,3,3] v> {{
            [loop] y = Loop (m, t, x) <body = again (int64 i, bool c, float[1,16,H,12] s) => (bool d, float[1,16,H,12] r) {{
                d = Identity (c)
                [inner] r = Conv <pads = [1, 1, 1, 1]> (s, v)
            }}>
        }}"""
    )
    found = explained(looped, dims={"H": 6})
    assert [(each.name, each.low, each.high) for each in found.dims] == [("H", 6, 6)]
    first = next(each for each in found.conversions if each.tensor == "s")
    assert [each.kind for each in first.ops] == ["body input", "Conv"]
    assert first.bytes == 2 * 16 * 6 * 12 * 4  # read and written once
    item = explained(looped, "inner", dims={"H": 6}).item
    assert item is not None and item.body == "loop/body" and len(item.alternatives) > 1
    loop = explained(looped, "loop", dims={"H": 6}).item
    assert loop is not None and "boundary of bodies" in loop.note
