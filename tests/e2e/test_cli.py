"""The commands: their output and the files that they write."""

import json
import re
import sys
from pathlib import Path

import onnx
import pytest
from command_line import CONV, PLANNED, TARGET, Cli, CommandResult, assert_one_line, convolutions, files, relu

import layoutopt
from layoutopt.report.schema import Report

# --- optimize ----------------------------------------------------------------------------------------------


def test_optimize(cli: Cli, model: str, tmp_path: Path) -> None:
    short = cli("optimize", model, "-o", "out.onnx", *PLANNED)
    assert (short.code, short.err) == (0, "")
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx"}
    assert re.match(
        r"out\.onnx  [\d.]+x faster, estimated  equal outputs \(.*; rounding .*\)  3 -> 1 layout changes,", short.out
    )
    assert len(short.out.splitlines()) == 2 and "layoutopt explain model.onnx" in short.out
    done = cli("optimize", model, "-o", "out.onnx", *PLANNED, "-v")
    lines = done.out.splitlines()
    report = layoutopt.optimize(model, TARGET, runtime="compiler").report
    labels = [each.label for each in report.facts]
    assert [line.split("  ")[1] for line in lines[1 : lines.index("")]] == [*labels, "written"]
    for output in (TARGET, "rewritten", "NHWC", "proven optimal for these formats", "out.onnx"):
        assert output in done.out
    assert "\033" not in done.out
    assert all(line == line.rstrip() for line in lines)


def test_same_bytes_and_nothing_more_to_do(cli: Cli, model: str, tmp_path: Path) -> None:
    for dialect in ("functions", "ops"):
        command = ("optimize", "--target", TARGET, "--config", f"dialect={dialect}", "--force", "--quiet")
        for source, out in ((model, "first.onnx"), (model, "second.onnx"), ("first.onnx", "third.onnx")):
            assert cli(*command, source, "-o", out) == CommandResult(0, "", "")
        written = [(tmp_path / name).read_bytes() for name in ("first.onnx", "second.onnx", "third.onnx")]
        assert written[0] == written[1] == written[2] != (tmp_path / model).read_bytes()
        assert "optimised like this before" in cli(*command[:-1], "first.onnx", "--dry-run").out


def test_onto_itself(cli: Cli, model: str, tmp_path: Path) -> None:
    before = (tmp_path / model).read_bytes()
    assert cli("optimize", model, "-o", "other.onnx", *PLANNED).code == 0
    assert cli("optimize", model, "-o", model, *PLANNED).code == 0
    assert files(tmp_path).keys() == {"model.onnx", "other.onnx"}
    assert before != (tmp_path / model).read_bytes() == (tmp_path / "other.onnx").read_bytes()


