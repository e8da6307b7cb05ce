"""The commands: their output and the files that they write."""

import json
import re
from pathlib import Path

import onnx
import pytest
from command_line import PLANNED, TARGET, Cli, CommandResult, assert_one_line, convolutions, files, relu

import layoutopt
from layoutopt.explanation import Explanation
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


def test_left_alone_is_a_copy(cli: Cli, model: str, tmp_path: Path) -> None:
    hasty = cli("optimize", model, "--dry-run", "-t", "ascend-910b", "--no-verify", "--config", "time-limit=1e-9")
    assert "time limit" in hasty.out
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


def test_pins_and_external_data(cli: Cli, model: str, tmp_path: Path) -> None:
    """Of two pins of one tensor the last one counts."""
    arguments = ("--pin", "y=NCHW16c", "--pin", "y=NHWC", "--external-data", "w.bin", "--config", "time-limit=30", "-q")
    assert cli("optimize", model, "-o", "out.onnx", *PLANNED, *arguments) == CommandResult(0, "", "")
    assert (tmp_path / "w.bin").stat().st_size > 16 * 32 * 9 * 4
    dims = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 24, 24, 16]
    assert cli("verify", model, "out.onnx").code == 0  # the stamp contains the pin
    assert "y NHWC" in cli("inspect", "out.onnx").out


def test_dump_ir(cli: Cli, model: str, tmp_path: Path) -> None:
    command = ("inspect", model, *PLANNED, "--dump-ir")
    assert cli(*command, "dumps").err == ""
    before, after = (
        next((tmp_path / "dumps").glob(f"*-after-{name}.txt")) for name in ("assign-formats", "insert-casts")
    )
    assert "graph net(" in before.read_text()
    assert "CastData" in after.read_text() and "CastData" not in before.read_text()
    dumps = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    passes = json.loads(cli("list", "passes", "--json").out)
    steps = [step["name"] for step in (*passes["inference"], *passes["dialects"]["functions"])]
    assert "equalize-matmul-ranks" in steps
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
    assert found["changed"] and found["before"]["transposes"] == 3
    names = [(each["before"] or each["after"])["name"] for each in found["ops"]]
    assert names == ["to_nchw", "conv0", "relu", "to_nhwc", "tanh", "back", "conv1"]


def test_inspect_what_we_wrote(cli: Cli, model: str, tmp_path: Path) -> None:
    cli("optimize", model, "-o", "out.onnx", *PLANNED, "-q")
    output = cli("inspect", "out.onnx").out
    for part in ("version", TARGET, "unchanged since it was written"):
        assert part in output
    assert json.loads(cli("inspect", "out.onnx", "--json").out)["stamp"]["target"] == TARGET
    assert "optimised like this before" in cli("inspect", "out.onnx", *PLANNED).out
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
    same = cli("verify", model, model)
    assert (same.code, same.err) == (0, "")
    assert "passed" in same.out

    different = cli("verify", model, "other.onnx")
    assert different.code == 7
    assert "failed" in different.out
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


def test_one_format(cli: Cli) -> None:
    command = ("formats", "NC1HWC0", "--shape", "1,17,5,4", "--dtype", "float16")
    output = cli(*command).out
    for part in ("1 2 5 4 16", "300", "1.28 kB", "0 15 0 3"):
        assert part in output
    record = json.loads(cli(*command, "--json").out)
    assert record["strides"] == [640, 320, 64, 16, 1]
    assert record["byte_strides"][:2] == [1280, 640]
    assert record["padding"] == 300 and record["capacity"] == 640
    assert record["offsets"][17] == {"offset": 17, "element": [0, 1, 0, 1]}
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
    for part in ("memory.bandwidth", "3.35e+12", "kernels", "x N*C", "estimate:"):
        assert part in output
    assert json.loads(cli("targets", TARGET, "--json").out)["name"] == TARGET
    assert TARGET in {target["name"] for target in json.loads(cli("targets", "--json").out)["targets"]}


def test_fast_sessions(cli: Cli, tmp_path: Path) -> None:
    """A fast session is a reason to rewrite a model that no plan makes faster; weights go where the options say."""
    onnx.save(relu(), tmp_path / "relu.onnx")
    refused = cli("optimize", "relu.onnx", "-o", "out.onnx", "-t", TARGET, "--config", "sessions=fast")
    assert refused.code == 2
    assert_one_line(refused.err)
    assert "leave it out, or give a target whose dialect is onnxruntime" in refused.err
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", "--config", "sessions=slow").code == 2
    assert files(tmp_path).keys() == {"relu.onnx"}
    native = ("-t", "cpu-avx2", "--config", "dialect=onnxruntime", "--json", "report.json")
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", *native).code == 0
    assert not Report.model_validate_json((tmp_path / "report.json").read_bytes()).changed
    assert cli("optimize", "relu.onnx", "-o", "out.onnx", *native, "--config", "sessions=fast").code == 0
    report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
    assert report.changed and report.sessions == "fast"
    assert files(tmp_path).keys() == {"relu.onnx", "out.onnx", "report.json"}


