"""The command line as its users meet it: what it prints, what it writes, and how it fails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from layoutopt.cli import main
from layoutopt.cli.exit_codes import exit_codes
from layoutopt.errors import LayoutoptError
from layoutopt.report import Report

TARGET = "gpu-hopper"
CONV = "Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


Cli = Callable[..., Run]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "LAYOUTOPT_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> Run:
        code = main(arguments)
        printed = capsys.readouterr()
        return Run(code, printed.out, printed.err)

    yield run
    signal.signal(signal.SIGTERM, handler)


def convolutions(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions between Transposes, as Keras exports them."""
    generator = np.random.default_rng(seed)
    weights = {
        "w0": generator.normal(size=(32, 16, 3, 3)).astype(np.float32),
        "w1": generator.normal(size=(16, 32, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "to_nchw", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["a", "w0"], ["b"], "conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Transpose", ["c"], ["d"], "to_nhwc", perm=[0, 2, 3, 1]),
        helper.make_node("Tanh", ["d"], ["e"], "tanh"),
        helper.make_node("Transpose", ["e"], ["f"], "back", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["f", "w1"], ["y"], "conv1"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 24, 24, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 16, 24, 24])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def relu() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(convolutions(), tmp_path / "model.onnx")
    return "model.onnx"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- optimize ----------------------------------------------------------------------------------------------


def test_optimize(cli: Cli, model: str, tmp_path: Path) -> None:
    done = cli("optimize", model, "-o", "out.onnx", "--target", TARGET)
    assert (done.code, done.err) == (0, "")
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx"}
    labels = ("result", "ops in", "casts", "transposes", "estimate", "lower bound", "verified", "written")
    lines = done.out.splitlines()
    assert [line.split("  ")[1] for line in lines[1:]] == list(labels)
    for said in (TARGET, "rewritten", "NHWC", "3 → ", "no plan of these formats is faster", "passed", "out.onnx"):
        assert said in done.out
    assert "\033" not in done.out
    assert all(line == line.rstrip() for line in lines)


def test_same_bytes_and_nothing_more_to_do(cli: Cli, model: str, tmp_path: Path) -> None:
    for dialect in ("functions", "ops"):
        command = ("optimize", "--target", TARGET, "--dialect", dialect, "--quiet")
        for source, out in ((model, "first.onnx"), (model, "second.onnx"), ("first.onnx", "third.onnx")):
            assert cli(*command, source, "-o", out) == Run(0, "", "")
        written = [(tmp_path / name).read_bytes() for name in ("first.onnx", "second.onnx", "third.onnx")]
        assert written[0] == written[1] == written[2] != (tmp_path / model).read_bytes()
        assert "optimised like this before" in cli(*command[:-1], "first.onnx", "--dry-run").out


def test_onto_itself(cli: Cli, model: str, tmp_path: Path) -> None:
    before = (tmp_path / model).read_bytes()
    assert cli("optimize", model, "-o", "other.onnx", "-t", TARGET).code == 0
    assert cli("optimize", model, "-o", model, "-t", TARGET).code == 0
    assert files(tmp_path).keys() == {"model.onnx", "other.onnx"}
    assert before != (tmp_path / model).read_bytes() == (tmp_path / "other.onnx").read_bytes()


def test_left_alone_is_a_copy(cli: Cli, tmp_path: Path) -> None:
    onnx.save(relu(), tmp_path / "relu.onnx")
    done = cli("optimize", "relu.onnx", "-o", "out.onnx", "--target", TARGET)
    assert done.code == 0
    assert "left alone: no other formats" in done.out
    assert (tmp_path / "relu.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_report(cli: Cli, model: str, tmp_path: Path) -> None:
    assert cli("optimize", model, "-o", "out.onnx", "-t", TARGET, "--report", "report.json").code == 0
    report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
    assert report.changed
    assert report.verification.status == "passed"
    assert report.plan is not None and report.plan.seconds_after < report.plan.seconds_before
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx", "report.json"}

    printed = cli("optimize", model, "-t", TARGET, "--report", "-", "--mode", "training")
    assert Report.model_validate_json(printed.out).mode == "training"
    assert "no model" in cli("optimize", model, "-t", TARGET, "--dry-run", "--no-verify").out
    assert files(tmp_path).keys() == {"model.onnx", "out.onnx", "report.json"}


def test_symbolic_dimensions(cli: Cli, tmp_path: Path) -> None:
    """Planned for a range and verified at its ends; inspected; what is not said is marked, and what is said is remembered."""
    net = convolutions()
    for value, axes in ((net.graph.input[0], (1, 2)), (net.graph.output[0], (2, 3))):
        value.type.tensor_type.shape.dim[axes[0]].dim_param = "height"
        value.type.tensor_type.shape.dim[axes[1]].dim_param = "width"
    onnx.save(net, tmp_path / "dynamic.onnx")
    assert (
        cli(
            "optimize", "dynamic.onnx", "-o", "out.onnx", "-t", TARGET, "--dim", "height=8:32", "--report", "r.json"
        ).code
        == 0
    )
    record = json.loads((tmp_path / "r.json").read_text())
    assert [(each["name"], each["low"], each["high"], each["assumed"]) for each in record["dims"]] == [
        ("height", 8, 32, False),
        ("width", 224, 224, True),
    ]
    assert [sizes["height"] for sizes in record["verification"]["sizes"]][::2] == [8, 32]
    shown = cli("optimize", "dynamic.onnx", "-o", "again.onnx", "-t", TARGET, "--dim", "height=8:32")
    assert "height 8:32" in shown.out and "width 224?" in shown.out
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()
    assert (
        "optimised like this before"
        in cli("optimize", "out.onnx", "-o", "o.onnx", "-t", TARGET, "--dim", "height=8:32").out
    )
    assert (
        "before"
        not in cli("optimize", "out.onnx", "-o", "o.onnx", "-t", TARGET, "--dim", "height=8").out.split("casts")[0]
    )
    assert "height 8:32" in cli("inspect", "out.onnx").out
    planned = json.loads(cli("inspect", "dynamic.onnx", "-t", TARGET, "--dim", "width=16", "--json").out)
    assert [(each["name"], each["low"]) for each in planned["dims"]] == [("height", 224), ("width", 16)]
    compared = json.loads(
        cli("verify", "dynamic.onnx", "out.onnx", "--dim", "height=9:11", "--dim", "width=10", "--json").out
    )
    assert compared["status"] == "passed"
    assert compared["sizes"][0] == {"height": 9, "width": 10}


def test_pins_and_external_data(cli: Cli, model: str, tmp_path: Path) -> None:
    arguments = ("--pin", "y=NHWC", "--external-data", "w.bin", "--time-limit", "30", "-q")
    assert cli("optimize", model, "-o", "out.onnx", "-t", TARGET, *arguments) == Run(0, "", "")
    assert (tmp_path / "w.bin").stat().st_size > 16 * 32 * 9 * 4
    dims = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 24, 24, 16]
    assert cli("verify", model, "out.onnx").code == 0  # it knows of the pin
    assert "y NHWC" in cli("inspect", "out.onnx").out


def test_dump_ir(cli: Cli, model: str, tmp_path: Path) -> None:
    command = ("optimize", model, "-t", TARGET, "--dry-run", "-q", "--no-verify", "--dump-ir")
    before = cli(*command, "before:insert-casts").err
    after = cli(*command, "after:insert-casts").err
    assert before.startswith("# ") and "graph net(" in before
    assert "CastData" in after and "CastData" not in before
    assert cli(*command, "all=dumps").err == ""
    dumps = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    steps = [step["name"] for step in json.loads(cli("passes", "--json").out)["inference"]]
    assert dumps == [f"00-before-{steps[0]}.txt", *(f"{n:02}-after-{step}.txt" for n, step in enumerate(steps, 1))]


# --- inspect and verify ------------------------------------------------------------------------------------


def test_inspect(cli: Cli, model: str) -> None:
    short, long = cli("inspect", model, "-t", TARGET), cli("inspect", model, "-t", TARGET, "--all")
    assert short.code == long.code == 0
    for said in ("worth rewriting", "Conv", "names only"):
        assert said in short.out
    for said in ("conv0", "conv1", "to_nhwc", "leaves", "wants"):
        assert said in long.out
    found = json.loads(cli("inspect", model, "-t", TARGET, "--json").out)
    assert found["improves"] and found["counts"]["before"]["transposes"] == 3
    names = [(each["before"] or each["after"])["name"] for each in found["ops"]]
    assert names == ["to_nchw", "conv0", "relu", "to_nhwc", "tanh", "back", "conv1"]


def test_inspect_what_we_wrote(cli: Cli, model: str, tmp_path: Path) -> None:
    cli("optimize", model, "-o", "out.onnx", "-t", TARGET, "-q")
    said = cli("inspect", "out.onnx").out
    for part in ("written by", TARGET, "as it was written", "Conv_NHWC"):
        assert part in said
    assert json.loads(cli("inspect", "out.onnx", "--json").out)["stamp"]["target"] == TARGET
    assert cli("inspect", "out.onnx", "-t", TARGET).out == said
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
    assert {entry["system"] for entry in json.loads(cli("formats", "--system", "TVM", "--json").out)} == {"TVM"}


def test_pictures(cli: Cli, model: str, tmp_path: Path) -> None:
    assert cli("formats", "NCHW4c", "--shape", "1,6,3,4", "--plot", "format.svg").code == 0
    assert cli("inspect", model, "-t", TARGET, "--plot", "plan.svg").code == 0
    for name, said in (("format.svg", "memory"), ("plan.svg", "CastData: NHWC")):
        assert said in (tmp_path / name).read_text()
    assert cli("formats", "NCHW4c", "--plot", "without_shape.svg").code == 2
    assert cli("formats", "NCHW4c", "--shape", "1,99,99,99", "--plot", "too_large.svg").code == 5
    assert cli("formats", "NCHW4c", "--shape", "1,6,3,4", "--plot", "no/folder.svg").code == 8
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["format.svg", "plan.svg"]


def test_one_format(cli: Cli) -> None:
    command = ("formats", "NC1HWC0", "--shape", "1,17,5,4", "--dtype", "float16")
    said = cli(*command).out
    for part in ("1, 2, 5, 4, 16", "300", "1280 bytes", "x[0, 0…15, 0, 1]", "321…335  15 lanes"):
        assert part in said
    record = json.loads(cli(*command, "--json").out)
    assert record["strides"] == [640, 320, 64, 16, 1]
    assert record["byte_strides"][:2] == [1280, 640]
    assert record["lanes"] == 300 and record["capacity"] == 640
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
    said = cli("targets", TARGET).out
    for part in ("memory.bandwidth", "TB/s", "kernels", "x:N*C", "estimate:"):
        assert part in said
    assert json.loads(cli("targets", TARGET, "--json").out)["name"] == TARGET
    assert TARGET in {target["name"] for target in json.loads(cli("targets", "--json").out)}


def test_a_target_explained_for_an_op(cli: Cli) -> None:
    said = cli("targets", "--explain", TARGET).out
    assert "memory.bandwidth" in said and "x:NHWC w:NHWC y:NHWC" in said
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
    assert "no multiples of 8" in odd
    for op in (
        "Relu (float32[N,3] x)",
        "MatMul (float[4,8,16] a, float[16,5] b)",
        "MaxPool <kernel_shape=[2]> (float[1,8,6] x)",
    ):
        assert cli("targets", TARGET, "--op", op).code == 0, op


def test_passes_and_dialects(cli: Cli) -> None:
    said = cli("passes").out
    assert said.index("fold-constants") < said.index("assign-formats") < said.index("pretransform-weights")
    assert "Keep what an output depends on." in said
    assert {"functions", "ops"} <= {each["name"] for each in json.loads(cli("dialects", "--json").out)}
    assert TARGET in cli("dialects").out


# --- what goes wrong ---------------------------------------------------------------------------------------


def assert_one_line(err: str) -> None:
    assert err.startswith(("error: ", "internal error: "))
    assert err.endswith("\n") and err.count("\n") == 1
    assert "Traceback" not in err


WRONG: dict[str, tuple[int, str, str]] = {
    "missing": (3, "no such file", "optimize none.onnx -o out.onnx"),
    "empty": (3, "is empty", "optimize empty.onnx -o out.onnx"),
    "not ONNX": (3, "not an ONNX model|text", "optimize text.onnx -o out.onnx"),
    "folder": (3, "is a folder", "optimize folder -o out.onnx"),
    "inspect missing": (3, "no such file", "inspect none.onnx"),
    "verify missing": (3, "no such file", "verify model.onnx none.onnx"),
    "target": (4, "did you mean gpu-hopper", "optimize model.onnx -o out.onnx -t gpu-hoper"),
    "TOML": (4, "is not TOML", "optimize model.onnx -o out.onnx -t bad.toml"),
    "no TOML": (4, "cannot be read", "targets none.toml"),
    "format": (5, "not a format", "optimize model.onnx -o out.onnx --pin y=N?WC"),
    "misspelt format": (5, "did you mean NC1HWC0", "formats NC1HWCO"),
    "dtype": (5, "not an element type", "formats NHWC --dtype floaty"),
    "dtype needed": (5, "depends on the dtype", "formats NC1HWC0"),
    "shape of another rank": (5, "has 4 axes", "formats NHWC --shape 1,2"),
    "pin of another rank": (6, "cannot be pinned", "optimize model.onnx -o out.onnx --pin y=MN"),
    "pin of nothing": (6, "no such tensor", "optimize model.onnx -o out.onnx --pin q=NHWC"),
    "target twice": (4, "is named twice", "optimize model.onnx -o out.onnx -t gpu-hopper,gpu-hopper"),
    "half a target": (4, "a name is missing", "optimize model.onnx -o out.onnx -t gpu-hopper,"),
    "nothing to explain": (2, "no target to explain", "targets --explain"),
    "no op to explain": (2, "is no op", "targets gpu-hopper --op Relu"),
    "no such op to explain": (2, "no such operator", "targets gpu-hopper --op Frobnicate(float[1]x)"),
    "op without operands": (2, "out of bounds", "targets gpu-hopper --op Conv()"),
    "op that is free": (2, "only renames axes", "targets gpu-hopper --op Transpose(float[1,2]x)"),
    "no folder": (8, "the folder does not exist", "optimize model.onnx -o none/out.onnx"),
    "output is a folder": (8, "is a folder", "optimize model.onnx -o folder"),
    "output in a file": (8, "the folder is a file", "optimize model.onnx -o empty.onnx/out.onnx"),
    "unwritable": (8, "", "optimize model.onnx -o /proc/out.onnx"),
    "device": (8, "not a regular file", "optimize model.onnx -o /dev/null"),
    "report": (8, "the folder does not exist", "optimize model.onnx -o out.onnx --report none/r.json"),
    "report is a folder": (8, "is a folder", "optimize model.onnx -o out.onnx --report folder"),
    "external data": (8, "is a folder", "optimize model.onnx -o out.onnx --external-data folder"),
    "dialect": (1, "no such dialect", "optimize model.onnx -o out.onnx --dialect french"),
    "nowhere to write": (2, "say -o OUT", "optimize model.onnx"),
    "report is the model": (2, "that is MODEL", "optimize model.onnx --report model.onnx"),
    "report is the output": (2, "that is OUT", "optimize model.onnx -o out.onnx --report ./out.onnx"),
    "external data elsewhere": (2, "not a name", "optimize model.onnx -o out.onnx --external-data a/b"),
    "not a pin": (2, "NAME=FORMAT", "optimize model.onnx -o out.onnx --pin NHWC"),
    "two pins": (2, "choose one", "optimize model.onnx -o out.onnx --pin y=NHWC --pin y=NCHW"),
    "not a dimension": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim batch"),
    "no range": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim n=4:2"),
    "two sizes": (2, "n is 1:2 too", "optimize model.onnx -o out.onnx --dim n=1:2 --dim n=3"),
    "no such dimension": (2, "all extents are fixed", "optimize model.onnx -o out.onnx --dim batch=2"),
    "no such dimension to verify at": (2, "all extents are fixed", "verify model.onnx model.onnx --dim batch=2"),
    "time limit": (2, "--time-limit", "optimize model.onnx -o out.onnx --time-limit nan"),
    "mode": (2, "training", "optimize model.onnx -o out.onnx --mode learning"),
    "dump": (2, "before:PASS", "optimize model.onnx -o out.onnx --dump-ir some"),
    "dump of no pass": (2, "no pass 'x'", "optimize model.onnx -o out.onnx --dump-ir after:x"),
    "dump to a file": (8, "", "optimize model.onnx -o out.onnx --dump-ir all=empty.onnx"),
    "no command": (2, "frobnicate", "frobnicate"),
    "no option": (2, "--frobnicate", "optimize --frobnicate"),
    "no argument": (2, "MODEL", "optimize"),
    "tolerance": (2, "--tolerance", "verify model.onnx model.onnx --tolerance nan"),
    "rounds": (2, "--rounds", "verify model.onnx model.onnx --rounds 0"),
    "shape": (2, "not a shape", "formats NHWC --shape 1,b"),
    "shape without a format": (2, "name a format", "formats --shape 1,2"),
    "system": (2, "there are", "formats --system windows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(cli: Cli, model: str, tmp_path: Path, case: str) -> None:
    code, said, command = WRONG[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("this is a text file, and no model, and rather long\n" * 9)
    (tmp_path / "bad.toml").write_text("name = [\n")
    (tmp_path / "out.onnx").write_bytes(b"precious")
    before = files(tmp_path)
    arguments = command.split()
    if arguments[0] == "optimize" and "-t" not in arguments:
        arguments += ["-t", TARGET]
    failed = cli(*arguments)
    assert failed.code == code, failed
    assert_one_line(failed.err)
    assert any(part in failed.err for part in said.split("|")), failed.err
    assert failed.out == ""
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ZeroDivisionError("a\nb"), 70, "internal error: ZeroDivisionError: a b; rerun with LAYOUTOPT_TRACEBACK=1"),
        (AssertionError(), 70, "internal error: AssertionError; rerun"),
        (MemoryError(), 1, "error: not enough memory"),
        (OSError(5, "Input/output error", "some.file"), 1, "error: some.file: input/output error"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (LayoutoptError("what\033[31m", where="where", hint="hint"), 1, "error: where: what [31m; hint"),
    ],
)
def test_unexpected_errors(
    cli: Cli,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("layoutopt.api.verify_models", fail)
    command = ("optimize", model, "-o", "out.onnx", "-t", TARGET, "--report", "report.json")
    failed = cli(*command)
    assert (failed.code, failed.out) == (code, "")
    assert_one_line(failed.err)
    assert failed.err.startswith(said)
    assert files(tmp_path).keys() == {"model.onnx"}
    if code == 70:
        traced = cli("--traceback", *command).err
        assert "Traceback" in traced and "in fail" in traced
        monkeypatch.setenv("LAYOUTOPT_TRACEBACK", "1")
        assert "in fail" in cli(*command).err


def test_a_result_that_differs_is_not_written(
    cli: Cli, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layoutopt.verify.TOLERANCES", {"float32": -1.0})
    failed = cli("optimize", model, "-o", "out.onnx", "-t", TARGET, "--report", "report.json")
    assert failed.code == 7
    assert_one_line(failed.err)
    assert files(tmp_path).keys() == {"model.onnx"}


def test_names_cannot_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    evil = convolutions()
    evil.graph.node[1].name = "conv\033[2J[bold]\n"
    onnx.save(evil, tmp_path / "evil.onnx")
    said = cli("inspect", "evil.onnx", "-t", TARGET, "--all").out
    assert "\033" not in said
    assert "[2J[bold]" in said
    dump = cli("optimize", "evil.onnx", "-t", TARGET, "--dry-run", "--dump-ir", "all")
    assert "\033" not in dump.err + dump.out


# --- the process -------------------------------------------------------------------------------------------


def process(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "layoutopt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


def test_help_is_light_and_names_every_exit_code(cli: Cli) -> None:
    heavy = ("numpy", "onnx", "onnxruntime", "onnx_ir", "pydantic", "rich", "networkx", "highspy")
    script = f"import sys, layoutopt.cli as c; c.main(['--help']); sys.exit(any(m in sys.modules for m in {heavy}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for code, meaning in exit_codes().items():
        assert f"{code:>3}  {meaning}" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert cli().out == cli("-h").out
    for command in ("optimize", "inspect", "verify", "formats", "targets", "passes", "dialects"):
        assert cli(command, "--help").code == 0


def test_every_error_has_its_exit_code_documented() -> None:
    errors = [LayoutoptError]
    for error in errors:
        errors += error.__subclasses__()
    assert {error.exit_code for error in errors if error.__module__.startswith("layoutopt")} <= exit_codes().keys()


def test_as_a_process(tmp_path: Path, model: str) -> None:
    out = tmp_path / "out.onnx"
    done = process("optimize", model, "-o", str(out), "-t", TARGET, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    failed = process("optimize", "none.onnx", "-o", str(out), "-t", TARGET, cwd=tmp_path)
    assert failed.returncode == 3
    assert_one_line(failed.stderr)
    assert process("--version").stdout.startswith("layoutopt ")


def test_nobody_reads_the_output() -> None:
    for arguments in (("formats",), ("--help",)):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "layoutopt", *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_no_space_for_the_output() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "layoutopt", "formats"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 8
    assert_one_line(done.stderr)
