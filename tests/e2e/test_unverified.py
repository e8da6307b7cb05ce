"""Results that cannot be compared: exit code 11 and no file; models that onnxruntime loads and cannot run."""

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_line import Cli
from onnx import numpy_helper

import layoutopt
from layoutopt.cost_models.registry import host_target

UNRUNNABLE = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,8,8] x) => (float[a,b,c,d] y) { c1 = Conv (x, w) y = Relu (c1) }"""
FOREIGN = """<ir_version: 8, opset_import: ["" : 17, "theirs" : 1]>
net (float[1,32,56,56] x) => (float[1,32,56,56] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = theirs.Foo (a)
    y = Conv <pads = [1, 1, 1, 1]> (b, w)
}"""


def saved(text: str, path: Path, *shape: int) -> Path:
    proto = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(proto, path)
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
def test_what_cannot_be_compared_is_not_written(cli: Cli, foreign: Path, quiet: tuple[str, ...]) -> None:
    out, report = foreign.with_name("out.onnx"), foreign.with_name("report.json")
    done = cli("optimize", str(foreign), "-o", str(out), "-t", "ascend-910b", "--json", str(report), *quiet)
    assert done.code == 11
    assert done.err.count("\n") == 1
    for text in ("not verified", "theirs:Foo", "--allow-unverified", "--inputs FILE.npz"):
        assert text in done.err
    assert not out.exists() and not report.exists()
    assert cli("optimize", str(foreign), "-t", "ascend-910b", "--dry-run", *quiet).code == 11


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_with_permission_it_is_written(cli: Cli, foreign: Path, quiet: tuple[str, ...]) -> None:
    out, report = foreign.with_name("out.onnx"), foreign.with_name("report.json")
    done = cli(
        "optimize",
        str(foreign),
        "-o",
        str(out),
        "-t",
        "ascend-910b",
        "--allow-unverified",
        "--json",
        str(report),
        *quiet,
    )
    assert done.code == 0
    warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and "not verified" in warnings[0] and "theirs:Foo" in warnings[0]
    assert out.exists()
    assert json.loads(report.read_text())["verification"]["status"] == "not verified"
    assert not (quiet and done.out)


def test_without_verification_nothing_is_said(cli: Cli, foreign: Path) -> None:
    out = foreign.with_name("out.onnx")
    done = cli("optimize", str(foreign), "-o", str(out), "-t", "ascend-910b", "--no-verify", "-q")
    assert (done.code, done.err, done.out) == (0, "", "")
    assert out.exists()


def test_in_python(foreign: Path) -> None:
    with pytest.raises(layoutopt.UnverifiedError, match=r"not verified: .*theirs:Foo") as caught:
        layoutopt.optimize(foreign, "ascend-910b")
    assert caught.value.exit_code == 11
    result = layoutopt.optimize(foreign, "ascend-910b", allow_unverified=True)
    assert result.report.changed and result.report.verification.status == "not verified"


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
def test_other_commands_say_so_in_one_line(cli: Cli, unrunnable: Path, command: str, code: int | None) -> None:
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    done = cli(*command.format(model=unrunnable, sound=sound).split())
    assert code is None or done.code == code
    assert "Traceback" not in done.err
    assert code is None or (done.err.count("\n") == 1 and "Conv" in done.err)
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
    constants = "float[5] v, float[8,8,1,1] w, float[1,16,7] k"
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({x}) => (y) <{constants}> {{ y = {body} }}'
    model = onnx.parser.parse_model(text)
    for each in model.graph.value_info:
        shape = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), each.name))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(layoutopt.ModelError, match=r"cannot be run: .*running (\w+) node"):
        layoutopt.optimize(path, "gpu-hopper", verify=False)
    done = cli("check", str(path))
    assert (done.code, done.err.count("\n")) == (10, 1) and "refuses it: cannot be run" in done.err


def test_a_tensor_larger_than_memory_is_reported(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18]> g () => (float[1048576,1048576,1024] y) {
        s = Constant <value_ints = [1048576, 1048576, 1024]> () y = ConstantOfShape (s) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    done = cli("inspect", str(path))
    assert (done.code, done.err.count("\n")) == (0, 1) and "cannot run it on this machine" in done.err
    assert cli("check", str(path)).code == 10


def test_save_replaces_no_file_that_was_read(unrunnable: Path) -> None:
    """The rule of the command line, for the model, its target file and its kernel times, even with `force`."""
    target = unrunnable.with_name("mine.toml")
    target.write_text(
        (Path(__file__).parents[2] / "cost_models" / "targets" / "cpu-avx2.toml").read_text(encoding="utf-8")
    )
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    result = copy.copy(layoutopt.optimize(sound, ["gpu-hopper", str(target)], verify=False))
    before = target.read_bytes()
    with pytest.raises(layoutopt.OutputError, match="is read by this command"):
        result.save(target, force=True)
    assert target.read_bytes() == before


def test_a_model_that_runs_has_passed(cli: Cli, unrunnable: Path) -> None:
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    report = layoutopt.optimize(sound, "gpu-hopper").report
    assert (report.changed, report.verification.status) == (False, "passed")
    assert report.verification.reason == "the model is the original"
    assert cli("optimize", str(sound), "-o", str(sound.with_name("o.onnx")), "-t", "gpu-hopper", "-q").err == ""


def test_random_numbers_are_left_alone_and_run() -> None:
    """A model whose outputs are random stays unchanged, and is run."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
        r = RandomNormalLike (x) y = Add (x, r) }"""
    assert layoutopt.optimize(onnx.parser.parse_model(text), "gpu-hopper").report.verification.status == "passed"


def test_a_second_run_is_run_too(unrunnable: Path) -> None:
    """An optimised model stays unchanged and is run, whether onnxruntime can run it or not."""
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    first = layoutopt.optimize(sound, "ascend-910b", pins={"x": "NHWC"})
    second = layoutopt.optimize(first.proto, "ascend-910b", pins={"x": "NHWC"})
    assert (second.report.changed, second.report.verification.status) == (False, "passed")


def test_a_result_for_another_machine_is_compared_by_definition(cli: Cli, tmp_path: Path) -> None:
    """Its kernels cannot be run here."""
    text = FOREIGN.replace(', "theirs" : 1', "").replace("theirs.Foo", "Relu")
    model = saved(text, tmp_path / "model.onnx", 32, 32, 3, 3)
    other = {"cpu-avx2": "cpu-avx512", "cpu-avx512": "cpu-avx2"}.get(host_target(), "")
    if not other:
        pytest.skip("the blocks of this processor are not known")
    result = cli("optimize", str(model), "-o", str(tmp_path / "out.onnx"), "-t", other)
    assert result.code == 0
    assert "by definition" in " ".join(result.out.split())
    compared = cli("verify", str(model), str(tmp_path / "out.onnx"))
    assert compared.code == 0
    assert "by definition" in compared.out