def test_a_skeleton_is_filled(cli: Cli, tmp_path: Path) -> None:
    model = convolutions()
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.doc_string = '{"normal": [0.0, 0.1]}'
    onnx.save(model, tmp_path / "m.onnx")
    for _ in range(2):  # the second replaces its result
        done = cli("m.onnx", *PLANNED)
        assert done.code == 0 and "weights: are emptied in the file; random numbers" in done.err
    assert all(each.raw_data for each in onnx.load(tmp_path / "m.opt.onnx").graph.initializer)


# --- --json of every command -----------------------------------------------------------------------------

COMMANDS = {
    "optimize": ("model.onnx", "--no-verify", *PLANNED),
    "inspect": ("model.onnx", *PLANNED),
    "verify": ("model.onnx", "model.onnx"),
    "check": ("model.onnx",),
    "formats": ("NHWC",),
    "targets": ("gpu-hopper",),
    "list ops": ("Conv",),
    "list runtimes": (),
    "list passes": (),
    "list dialects": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_json(cli: Cli, model: str, command: str) -> None:
    arguments = (*command.split(), *COMMANDS[command])
    printed = cli(*arguments, "--json")
    assert (printed.code, printed.err) == (0, "")
    record = json.loads(printed.out)
    assert record["layoutopt_version"]
    for _ in range(2):
        written = cli(*arguments, "--json", "record.json")
        assert written.code == 0 and written.out != printed.out != ""
        assert json.loads(Path("record.json").read_text()).keys() - record.keys() == {"layoutopt_file"}
    Path("foreign.json").write_text("[]")
    refused = cli(*arguments, "--json", "foreign.json")
    assert refused.code == 8
    assert_one_line(refused.err)
    assert cli(*arguments, "--json", "foreign.json", "--force").code == 0


def test_json_takes_only_names_in_json_as_its_file(cli: Cli, model: str) -> None:
    assert json.loads(cli("formats", "--json", "NHWC").out)["name"] == "NHWC"
    assert json.loads(cli("inspect", "--json", model, *PLANNED).out)["model"] == model
    assert cli("formats", "NHWC", "--json=record").code == 0
    assert json.loads(Path("record").read_text())["name"] == "NHWC"


def test_quiet(cli: Cli, model: str) -> None:
    for command in (("verify", model, model), ("check", model), ("optimize", model, "--no-verify", *PLANNED)):
        done = cli(*command, "--quiet")
        assert (done.code, done.out, done.err) == (0, "", "")


# --- explain ---------------------------------------------------------------------------------------------

ASCEND = ("--target", "ascend-310")


def test_explain_names_both_sides_of_each_conversion_and_prices_the_alternatives(cli: Cli, model: str) -> None:
    found = cli("explain", model, *ASCEND)
    assert (found.code, found.err) == (0, "")
    assert "proven optimal" in found.out
    assert ". y: NCHW16c to NCHW" in found.out
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert "from Conv conv1 NCHW16c NCHW NCHW16c" in lines and "to graph output y NCHW NCHW" in lines
    assert "alternatives" in lines and "remedies" in lines


def test_the_record_is_the_explanation(cli: Cli, model: str) -> None:
    found = Explanation.model_validate_json(cli("explain", model, *ASCEND, "--json").out)
    assert found.target == "ascend-310" and found.model == model
    assert found.conversions and all(each.is_priced for each in found.conversions)
    few = json.loads(cli("explain", model, *ASCEND, "--json", "--limit", "0").out)
    assert [each["is_priced"] for each in few["conversions"]] == [False] * len(found.conversions)
    assert "alternatives" not in cli("explain", model, *ASCEND, "--limit", "0").out


def test_a_tensor_and_a_node(cli: Cli, model: str) -> None:
    for name in ("b", "conv0"):
        found = cli("explain", model, name, *ASCEND)
        assert found.code == 0
        assert "alternatives" in found.out and "kernel" in found.out
        assert json.loads(cli("explain", model, name, *ASCEND, "--json").out)["item"]["name"] == name


def test_a_model_without_conversions_takes_one_line(cli: Cli, tmp_path: Path) -> None:
    onnx.save(relu(), tmp_path / "relu.onnx")
    lines = cli("explain", "relu.onnx", *ASCEND).out.splitlines()
    assert [line for line in lines if "conversions" in line] == ["  conversions     0"]
    assert len(lines) == 3


def test_a_model_that_was_optimised_has_no_plan_to_explain(cli: Cli, model: str) -> None:
    assert cli("optimize", model, "-o", "out.onnx", *ASCEND, "--no-verify").code == 0
    found = cli("explain", "out.onnx", *ASCEND)
    assert found.code == 0
    assert "no plan  it has been optimised like this before" in found.out
