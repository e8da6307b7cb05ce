"""`bench`: its report, its arithmetic and its errors. No test depends on measured times."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from layoutopt.bench import BenchReport, MachineReport, bench, machine_caveats, speed_caveats
from layoutopt.cli import main
from layoutopt.errors import DimensionError, LayoutoptError, ModelError
from layoutopt.onnx_io.interface import read_interface
from layoutopt.runtime.engines import share_of_moves, traced_layers
from layoutopt.sample_inputs import same_inputs
from layoutopt.timing.speed_up import Block, speed_ups
from layoutopt.timing.statistics import null_ratio, ratio

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
    assert report.schema_version == 6 and report.blocks in (12, 24, 36)
    a, b = report.models
    assert (a.label, b.label) == ("A", "B")
    assert a.speed_up is None and b.speed_up is not None and b.creation_speed_up is not None
    for model in report.models:
        assert model.seconds > 0 and model.creation_seconds > 0
        assert [each.shape for each in model.inputs] == [[1, 4, 8, 8]]
    assert 0 < a.reorder_share < 1
    assert b.reorder_share == 0
    assert "B and A have different outputs" in report.warnings
    assert "running in turns" in steps


def test_symbolic_dimensions(save) -> None:
    path = save("a.onnx", SYMBOLIC)
    found = read_interface(path)
    assert same_inputs([path], [found], {}, {}, 0)[:2] == ({"batch": 1}, {"batch": 1})
    sizes, inferred, (feed,) = same_inputs([path], [found], {"batch": 5}, {}, 0)
    assert (sizes, inferred) == ({"batch": 5}, {})
    assert feed["x"].shape == (5, 3) and feed["i"].dtype == np.int64
    with pytest.raises(DimensionError, match="there are batch"):
        same_inputs([path], [found], {"bach": 5}, {}, 0)


def test_given_values_go_to_every_model_and_settle_its_dimensions(save) -> None:
    paths = [save(f"{name}.onnx", SYMBOLIC) for name in "ab"]
    x = np.ones((7, 3), np.float32)
    sizes, inferred, feeds = same_inputs(paths, [read_interface(path) for path in paths], {}, {"x": x}, 0)
    assert (sizes, inferred) == ({"batch": 7}, {})
    for feed in feeds:
        assert feed["x"] is x and feed["i"].shape == (1,)


def test_inputs_in_another_order_are_equal(save) -> None:
    text = "g (INPUTS) => (float[?,3] y) { y = Gather (x, i) }"
    orders = "float[4,3] x, int64[3] i", "int64[3] i, float[4,3] x"
    paths = [save(f"{name}.onnx", text.replace("INPUTS", order)) for name, order in zip("ab", orders, strict=True)]
    _, _, (one, other) = same_inputs(paths, [read_interface(path) for path in paths], {}, {}, 0)
    assert all((one[name] == other[name]).all() for name in "xi")


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
    with pytest.raises(LayoutoptError, match=r"needs the package openvino; .*pip install 'layoutopt\[openvino\]'"):
        bench([save("a.onnx", SHORT)], runtimes=["openvino"])
    with pytest.raises(LayoutoptError, match="no such engine"):
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
    assert report.models[1].reorder_share > 0
    assert not any("B and A have different" in warning for warning in report.warnings)
    assert report.warnings[0].startswith(f"left out: {native}: openvino cannot load it: ")


def test_the_command(save, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(save("a.onnx", SYMBOLIC)), str(save("b.onnx", SYMBOLIC))
    target = tmp_path / "out.json"
    assert main(["bench", a, b, "--seconds", "0.01", "--json", str(target)]) == 0
    shown = capsys.readouterr().out
    for part in ("A / model", "95 % confidence", "session", "float32", "--dim batch=N"):
        assert part in shown
    assert BenchReport.model_validate_json(target.read_text()).dims == {"batch": 1}
    np.savez(tmp_path / "i.npz", i=np.array([3]))
    dims = ["--dim", "batch=2", "--dim", "batch=4"]  # the last one counts
    assert main(["bench", a, "--seconds", "0.01", *dims, "--inputs", f"{tmp_path}/i.npz", "--json", "-"]) == 0
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
        (["--dim", "n=1"], 2, "n: no such symbolic dimension; all extents are fixed"),
        (["--inputs", "x.npy"], 2, "x.npy: a single array"),
        (["--inputs", "y.npz"], 2, "y: no such input; there are x"),
        (["--inputs", "x.npz"], 2, "x: the values are float64"),
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


# A profile of onnxruntime 1.31, shortened: two runs of Transpose and If, whose branch has a Conv.
RECORDED = [
    {"cat": "Node", "tid": 7, "dur": 442, "ts": 48721, "name": "t_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 26, "ts": 49200, "name": "c_kernel_time", "args": {"op_name": "Conv"}},
    {"cat": "Session", "tid": 7, "dur": 900, "ts": 48699, "name": "model_run", "args": {}},
    {"cat": "Node", "tid": 7, "dur": 0, "ts": 60100, "name": "t_fence_before", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 100, "ts": 60100, "name": "t_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 60, "ts": 60210, "name": "c_kernel_time", "args": {"op_name": "Conv"}},
    {"cat": "Node", "tid": 7, "dur": 100, "ts": 60200, "name": "if_kernel_time", "args": {"op_name": "If"}},
    {"cat": "Node", "tid": 7, "dur": 200, "ts": 60300, "name": "t2_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Session", "tid": 7, "dur": 600, "ts": 60050, "name": "model_run", "args": {}},
]


def test_the_share_of_reorders_in_a_trace() -> None:
    assert share_of_moves(traced_layers(RECORDED)) == pytest.approx(300 / 360)


def test_disturbed_blocks_do_not_count_unless_they_are_the_half() -> None:
    """A block is disturbed if the ratio of its fastest runs is not that of the fastest runs of all blocks."""
    quiet, disturbed = [[2.0, 9.0], [1.0, 1.0]], [[3.0, 3.0], [1.0, 5.0]]
    for count, value, is_precise in ((5, 2.0, True), (6, 6**0.5, False)):
        blocks = [quiet] * (12 - count) + [disturbed] * count
        found = ratio([a for a, _ in blocks], [b for _, b in blocks])
        assert (found.value, found.disturbed, found.is_precise) == (pytest.approx(value), count, is_precise)
    assert not ratio([[1.0], [1.09], [1.0]], [[1.0]] * 3).is_precise, "the blocks agree, but the interval is wide"


def test_ratios_are_within_rounds() -> None:
    found = ratio([[2.0, 4.0]] * 6, [[1.0, 4.0]] * 6)
    assert (found.value, found.verdict) == (2.0, "faster")
    assert ratio([[1.0]] * 6, [[2.0]] * 6).verdict == "slower"
    assert ratio([[1.0]] * 4, [[2.0]] * 3 + [[0.5]]).verdict == "no difference shown"


def test_drift_cancels_in_the_null_ratio() -> None:
    """The rounds are A B, B A, A B, ... and those of the next block B A, A B, ...; the clock slows down steadily."""
    places = [[0, 3, 4, 7], [9, 10, 13, 14], [16, 19, 20, 23], [25, 26, 29, 30]]
    found = null_ratio([[1.01**place for place in block] for block in places])
    assert found.value == pytest.approx(1.0)


@pytest.mark.parametrize(("factor", "is_quiet_machine"), [(1.0, True), (1.005, True), (1.05, False)])
def test_a_busy_machine_has_a_wide_null_interval(factor: float, is_quiet_machine: bool) -> None:
    found = caveats([[1.0, factor], [1.0, factor], [1.0, factor], [factor, 1.0]] * 3, [[1.0, 1.0]] * 12)
    assert any("busy" in each for each in found) != is_quiet_machine


def caveats(first: list[list[float]], second: list[list[float]]) -> list[str]:
    blocks = [Block([1.0, 1.0], [[one], [other]]) for one, other in zip(first, second, strict=True)]
    return list(speed_caveats("B", speed_ups(blocks, 1)[0]))


def test_an_effect_raises_a_doubt_if_its_interval_includes_one() -> None:
    assert caveats([[2.0, 2.02]] * 6, [[1.0, 1.0]] * 6) == []
    (caveat,) = caveats([[0.99, 0.99], [1.0, 1.0], [1.01, 1.01]] * 4, [[1.0, 1.0]] * 12)
    assert caveat == "B against A: no difference is shown, the confidence interval includes 1"


def test_a_machine_that_is_not_quiet() -> None:
    (busy,) = caveats([[1.0, 1.2]] * 4, [[0.9, 0.9]] * 4)
    assert busy.startswith("B against A: the machine is busy: the original is 0.") and busy.endswith("as itself")
    (alone,) = speed_caveats("A", speed_ups([Block([1.0], [[[1.0, 1.2]]])] * 4, 0)[0])
    assert alone.startswith("A against A: the machine is busy: the original is 0.")
    machine = MachineReport(cpu="", cpus=2, threads=1, pinned_to=None)
    assert list(machine_caveats(machine)) == ["this system cannot pin the process to one CPU"]
    crowded = MachineReport(cpu="", cpus=2, threads=4, pinned_to=None)
    assert list(machine_caveats(crowded)) == ["4 threads share 2 CPUs"]
