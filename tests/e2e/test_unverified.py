"""Results that cannot be compared: exit code 11 and no file; models that onnxruntime loads and cannot run."""

import json
from pathlib import Path

import onnx
import pytest
from command_line import Cli
from parsed_models import parsed

import layoutopt

UNRUNNABLE = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,8,8] x) => (float[a,b,c,d] y) { c1 = Conv (x, w) y = Relu (c1) }"""
FOREIGN = """<ir_version: 8, opset_import: ["" : 17, "theirs" : 1]>
net (float[1,32,56,56] x) => (float[1,32,56,56] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = theirs.Foo (a)
    y = Conv <pads = [1, 1, 1, 1]> (b, w)
}"""


def saved(text: str, path: Path, *shape: int) -> Path:
    onnx.save(parsed(text, w=shape), path)
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A model that layoutopt rewrites and onnxruntime cannot load."""
    return saved(FOREIGN, tmp_path / "foreign.onnx", 32, 32, 3, 3)


@pytest.fixture
def unrunnable(tmp_path: Path) -> Path:
    """A convolution of 3 channels with a filter for 5, which onnxruntime loads and cannot run."""
    return saved(UNRUNNABLE, tmp_path / "unrunnable.onnx", 4, 5, 3, 3)


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_what_cannot_be_compared_is_written_only_with_permission(
    cli: Cli, foreign: Path, quiet: tuple[str, ...]
) -> None:
    out, report = foreign.with_name("out.onnx"), foreign.with_name("report.json")
    command = ("optimize", str(foreign), "-o", str(out), "-t", "ascend-910b", "--json", str(report), *quiet)
    done = cli(*command)
    assert (done.code, done.err.count("\n")) == (11, 1)
    for text in ("not verified", "theirs:Foo", "--allow-unverified", "--inputs FILE.npz"):
        assert text in done.err
    assert not out.exists() and not report.exists()
    assert cli("optimize", str(foreign), "-t", "ascend-910b", "--dry-run", *quiet).code == 11
    done = cli(*command, "--allow-unverified")
    assert done.code == 0
    warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and "not verified" in warnings[0] and "theirs:Foo" in warnings[0]
    assert out.exists() and json.loads(report.read_text())["verification"]["status"] == "not verified"
    assert not (quiet and done.out)


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_model_that_cannot_be_run_is_left_alone(cli: Cli, unrunnable: Path, quiet: tuple[str, ...]) -> None:
    out = unrunnable.with_name("out.onnx")
    command = ("optimize", str(unrunnable), "-o", str(out), "-t", "gpu-hopper", *quiet)
    refused = cli(*command)
    assert (refused.code, refused.out, refused.err.count("\n")) == (11, "", 1)
    assert "not verified: the original cannot be run" in refused.err and "Conv" in refused.err and not out.exists()
    done = cli(*command, "--allow-unverified")
    assert done.code == 0
    assert out.read_bytes() == unrunnable.read_bytes()
    warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and "not verified: the model cannot be run" in warnings[0] and "Conv" in warnings[0]
    assert "passed" not in done.out
    assert quiet or "the model cannot be run" in done.out


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify {model} {model}", 9),
        ("bench {model} --seconds 0.1", 3),
        ("verify {sound} {model}", 7),
        ("check {model}", 10),
        ("inspect {model} -t gpu-hopper", 3),
        ("explain {model} -t gpu-hopper", 3),
        ("ci {model} -t gpu-hopper -q", 3),
        ("optimize {model} -t gpu-hopper --no-verify --dry-run", 3),
        ("optimize {model} -t cpu-avx2 --no-verify --no-measure --dry-run", 3),
    ],
)
def test_other_commands_say_so_in_one_line(cli: Cli, unrunnable: Path, command: str, code: int) -> None:
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    done = cli(*command.format(model=unrunnable, sound=sound).split())
    assert done.code == code
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1 and "Conv" in done.err
    assert code != 3 or done.out == ""


REFUSED = {
    "instance-norm": ("InstanceNormalization (x, v, v)", "x"),
    "layer-norm": ("LayerNormalization (x, v)", "x"),
    "slope": ("PRelu (x, v)", "x"),
    "bias": ("Conv (x, w, v)", "x"),
    "group": ("Conv <group = 3> (x, w)", "x"),
    "recurrent": ("LSTM <hidden_size = 4> (r, k, k)", "r"),
    "depth": ("DepthToSpace <blocksize = 3> (x)", "x"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_operands_that_no_runtime_accepts(cli: Cli, kind: str, tmp_path: Path) -> None:
    """`onnx.checker` accepts these models, and so does a session: only a run shows that they are invalid."""
    body, given = REFUSED[kind]
    x = {"x": "float[1,8,6,6] x", "r": "float[2,1,8] r"}[given]
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({x}) => (y) {{ y = {body} }}'
    model = parsed(text, v=(5,), w=(8, 8, 1, 1), k=(1, 16, 7))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(layoutopt.ModelError, match=r"cannot be run: .*running (\w+) node"):
        layoutopt.optimize(path, "gpu-hopper", verify=False)
    done = cli("check", str(path))
    assert (done.code, done.err.count("\n")) == (10, 1) and "refuses it: cannot be run" in done.err


def test_a_model_that_runs_has_passed(cli: Cli, unrunnable: Path) -> None:
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    report = layoutopt.optimize(sound, "gpu-hopper").report
    assert (report.changed, report.verification.status) == (False, "passed")
    assert report.verification.reason == "the model is the original"
    assert cli("optimize", str(sound), "-o", str(sound.with_name("o.onnx")), "-t", "gpu-hopper", "-q").err == ""