def test_left_alone_is_a_copy(cli: Cli, tmp_path: Path) -> None:
    onnx.save(relu(), tmp_path / "relu.onnx")
    done = cli("optimize", "relu.onnx", "-o", "out.onnx", *PLANNED)
    assert done.code == 0
    assert "left unchanged: no other formats" in done.out
    assert (tmp_path / "relu.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_report(cli: Cli, model: str, tmp_path: Path) -> None:
    assert cli("optimize", model, "-o", "out.onnx", *PLANNED, "--json", "report.json").code == 0
    report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
    assert report.changed
    assert report.verification.status == "passed"
    assert report.plan is not None and report.plan.seconds_after < report.plan.seconds_before
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx", "report.json"}

    printed = cli("optimize", model, *PLANNED, "--json", "-", "--config", "mode=training", "--dry-run")
    assert Report.model_validate_json(printed.out).mode == "training"
    assert "no model is written" in cli("optimize", model, *PLANNED, "--dry-run", "--no-verify").out
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx", "report.json"}


def test_symbolic_dimensions(cli: Cli, tmp_path: Path) -> None:
    """A plan for a range is verified at its ends; inferred sizes are marked, and given sizes are recorded in the file."""
    net = convolutions()
    for value, axes in ((net.graph.input[0], (1, 2)), (net.graph.output[0], (2, 3))):
        value.type.tensor_type.shape.dim[axes[0]].dim_param = "height"
        value.type.tensor_type.shape.dim[axes[1]].dim_param = "width"
    onnx.save(net, tmp_path / "dynamic.onnx")
    assert (
        cli("optimize", "dynamic.onnx", "-o", "out.onnx", *PLANNED, "--dim", "height=8:32", "--json", "r.json").code
        == 0
    )
    record = json.loads((tmp_path / "r.json").read_text())
    assert [(each["name"], each["low"], each["high"], each["assumed"]) for each in record["dims"]] == [
        ("height", 8, 32, False),
        ("width", 224, 224, True),
    ]
    assert [sizes["height"] for sizes in record["verification"]["sizes"]][::2] == [8, 32]
    shown = cli("optimize", "dynamic.onnx", "-o", "again.onnx", *PLANNED, "--dim", "height=8:32", "-v")
    assert "height 8:32" in shown.out and "width 224?" in shown.out
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()
    assert (
        "optimised like this before"
        in cli("optimize", "out.onnx", "-o", "o.onnx", *PLANNED, "--dim", "height=8:32").out
    )
    assert "before" not in cli("optimize", "out.onnx", "-o", "o.onnx", *PLANNED, "--dim", "height=8").out
    assert "height 8:32" in cli("inspect", "out.onnx").out
    planned = json.loads(cli("inspect", "dynamic.onnx", *PLANNED, "--dim", "width=16", "--json").out)
    assert [(each["name"], each["low"]) for each in planned["dims"]] == [("height", 224), ("width", 16)]
    compared = json.loads(
        cli("verify", "dynamic.onnx", "out.onnx", "--dim", "height=9:11", "--dim", "width=10", "--json").out
    )
    assert compared["status"] == "passed"
    assert compared["sizes"][0] == {"height": 9, "width": 10}


def test_pins_and_external_data(cli: Cli, model: str, tmp_path: Path) -> None:
    arguments = ("--pin", "y=NHWC", "--external-data", "w.bin", "--config", "time-limit=30", "-q")
    assert cli("optimize", model, "-o", "out.onnx", *PLANNED, *arguments) == CommandResult(0, "", "")
    assert (tmp_path / "w.bin").stat().st_size > 16 * 32 * 9 * 4
    dims = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 24, 24, 16]
    assert cli("verify", model, "out.onnx").code == 0  # the stamp contains the pin
    assert "y NHWC" in cli("inspect", "out.onnx").out


def test_dump_ir(cli: Cli, model: str, tmp_path: Path) -> None:
    command = ("inspect", model, *PLANNED, "--dump-ir")
    before = cli(*command, "before:insert-casts").err
    after = cli(*command, "after:insert-casts").err
    assert before.startswith("# ") and "graph net(" in before
    assert "CastData" in after and "CastData" not in before
    assert cli(*command, "all=dumps").err == ""
    dumps = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    passes = json.loads(cli("list", "passes", "--json").out)
    steps = [step["name"] for step in (*passes["inference"], *passes["dialects"]["functions"])]
    assert "lower" in steps
    assert dumps == [f"00-before-{steps[0]}.txt", *(f"{n:02}-after-{step}.txt" for n, step in enumerate(steps, 1))]


# --- inspect and verify ------------------------------------------------------------------------------------


def test_inspect(cli: Cli, model: str) -> None:
    short, long = cli("inspect", model, *PLANNED), cli("inspect", model, *PLANNED, "--all")
    assert short.code == long.code == 0
    for output in ("would be rewritten", "Conv", "metadata only"):
        assert output in short.out
    for output in ("conv0", "conv1", "to_nhwc", "produces", "requires"):
        assert output in long.out
    found = json.loads(cli("inspect", model, *PLANNED, "--json").out)
    assert found["improves"] and found["counts"]["before"]["transposes"] == 3
    names = [(each["before"] or each["after"])["name"] for each in found["ops"]]
    assert names == ["to_nchw", "conv0", "relu", "to_nhwc", "tanh", "back", "conv1"]


