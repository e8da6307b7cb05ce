"""The operators of a model with their opsets and element types, and whether onnxruntime can run each."""

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from compatibility_models import convolutions, model, saved
from onnx import TensorProto, helper, numpy_helper, parser

import layoutopt
from layoutopt import onnx_io
from layoutopt.report.compatibility import check_model, op_name
from layoutopt.runtime.kernel_queries import node_support
from layoutopt.runtime.operator_usage import Usage, usages
from layoutopt.runtime.type_names import short_name, tensor_name, type_name, type_proto


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


def test_every_choice_of_element_types_is_told_apart(used) -> None:
    found = used(
        "g (float[2] x, double[2] d, float16[2] h, int8[2] i) => (float[2] y) {"
        " a = Exp(x) b = Exp(d) c = Exp(h) e = Exp(x) f = Erf(i) y = Add(a, e) }"
    )
    assert {name: (each.nodes, each.support.status) for name, each in found.items()} == {
        "Exp(float32)": (2, "kernel"),
        "Exp(float64)": (1, "kernel"),
        "Exp(float16)": (1, "composed"),  # by Casts around the kernel for float32
        "Erf(int8)": (1, "missing"),
        "Add(float32, float32)": (1, "kernel"),
    }
    assert found["Exp(float16)"].support.detail == "Cast Exp"


def test_optional_inputs_that_are_left_out(used) -> None:
    assert list(used("g (float[1,1,4,4] x, float[4] s) => (float[?,?,?,?] y) { y = Resize(x, , s) }")) == [
        "Resize(float32, -, float32)"
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


def test_weights_of_subgraphs_may_be_in_another_file(tmp_path) -> None:
    proto = model(SUBGRAPHS.format(op="Abs").replace("Exp(o)", "Add(o, w)"))
    proto.graph.node[1].attribute[1].g.initializer.append(numpy_helper.from_array(np.ones(2), "w"))
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, convert_attribute=True)
    found = check_model(tmp_path / "model.onnx")
    assert {each.support.status for each in found.usages} == {"kernel"} and not found.problems


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


def test_a_function_that_calls_itself_is_an_end(used) -> None:
    text = '\n<domain: "my", opset_import: ["my" : 1]> f (a) => (b) { b = my.f(a) }'
    found = used("g (float[2] x) => (float[2] y) { y = my.f(x) }" + text)
    assert [each.support.status for each in found.values()] == ["missing"]


@pytest.mark.parametrize("dialect", ["functions", "ops"])
def test_what_layoutopt_writes_can_be_run(save, dialect: str) -> None:
    written = layoutopt.optimize(convolutions(), "gpu-hopper", dialect=dialect, verify=False)
    found = usages(onnx_io.read(save(written.proto)))
    assert {each.support.status for each in found} == {"kernel"} and not any(each.domain for each in found)


@pytest.mark.parametrize(
    "name", ["tensor(float)", "seq(tensor(int64))", "optional(seq(tensor(float16)))", "sparse_tensor(double)"]
)
def test_names_of_types_are_read_as_they_are_written(name: str) -> None:
    assert type_name(ir.serde.deserialize_type_proto_for_type(type_proto(name))) == name


def test_short_names() -> None:
    for dtype in ("float32", "float64", "float16", "int8", "bool", "string"):
        assert short_name(tensor_name(dtype)) == dtype
    assert short_name("seq(tensor(float))") == "seq(tensor(float))"
    with pytest.raises(ValueError, match="not a type"):
        type_proto("unknown")
    assert type_proto("map(string,tensor(float))").map_type.value_type.tensor_type.elem_type == TensorProto.FLOAT


def test_an_operator_without_an_opset_is_missing() -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="my")
    assert node_support(node, {"x": "tensor(float)"}, {"": 18}).status == "missing"
