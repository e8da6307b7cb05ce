"""Runtimes: their descriptions, what follows from them, and what onnxruntime really makes of a file."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import layoutopt
from layoutopt.cli import main
from layoutopt.cost_models import RuntimeSpec, find_runtime, load_target, runtime_names, runtime_of, target_names
from layoutopt.cost_models.runtime_spec import read_runtime
from layoutopt.cost_models.spec import SpecModel
from layoutopt.dialects import DIALECTS
from layoutopt.driver.arguments import runtime_and_dialect
from layoutopt.errors import ArgumentError, TargetError
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.data_movement import executed_data_movement
from layoutopt.verification.runnable import Runnable

RUNTIMES = [find_runtime(name) for name in runtime_names()]
CONVOLUTIONS = """<ir_version: 10, opset_import: ["" : 18]>
g (float16[1,64,56,56] x) => (float16[1,64,56,56] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    y = Conv <pads = [1, 1, 1, 1]> (b, w)
}"""
TORN = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,16,8] x) => (float[1,16,16,8] y) {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    b = Relu (a)
    c = Transpose <perm = [0, 2, 3, 1]> (b)
    y = Tanh (c)
}"""


def model_of(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    if "w)" in text:
        filters = np.random.default_rng(0).normal(size=(64, 64, 3, 3)).astype(np.float16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(filters, "w"))
    return model


@pytest.mark.parametrize("spec", RUNTIMES, ids=lambda spec: spec.name)
def test_a_runtime_reads_dialects_that_exist(spec: RuntimeSpec) -> None:
    assert set(spec.dialects) <= set(DIALECTS)
    assert all(spec.reads(dialect) for dialect in spec.dialects)
    assert spec.description and spec.runs_in


def test_every_dialect_has_one_runtime_of_its_own() -> None:
    assert {name: runtime_of(name).name for name in DIALECTS} == {
        "functions": "compiler",
        "ascend": "compiler",
        "onnxruntime": "onnxruntime",
        "standard": "any",
        "ops": "compiler",
    }


@pytest.mark.parametrize("name", target_names())
def test_defaults_follow_from_the_kind_of_hardware(name: str) -> None:
    spec, dialect = runtime_and_dialect(None, None, load_target(name))
    expected = {"gpu": "any", "npu": "compiler"}.get(load_target(name).spec.family)
    assert expected in (None, spec.name)
    assert dialect.name in spec.dialects


def test_runtime_and_dialect_follow_from_each_other() -> None:
    gpu, npu = load_target("gpu-hopper"), load_target("ascend-910b")
    assert runtime_and_dialect("compiler", None, gpu)[1].name == "functions"
    assert runtime_and_dialect("any", None, npu)[1].name == "standard"
    assert runtime_and_dialect(None, "ascend", gpu)[0].name == "compiler"
    assert runtime_and_dialect("compiler", "ops", gpu)[1].name == "ops"


@pytest.mark.parametrize(
    ("runtime", "dialect", "message"),
    [
        ("openvino", None, "openvino: no such runtime"),
        ("any", "functions", "dialect functions: the runtime any does not read it"),
        ("onnxruntime", "nhwc", "nhwc: no such dialect"),
        (3, None, "runtime=3: should be a valid string"),
    ],
)
def test_arguments_that_do_not_fit(runtime: object, dialect: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        layoutopt.optimize(model_of(TORN), "gpu-hopper", runtime=runtime, dialect=dialect)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("text", [TORN, CONVOLUTIONS], ids=["torn", "convolutions"])
def test_any_writes_standard_operators_alone(target: str, text: str) -> None:
    """Whatever the hardware prefers, no convolution leaves the canonical format where that takes Transposes around it."""
    result = layoutopt.optimize(model_of(text), target, runtime="any")
    kinds = [node.op_type for node in result.proto.graph.node]
    assert {opset.domain for opset in result.proto.opset_import} == {""} and not result.proto.functions
    assert "Transpose" not in kinds
    assert result.report.runtime == "any" and result.report.verification.status == "passed"
    assert bool(result.report.runs_in) == result.report.changed == (text == TORN)


def test_the_formats_that_the_hardware_prefers_are_reported() -> None:
    report = layoutopt.optimize(model_of(CONVOLUTIONS), "gpu-hopper", runtime="any", verify=False).report
    first = report.ops[0]
    assert (first.inputs[0], first.outputs) == ("NCHW", ["NCHW"])
    assert (first.preferred_inputs[0], first.preferred_outputs) == ("NHWC", ["NHWC"])


def test_inspect_shows_the_plan_without_the_limits_of_the_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model_of(CONVOLUTIONS), tmp_path / "m.onnx")
    assert main(["inspect", str(tmp_path / "m.onnx"), "-t", "gpu-hopper", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runtime"] == "any" and not found["improves"]
    assert found["unlimited_plan"]["seconds_after"] < found["plan"]["seconds_after"]
    assert main(["inspect", str(tmp_path / "m.onnx"), "-t", "gpu-hopper", "--runtime", "compiler"]) == 0
    assert "hardware's optimum" not in capsys.readouterr().out


def test_executed_data_movement_is_that_of_onnxruntime() -> None:
    """The Transposes of the first model cancel in onnxruntime, too; those of the second one surround a Softmax."""
    report = layoutopt.optimize(model_of(TORN), "gpu-hopper").report
    assert report.before.transposes == 2
    assert report.moved_before is not None and report.moved_after is not None
    assert report.moved_before.ops == report.moved_after.ops == {}
    moving = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[4,5,6] x) => (float[6,5,4] y)'
        "{ a = Relu (x) b = Transpose <perm = [2, 1, 0]> (a) y = Softmax (b) }"
    )
    found = executed_data_movement(Runnable.of(moving.SerializeToString()), SampleInputs())
    assert found is not None
    assert (dict(found.ops), found.nbytes) == ({"Transpose": 1}, 2 * 4 * 5 * 6 * 4)


ABSORBED = [
    (spec.name, op, dtype) for spec in RUNTIMES for row in spec.absorbs for op in row.ops for dtype in row.dtypes
]


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize(("runtime", "op", "dtype"), ABSORBED)
def test_onnxruntime_absorbs_the_transposes_that_a_runtime_file_lists(
    runtime: str, op: str, dtype: str, operand: int
) -> None:
    label = {"float32": "float", "float64": "double"}[dtype]
    shapes = ("2,5,4", "2,5,6") if operand == 0 else ("2,4,5", "2,6,5")
    pair = "t, b" if operand == 0 else "a, t"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g ({label}[{shapes[0]}] a, {label}[{shapes[1]}] b) => ({label}[2,4,6] y)'
        f"{{ t = Transpose <perm = [0, 2, 1]> ({'ab'[operand]}) y = {op} ({pair}) }}"
    )
    found = executed_data_movement(Runnable.of(model.SerializeToString()), SampleInputs())
    assert found is not None and not found.ops, runtime