def test_inspect_what_we_wrote(cli: Cli, model: str, tmp_path: Path) -> None:
    cli("optimize", model, "-o", "out.onnx", *PLANNED, "-q")
    output = cli("inspect", "out.onnx").out
    for part in ("written by", TARGET, "unchanged since it was written", "Conv_NHWC"):
        assert part in output
    assert json.loads(cli("inspect", "out.onnx", "--json").out)["stamp"]["target"] == TARGET
    assert cli("inspect", "out.onnx", *PLANNED).out == output
    changed = onnx.load(tmp_path / "out.onnx")
    changed.graph.node[-1].name = "changed"
    onnx.save(changed, tmp_path / "out.onnx")
    assert "edited since" in cli("inspect", "out.onnx", "--all").out


def test_verify(cli: Cli, model: str, tmp_path: Path) -> None:
    onnx.save(convolutions(seed=1), tmp_path / "other.onnx")
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18, "c" : 1]> g (float[2] x) => (float[2] y) { y = c.Any(x) }'
        ),
        tmp_path / "custom.onnx",
    )
    same = cli("verify", model, model, "--rounds", "2")
    assert (same.code, same.err) == (0, "")
    assert "passed, on 4 random inputs" in same.out

    different = cli("verify", model, "other.onnx")
    assert different.code == 7
    assert "differs" in different.out
    assert_one_line(different.err)
    assert cli("verify", model, "other.onnx", "--tolerance", "1e9").code == 0

    record = cli("verify", model, "other.onnx", "--json")
    assert record.code == 7
    assert json.loads(record.out)["outputs"][0]["passed"] is False

    unknown = cli("verify", "custom.onnx", "custom.onnx")
    assert unknown.code == 9
    assert_one_line(unknown.err)


# --- formats, targets, passes, dialects --------------------------------------------------------------------


def test_formats(cli: Cli) -> None:
    everything, ascend = cli("formats").out, cli("formats", "--system", "ascend").out
    assert "TensorNCxHWx<32>" in everything and "oneDNN" in everything
    assert "FRACTAL_NZ" in ascend and "oneDNN" not in ascend
    assert {entry["system"] for entry in json.loads(cli("formats", "--system", "TVM", "--json").out)["formats"]} == {
        "TVM"
    }


def test_figures(cli: Cli, tmp_path: Path) -> None:
    assert cli("formats", "NCHW4c", "--shape", "1,6,3,4", "--plot", "format.svg").code == 0
    assert "memory" in (tmp_path / "format.svg").read_text()
    assert cli("formats", "NCHW4c", "--plot", "without_shape.svg").code == 2
    assert cli("formats", "NCHW4c", "--shape", "1,99,99,99", "--plot", "too_large.svg").code == 5
    assert cli("formats", "NCHW4c", "--shape", "1,6,3,4", "--plot", "no/folder.svg").code == 8
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["format.svg"]


