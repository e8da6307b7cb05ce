"""The operators of a model with their opsets and element types, and whether onnxruntime can run each."""

from functools import partial
from pathlib import Path

import onnx
import pytest
from compatibility_models import convolutions, saved
from onnx import parser

import layoutopt
from layoutopt import onnx_io
from layoutopt.report.compatibility import op_name
from layoutopt.runtime.operator_usage import Usage, usages


@pytest.fixture
def save(tmp_path: Path):
    return partial(saved, tmp_path)


@pytest.fixture
def used(save):
    """The usages of a model by the names of its operators."""

    def read(proto: onnx.ModelProto | str) -> dict[str, Usage]:
        return {op_name(each): each for each in usages(onnx_io.read(save(proto)))}

    return read


def test_types_follow_the_operators_that_onnx_does_not_know(used) -> None:
    found = used(
        "g (float[2,8] x, float[8] b) => (int64[?] y) {"
        " g = com.microsoft.BiasGelu(x, b) h = Cast <to = 11> (g) m = com.microsoft.FusedMatMul <transB = 1> (h, h)"
        " s = Shape(m) y = Identity(s) }"
    )
    assert list(found) == [
        "com.microsoft::BiasGelu(float32, float32)",
        "Cast(float32)",
        "com.microsoft::FusedMatMul(float64, float64)",
        "Shape(float64)",
        "Identity(int64)",
    ]


def test_a_node_behind_one_that_cannot_run_goes_by_what_the_file_declares(used) -> None:
    text = "g (float[2] x) => (float[2] y) {{ a = my.Op(x) b = Relu(a) y = Relu(b) }}"
    assert [each.support.status for each in used(text.format()).values()] == ["missing", "unknown"]
    declared = text.replace("(float[2] y)", "(float[2] y) <double[2] a>")
    assert list(used(declared.format()))[1:] == ["Relu(float64)"]


SUBGRAPHS = (
    (
        "g (float[2] x, bool c) => (float[2] y) { o = Cast <to = 11> (x) z = If (c) <"
        "then_branch = t () => (double[2] r) {{ s = {op}(o) r = Neg(s) }}, "
        "else_branch = e () => (double[2] r) {{ r = Exp(o) }}> y = Cast <to = 1> (z) }"
    )
    .replace("{ o", "{{ o")
    .replace("(z) }", "(z) }}")
)


def test_subgraphs_see_what_is_around_them(used) -> None:
    assert [(name, each.support.status) for name, each in used(SUBGRAPHS.format(op="Abs")).items()] == [
        ("Cast(float32)", "kernel"),
        ("Abs(float64)", "kernel"),
        ("Neg(float64)", "kernel"),
        ("Exp(float64)", "kernel"),
        ("If(bool)", "kernel"),
        ("Cast(float64)", "kernel"),
    ]


def test_only_what_is_missing_inside_is_called_missing(used) -> None:
    found = used(SUBGRAPHS.format(op="my.Op"))
    assert [name for name, each in found.items() if each.support.status == "missing"] == ["my::Op(float64)"]
    assert found["If(bool)"].support.detail == "an op in its body cannot be run"


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[2,3] x, double[2,3] d) => (float[2,3] y, float[?,?] z, double[2,3] w) {
  y = my.soft <axis = 0> (x)
  z = my.twice <to = 1> (d)
  w = my.soft (d)
}
<domain: "my", opset_import: ["" : VERSION]>
soft <axis: int = 1> (a) => (b) { e = Exp(a) b = Softmax <axis: int = @axis> (e) }
<domain: "my", opset_import: ["" : 18, "my" : 1]>
twice <to> (a) => (b) { c = Cast <to: int = @to> (a) d = my.soft <axis = 1> (c) b = my.soft(d) }
"""


@pytest.mark.parametrize("version", ["18", "12"])
def test_functions_are_composed_of_operators(save, version: str) -> None:
    found = usages(onnx_io.read(save(parser.parse_model(FUNCTIONS.replace("VERSION", version)))))
    assert [(each.op_type, each.inputs, each.support.status) for each in found] == [
        ("soft", ("float32",), "composed"),
        ("twice", ("float64",), "composed"),
        ("soft", ("float64",), "composed"),
    ]
    assert "Exp" in found[0].support.detail and "Cast" in found[1].support.detail


@pytest.mark.parametrize("dialect", ["functions", "ops"])
def test_what_layoutopt_writes_can_be_run(save, dialect: str) -> None:
    written = layoutopt.optimize(convolutions(), "gpu-hopper", dialect=dialect, verify=False)
    found = usages(onnx_io.read(save(written.proto)))
    assert {each.support.status for each in found} == {"kernel"} and not any(each.domain for each in found)