FUSED = [
    (spec.name, family, op)
    for spec in RUNTIMES
    if not spec.is_emulated
    for row in spec.fuses
    for family in row.family
    for op in row.ops or ()
]
KERNELS = {
    "convolution": ("1,8,14,14", "8,8,3,3", "Conv <pads = [1, 1, 1, 1]> (x, w)"),
    "matmul": ("2,14,8", "8,8", "MatMul (x, w)"),
}


@pytest.mark.parametrize(("runtime", "family", "op"), FUSED)
def test_onnxruntime_fuses_the_epilogues_that_a_runtime_file_lists(
    runtime: str, family: str, op: str, tmp_path: Path
) -> None:
    shape, filters, kernel = KERNELS[family]
    operands = {"Add": "a, c", "Clip": "a, low, high"}.get(op, "a")
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float[{shape}] x) => (float[{shape}] y) '
        f"<float[{filters}] w, float[8] c, float low = {{0}}, float high = {{6}}> {{ a = {kernel} y = {op} ({operands}) }}"
    )
    for name, sizes in (("w", [int(each) for each in filters.split(",")]), ("c", [8])):
        array = np.random.default_rng(0).normal(size=sizes).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    saved = tmp_path / "optimised.onnx"
    Runnable.of(model.SerializeToString()).save_optimised(saved, {}, threads=1, disabled=("NchwcTransformer",))
    kinds = [node.op_type for node in onnx.load(saved).graph.node]
    assert op not in kinds and len([kind for kind in kinds if kind != "Reshape"]) == 1, runtime


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('runs_in = "x"\ndialects = ["ops"]\nkernels = "standard"\n', "description is missing"),
        (
            'descripton = "d"\nruns_in = "x"\ndialects = ["ops"]\nkernels = "standard"\n',
            "descripton is not a key of a runtime",
        ),
        ('description = "d"\nruns_in = "x"\ndialects = []\nkernels = "standard"\n', "dialects"),
        ('description = "d"\nruns_in = "x"\ndialects = "ops"\nkernels = "some"\n', "kernels"),
        ("description = \n", "is not TOML"),
    ],
)
def test_a_malformed_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TargetError, match=message) as caught:
        read_runtime(path)
    assert "\n" not in str(caught.value) and str(path) in caught.value.where


def test_every_key_of_the_file_is_documented() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "runtimes.md").read_text()
    keys = RuntimeSpec.known_keys()
    assert issubclass(RuntimeSpec, SpecModel) and {"dialects", "absorbs", "source"} <= keys
    assert all(f"`{key}`" in page or f"[[{key}]]" in page for key in keys)


def test_the_list_names_every_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "runtimes"]) == 0
    printed = capsys.readouterr().out
    assert all(spec.name in printed and spec.runs_in in printed for spec in RUNTIMES)
    assert main(["list", "runtimes", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["runtimes"]
    assert {each["name"]: each["kernels"] for each in records} == {spec.name: spec.kernels for spec in RUNTIMES}
    assert "gpu-hopper" in next(each["default_of"] for each in records if each["name"] == "any")