def test_figures_without_the_plot_library(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("layoutopt.plot", "drawsvg"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "drawsvg", None)
    command = ("formats", "NCHW4c", "--shape", "1,6,3,4")
    result = cli(*command, "--plot", "figure.svg")
    assert result.code == 1
    assert "figures need the package drawsvg; install it with: pip install 'layoutopt[plot]'" in result.err
    assert cli(*command).code == 0
    assert not (tmp_path / "figure.svg").exists()


def test_one_format(cli: Cli) -> None:
    command = ("formats", "NC1HWC0", "--shape", "1,17,5,4", "--dtype", "float16")
    output = cli(*command).out
    for part in ("1, 2, 5, 4, 16", "300", "1280 bytes", "x[0, 0…15, 0, 1]", "321…335  15 padding elements"):
        assert part in output
    record = json.loads(cli(*command, "--json").out)
    assert record["strides"] == [640, 320, 64, 16, 1]
    assert record["byte_strides"][:2] == [1280, 640]
    assert record["padding"] == 300 and record["capacity"] == 640
    assert record["offsets"][1] == {"first": 16, "last": 31, "start": [0, 0, 0, 1], "axis": 1}
    for arguments in (
        ("NHWC", "--shape", "0,3,2,2"),
        ("nChw8c",),
        ("OIHW4i16o", "--shape", "5x3x1x1", "--dtype", "int4"),
        ("TensorCxRSKx<16>", "--shape", "[4, 20, 3, 3]"),
        ("NZ", "--dtype", "int8", "--shape", "40,40"),
    ):
        assert cli("formats", *arguments).code == cli("formats", *arguments, "--json").code == 0


def test_targets(cli: Cli) -> None:
    listed = cli("targets").out
    assert TARGET in listed and "_cpu" not in listed
    output = cli("targets", TARGET).out
    for part in ("memory.bandwidth", "TB/s", "kernels", "x:N*C", "estimate:"):
        assert part in output
    assert json.loads(cli("targets", TARGET, "--json").out)["name"] == TARGET
    assert TARGET in {target["name"] for target in json.loads(cli("targets", "--json").out)["targets"]}


def test_a_target_explained_for_an_op(cli: Cli) -> None:
    output = cli("targets", "--explain", TARGET).out
    assert "memory.bandwidth" in output and "x:NHWC w:NHWC y:NHWC" in output
    record = json.loads(cli("targets", TARGET, "--json", "--op", CONV).out)
    best = min(record["kernels"], key=lambda each: each["seconds"])
    assert best["formats"] == {"x": "NHWC", "w": "NHWC", "y": "NHWC"}
    assert best["operations"] == 2 * 64 * 64 * 9 * 56 * 56
    assert best["bytes"] == 2 * (2 * 64 * 56 * 56 + 64 * 64 * 9)
    for each in record["kernels"]:
        parts = (each["arithmetic_seconds"], each["traffic_seconds"])
        both = max(parts) if each["overlaps"] else sum(parts)
        assert each["seconds"] == pytest.approx(each["overhead_seconds"] + both)
    odd = cli("targets", TARGET, "--op", CONV.replace("64", "63")).out
    assert "not multiples of 8" in odd
    for op in (
        "Relu (float32[N,3] x)",
        "MatMul (float[4,8,16] a, float[16,5] b)",
        "MaxPool <kernel_shape=[2]> (float[1,8,6] x)",
    ):
        assert cli("targets", TARGET, "--op", op).code == 0, op


def test_fast_sessions(cli: Cli, tmp_path: Path) -> None:
    """A fast session is a reason to rewrite a model that no plan makes faster; weights go where the options say."""
    onnx.save(relu(), tmp_path / "relu.onnx")
    refused = cli("optimize", "relu.onnx", "-o", "out.onnx", "-t", TARGET, "--config", "sessions=fast")
    assert refused.code == 2
    assert_one_line(refused.err)
    assert "the dialect has no fast sessions; give a target whose dialect is onnxruntime" in refused.err
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", "--config", "sessions=slow").code == 2
    assert files(tmp_path).keys() == {"relu.onnx"}
    native = ("-t", "cpu-avx2", "--config", "dialect=onnxruntime", "--json", "report.json")
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", *native).code == 0
    assert not Report.model_validate_json((tmp_path / "report.json").read_bytes()).changed
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", *native, "--config", "sessions=fast").code == 0
    report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
    assert report.changed and report.sessions == "fast"
    assert files(tmp_path).keys() == {"relu.onnx", "out.onnx", "report.json"}


def test_passes_and_dialects(cli: Cli) -> None:
    output = cli("list", "passes").out
    assert output.index("fold-constants") < output.index("assign-formats") < output.index("pretransform-weights")
    assert "Remove ops and constants that no output depends on." in output
    assert (
        output.index("pretransform-weights")
        < output.index("check-gain")
        < output.index("lower")
        < output.index("winograd")
    )
    assert {"functions", "ops"} <= {
        each["name"] for each in json.loads(cli("list", "dialects", "--json").out)["dialects"]
    }
    assert TARGET in cli("list", "dialects").out
