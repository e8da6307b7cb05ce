"""`check`: the operators of a model, whether a file fits this machine, and the kernels of the installed onnxruntime."""

import json
import tomllib
from pathlib import Path

import onnx
import pytest
from onnx import parser
from parsed_models import text_model

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cli import main
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime.tables import TABLE, kernels
from layoutopt.errors import ModelError, TargetError
from layoutopt.report.compatibility import check_model, op_name
from layoutopt.runtime.kernel_queries import blocked_channels, node_support
from layoutopt.runtime.operator_usage import Usage, usages
from layoutopt.runtime.type_names import tensor_name

HEADER = '<ir_version: 10, opset_import: ["" : 18, "my" : 1, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>\n'
PLAIN = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { r = Relu(x) y = Add(r, x) }"


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


def convolutions() -> onnx.ModelProto:
    """Pooling between two convolutions of 32 channels."""
    return text_model(
        HEADER + "g (float[1,32,16,16] x) => (float[?,?,?,?] y) <float[32,32,3,3] w1, float[32,32,3,3] w2> {"
        " a = Conv <pads = [1,1,1,1]> (x, w1) r = Relu(a) p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)"
        " y = Conv <pads = [1,1,1,1]> (p, w2) }"
    )


BLOCKS = {"cpu-avx2": 8, "cpu-avx512": 16}
OTHER = {"cpu-avx2": "cpu-avx512", "cpu-avx512": "cpu-avx2"}


@pytest.fixture
def save(tmp_path: Path):
    """The file of a model, or of one with the given text."""

    def write(proto: onnx.ModelProto | str) -> Path:
        onnx.save(model(proto) if isinstance(proto, str) else proto, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return write


def host() -> str:
    try:
        return host_target()
    except TargetError:
        return ""


on_x86 = pytest.mark.skipif(host() not in OTHER, reason="the blocks of this processor are not known")


@on_x86
def test_onnxruntime_has_the_blocks_that_the_flags_let_expect() -> None:
    assert blocked_channels() == BLOCKS[host()]


@on_x86
@pytest.mark.parametrize("is_for_this", [True, False])
def test_the_blocks_of_a_file(save, is_for_this: bool) -> None:
    target = host() if is_for_this else OTHER[host()]
    written = layoutopt.optimize(convolutions(), target, dialect="onnxruntime", verify=False)
    found = check_model(save(written.proto))
    assert found.is_blocked and found.packed_for == BLOCKS[target]
    assert {each.support.status for each in found.usages} == {"kernel"}
    assert bool(found.problems) != is_for_this
    if not is_for_this:
        assert f"packed for blocks of {BLOCKS[target]} channels" in next(iter(found.problems))
    in_table = kernels()
    assert {(each.domain, each.op_type) for each in found.usages if each.domain.endswith(".nchwc")} <= in_table


def test_an_opset_that_is_not_supported(save) -> None:
    future = model(PLAIN)
    future.opset_import[0].version = 99
    with pytest.raises(ModelError, match="opset 99 of"):
        check_model(save(future))


@on_x86
def test_the_installed_onnxruntime_has_the_table() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["kernel"]
    for row, binding in ((each, types) for each in table for types in each["types"]):
        names = [f"x{index}" for index in range(len(row["inputs"]))]
        dtypes = (tensor_name(binding.get(each, each)) for each in row["inputs"])
        node = onnx.helper.make_node(row["op"], names, ["y"], domain=row["domain"], **row.get("attributes", {}))
        support = node_support(node, dict(zip(names, dtypes, strict=True)), {row["domain"]: 1, "": 18})
        assert support.status == "kernel", (row["op"], binding, support)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_on_a_model_that_fits(save, capsys) -> None:
    path = str(save(PLAIN))
    code, out, err = run(capsys, path)
    assert (code, err) == (0, "")
    for part in ("compatible", "2 more, standard ONNX"):
        assert part in out
    assert "Relu" not in out and "Relu" in run(capsys, path, "--all")[1]
    record = json.loads(run(capsys, path, "--json", "-")[1])
    assert record["verdict"] == "compatible" and record["problems"] == [] and record["load_error"] is None
    assert [(each["op_type"], each["inputs"], each["status"]) for each in record["operators"]] == [
        ("Relu", ["float32"], "kernel"),
        ("Add", ["float32", "float32"], "kernel"),
    ]


def test_the_command_on_a_model_that_does_not_fit(save, capsys, tmp_path) -> None:
    path = save("g (float[2] x) => (float[2] y) { y = my.Op(x) }")
    code, out, err = run(capsys, str(path), "--json", str(tmp_path / "out.json"))
    assert code == 10 and "incompatible" in out and "missing" in out
    assert err.startswith(f"error: {path}: onnxruntime ") and err.count("\n") == 1
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["verdict"] == "incompatible" and record["operators"][0]["status"] == "missing"
    missing, failure = record["problems"]
    assert missing.endswith("cannot run my::Op(float32)") and "is not a registered function/op" in failure


@pytest.fixture
def used(save):
    """The usages of a model by the names of its operators."""

    def read(proto: onnx.ModelProto | str) -> dict[str, Usage]:
        model = onnx_io.read(save(proto))
        return {op_name(each): each for each in usages(inference.lift(model), model)}

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
    declared = text.replace("(float[2] y)", "(double[2] y) <double[2] a>")
    assert "Relu(float64)" in used(declared.format())


SUBGRAPHS = (
    (
        "g (float[2] x, bool c) => (float[2] y) { o = Cast <to = 11> (x) z = If (c) <"
        "then_branch = t () => (double[2] r) {{ s = {op}(o) r = Neg(s) }}, "
        "else_branch = e () => (double[2] r) {{ r = Exp(o) }}> y = Cast <to = 1> (z) }"
    )
    .replace("{ o", "{{ o")
    .replace("(z) }", "(z) }}")
)


@pytest.mark.parametrize(("op", "status", "behind"), [("Abs", "kernel", "kernel"), ("my.Op", "missing", "unknown")])
def test_ops_in_bodies_are_listed_instead_of_the_op_that_has_them(used, op: str, status: str, behind: str) -> None:
    found = used(SUBGRAPHS.format(op=op))
    assert {each.op_type: each.support.status for each in found.values()} == {
        "Cast": "kernel",
        op.removeprefix("my."): status,
        "Neg": behind,
        "Exp": "kernel",
    }


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
    model = onnx_io.read(save(parser.parse_model(FUNCTIONS.replace("VERSION", version))))
    found = usages(inference.lift(model), model)
    assert [(each.op_type, each.inputs, each.support.status) for each in found] == [
        ("soft", ("float32",), "composed"),
        ("twice", ("float64",), "composed"),
        ("soft", ("float64",), "composed"),
    ]
    assert "Exp" in found[0].support.detail and "Cast" in found[1].support.detail


def test_a_function_with_an_overload_is_composed_of_operators(save) -> None:
    model = parser.parse_model(FUNCTIONS.replace("VERSION", "18"))
    for function in (each for each in model.functions if each.name == "twice"):
        function.overload = "other"
    for node in (each for each in model.graph.node if each.op_type == "twice"):
        node.overload = "other"
    model.ir_version = 10
    read = onnx_io.read(save(model))
    assert {each.support.status for each in usages(inference.lift(read), read)} == {"composed"}
