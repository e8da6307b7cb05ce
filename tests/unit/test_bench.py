"""`bench`: its report and its errors. No test depends on measured times."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from layoutopt.bench import BenchReport, bench
from layoutopt.bench.bench_inputs import feeds, resolve_dimension_sizes
from layoutopt.cli import main
from layoutopt.errors import DimensionError, InputError, LayoutoptError, ModelError
from layoutopt.onnx_io.interface import read_interface
from layoutopt.timing.interleaved import in_rounds

HEADER = '<ir_version: 10, opset_import: ["" : 18, "custom" : 1, "com.microsoft.nchwc" : 1]>\n'
PLAIN = "g (float[1,4,8,8] x) => (float[1,8,4,8] y) { r = Relu(x) y = Transpose <perm = [0, 2, 1, 3]> (r) }"
SHORT = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Relu(x) }"
SYMBOLIC = "g (float[batch,3] x, int64[1] i) => (float[batch,3] y) { c = Cast <to = 1> (i) y = Add(x, c) }"
FOREIGN = "g (float[2] x) => (float[2] y) { y = custom.Unheard(x) }"
NATIVE = "g (float[1,16,8,8] x) => (float[1,16,8,8] y) { y = com.microsoft.nchwc.ReorderInput(x) }"
NEVER = "g (float[n] x) => (float[k] y) { k = Constant<value_ints=[1]>() s = Shape(x) d = Add(s, k) y = Reshape(x, d) }"


@pytest.fixture
def save(tmp_path: Path):
    def write(name: str, body: str) -> Path:
        path = tmp_path / name
        onnx.save(parser.parse_model(HEADER + body), path)
        return path

    return write


def test_a_report_has_every_number(save) -> None:
    steps: list[str] = []
    report = bench([save("a.onnx", PLAIN), save("b.onnx", SHORT)], seconds=0.01, progress=steps.append)
    assert BenchReport.model_validate_json(report.model_dump_json()) == report
    assert report.schema_version == 3 and report.blocks in (12, 24, 36)
    a, b = report.models
    assert (a.label, b.label) == ("A", "B")
    assert a.speed_up is None and b.speed_up is not None and b.creation_speed_up is not None
    for model in report.models:
        assert all(len(block) >= 2 for block in model.samples)
        assert model.time.count == report.rounds and model.creation.count == len(model.samples) == report.blocks
        for spread in (model.time, model.creation):
            assert 0 < spread.low <= spread.value <= spread.high
        assert model.memory.peak_bytes >= model.memory.bytes_before > 0
        assert [each.shape for each in model.inputs] == [[1, 4, 8, 8]]
    assert {each.op: (each.nodes, each.moves_data) for each in a.profile.ops} == {
        "Relu": (1, False),
        "Transpose": (1, True),
    }
    assert 0 < a.profile.reorder_share == a.profile.movement_share < 1
    assert b.profile.reorder_share == b.profile.movement_share == 0
    assert "B and A have different outputs" in report.warnings
    assert "running in turns" in steps


@pytest.mark.parametrize(("starts_last", "order"), [(False, "abcCBAabc"), (True, "cbaABCcba")])
def test_rounds_alternate(starts_last: bool, order: str) -> None:
    calls: list[int] = []
    actions = [lambda number=number: float(calls.append(number) or number) for number in range(3)]
    times = in_rounds(actions, lambda done, passed: done >= 3, starts_last=starts_last)
    assert calls == ["abc".index(each.lower()) for each in order]
    assert times == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


def test_symbolic_dimensions(save) -> None:
    found = read_interface(save("a.onnx", SYMBOLIC))
    guessed, asked = resolve_dimension_sizes([found], {}, {}), resolve_dimension_sizes([found], {"batch": 5}, {})
    assert (guessed.sizes, guessed.inferred) == ({"batch": 2}, ("batch",))
    assert (asked.sizes, asked.inferred) == ({"batch": 5}, ())
    (feed,) = feeds([found], asked.sizes, 0, {})
    assert feed["x"].shape == (5, 3) and feed["i"].dtype == np.int64
    with pytest.raises(DimensionError, match="there are batch"):
        resolve_dimension_sizes([found], {"bach": 5}, {})


def test_given_values_go_to_every_model_and_settle_its_dimensions(save) -> None:
    found = [read_interface(save(f"{name}.onnx", SYMBOLIC)) for name in "ab"]
    x = np.ones((7, 3), np.float32)
    dimensions = resolve_dimension_sizes(found, {}, {"x": x})
    assert (dimensions.sizes, dimensions.inferred) == ({"batch": 7}, ())
    for feed in feeds(found, dimensions.sizes, 0, {"x": x}):
        assert feed["x"] is x and feed["i"].shape == (1,)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("z", np.ones((2, 3), np.float32), "no such input; there are x, i"),
        ("x", np.ones((2, 4), np.float32), "2x4; the input is 5x3"),
        ("i", np.array(1), "a scalar; the input is 1"),
        ("i", np.array(["a"]), "are string; the input is int64"),
    ],
)
def test_given_values_that_do_not_fit(save, name: str, value: np.ndarray, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        resolve_dimension_sizes([read_interface(save("a.onnx", SYMBOLIC))], {"batch": 5}, {name: value})


def test_models_that_cannot_be_measured(save, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    for path, expected in [
        (tmp_path / "none.onnx", "no such file"),
        (tmp_path / "text.onnx", "not an ONNX model"),
        (save("foreign.onnx", FOREIGN), "onnxruntime cannot load it"),
        (save("shapes.onnx", NEVER), "onnxruntime cannot run it"),
    ]:
        with pytest.raises(ModelError, match=expected) as caught:
            bench([path], seconds=0.01)
        assert caught.value.where == str(path)


def test_a_runtime_that_is_not_there(save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(LayoutoptError, match=r"openvino: is not installed; pip install 'layoutopt\[openvino\]'"):
        bench([save("a.onnx", SHORT)], runtimes=["openvino"])
    with pytest.raises(LayoutoptError, match="no such runtime"):
        bench([save("a.onnx", SHORT)], runtimes=["other"])


def test_openvino(save) -> None:
    """A runtime that cannot run a model is left out, if another runtime can run it."""
    pytest.importorskip("openvino")
    large = PLAIN.replace("4,8,8", "64,128,128").replace("8,4,8", "128,64,128")  # its counters are whole microseconds
    plain, native = save("a.onnx", large), save("b.onnx", NATIVE)
    report = bench([plain, native], seconds=0.01, runtimes=["onnxruntime", "openvino"])
    assert [(model.label, Path(model.model), model.runtime) for model in report.models] == [
        ("A", plain, "onnxruntime"),
        ("B", plain, "openvino"),
        ("C", native, "onnxruntime"),
    ]
    assert "Transpose" in [each.op for each in report.models[1].profile.ops]
    assert not any("B and A have different" in warning for warning in report.warnings)
    assert report.warnings[0].startswith(f"left out: {native}: openvino cannot load it: ")


def test_the_command(save, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(save("a.onnx", SYMBOLIC)), str(save("b.onnx", SYMBOLIC))
    target = tmp_path / "out.json"
    assert main(["bench", a, b, "--seconds", "0.01", "--profile", "--json", str(target)]) == 0
    shown = capsys.readouterr().out
    for part in ("A/B", "95% interval", "peak memory", "x float32 1x3", "--dim batch=N", "Add"):
        assert part in shown
    assert BenchReport.model_validate_json(target.read_text()).dims == {"batch": 1}
    np.savez(tmp_path / "i.npz", i=np.array([3]))
    assert (
        main(["bench", a, "--seconds", "0.01", "--dim", "batch=4", "--inputs", f"{tmp_path}/i.npz", "--json", "-"]) == 0
    )
    record = json.loads(capsys.readouterr().out)
    assert record["dims"] == {"batch": 4}
    assert [(each["name"], each["shape"], each["given"]) for each in record["models"][0]["inputs"]] == [
        ("x", [4, 3], False),
        ("i", [1], True),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--dim", "n"], 2, "write NAME=SIZE"),
        (["--dim", "n=1", "--dim", "n=2"], 2, "n is 1 too"),
        (["--dim", "n=1"], 2, "--dim n: no such symbolic dimension; all extents are fixed"),
        (["--inputs", "x.npy"], 2, "x.npy: a single array"),
        (["--inputs", "y.npz"], 2, "--inputs y.npz: y: no such input; there are x"),
        (["--inputs", "x.npz"], 2, "--inputs x.npz: x: the values are float64"),
        (["--threads", "0"], 2, "--help"),
    ],
)
def test_errors_are_one_line(save, arguments, code, expected, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    save("a.onnx", SHORT)
    np.save("x.npy", np.ones(3))
    np.savez("x.npz", x=np.ones(3))
    np.savez("y.npz", y=np.ones(3))
    assert main(["bench", "a.onnx", *arguments]) == code
    output = capsys.readouterr()
    assert output.out == "" and expected in output.err and output.err.count("\n") == 1
