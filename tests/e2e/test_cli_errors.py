"""Errors of the commands: one line, a documented exit code, no file; also as a process in pipes and under signals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from command_line import PLANNED, Cli, assert_one_line, files
from parsed_models import parsed

import layoutopt
from layoutopt.cli.exit_codes import exit_codes
from layoutopt.errors import LayoutoptError

# --- what goes wrong ---------------------------------------------------------------------------------------


WRONG: dict[str, tuple[int, str, str]] = {
    "missing": (3, "no such file", "optimize none.onnx -o out.onnx"),
    "empty": (3, "is empty", "optimize empty.onnx -o out.onnx"),
    "not ONNX": (3, "not an ONNX model|text", "optimize text.onnx -o out.onnx"),
    "folder without models": (3, "contains no *.onnx file", "optimize folder -o results"),
    "pattern without models": (3, "matches no model", "optimize folder/*.onnx -o results"),
    "a pin of several models": (2, "is for one model", "optimize [me]*.onnx --pin y=NHWC"),
    "stdin and a model": (2, "stdin is one model", "optimize - model.onnx"),
    "report and model on stdout": (2, "the model goes to stdout", "optimize model.onnx -o - --json"),
    "misspelt command": (2, "type: layoutopt optimize model.onnx -q", "optimise model.onnx -q"),
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
    "half a target": (4, "no target ''", "optimize model.onnx -o out.onnx -t gpu-hopper,"),
    "no folder": (8, "the folder does not exist", "optimize model.onnx -o none/out.onnx"),
    "output in a file": (8, "the folder is a file", "optimize model.onnx -o empty.onnx/out.onnx"),
    "unwritable": (8, "", "optimize model.onnx -o /proc/out.onnx"),
    "device": (8, "not a regular file", "optimize model.onnx -o /dev/null"),
    "report": (8, "the folder does not exist", "optimize model.onnx -o out.onnx --json none/r.json"),
    "report is a folder": (8, "is a folder", "optimize model.onnx -o out.onnx --json=folder"),
    "external data": (8, "is a folder", "optimize model.onnx -o out.onnx --external-data folder"),
    "dialect": (2, "no such dialect", "optimize model.onnx -o out.onnx --config dialect=french"),
    "no default output": (8, "is not a model that layoutopt wrote", "optimize other.onnx"),
    "report is the model": (2, "that is a model", "optimize model.onnx --json=model.onnx"),
    "report is the output": (2, "that is another file", "optimize model.onnx -o out.onnx --json=./out.onnx"),
    "external data elsewhere": (8, "not a file name", "optimize model.onnx -o out.onnx --external-data a/b"),
    "not a pin": (2, "NAME=FORMAT", "optimize model.onnx -o out.onnx --pin NHWC"),
    "not a dimension": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim batch"),
    "no range": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim n=4:2"),
    "no such dimension": (2, "all extents are fixed", "optimize model.onnx -o out.onnx --dim batch=2"),
    "no such dimension to verify at": (2, "all extents are fixed", "verify model.onnx model.onnx --dim batch=2"),
    "time limit": (2, "--config time-limit=nan: should be", "optimize model.onnx -o out.onnx --config time-limit=nan"),
    "mode": (2, "training", "optimize model.onnx -o out.onnx --config mode=learning"),
    "dump to a file": (8, "", "inspect model.onnx --dump-ir empty.onnx"),
    "no command": (2, "a command: optimize, inspect", "frobnicate"),
    "no option": (2, "--frobnicate", "optimize --frobnicate"),
    "no argument": (2, "MODEL", "optimize"),
    "tolerance": (2, "--tolerance", "verify model.onnx model.onnx --tolerance nan"),
    "shape": (2, "not a shape", "formats NHWC --shape 1,b"),
    "open shape": (2, "not a shape", "formats --shape [1,2"),
    "unfinished shape": (2, "not a shape", "formats --shape 1x"),
    "shape without a format": (2, "name a format", "formats --shape 1,2"),
    "system": (2, "no such system", "formats --system windows"),
    "jobs": (2, "Invalid value for '--jobs'", "optimize [me]*.onnx --jobs -1"),
    "cluster": (2, "is not the address of a cluster", "optimize [me]*.onnx --cluster tcp://host:1 --jobs 1"),
    "cache of one model": (2, "is for several models", "optimize model.onnx --cache cache"),
    "no cache": (2, "is no cache of layoutopt", "optimize [me]*.onnx --cache ."),
    "cache of results": (2, "is the folder of the results", "optimize [me]*.onnx -o results --cache results"),
    "operator": (2, "no-such-operator", "list ops no-such-operator"),
    "target file": (2, ".toml", "calibrate -o mine.txt"),
    "a kind of runtime as target": (4, "--runtime any", "optimize model.onnx -o out.onnx -t gpu"),
    "a runtime as target": (4, "-t cpu --runtime openvino", "optimize model.onnx -o out.onnx -t openvino"),
    "nothing to explain": (2, "near it are conv1, conv0", "explain model.onnx conv2 -t ascend-310"),
    "targets to explain": (4, "has no single price to explain", "explain model.onnx -t gpu-hopper,ascend-310"),
    "limit": (2, "--limit", "explain model.onnx -t ascend-310 --limit -1"),
    "target to explain": (4, "no target 'nothing'", "explain model.onnx -t nothing"),
    "no pin to explain": (2, "not a pin", "explain model.onnx --pin x"),
    "no dimension to explain": (2, "all extents are fixed", "explain model.onnx --dim N=2"),
    "pin to explain": (6, "none: there is no such tensor", "explain model.onnx -t ascend-310 --pin none=NHWC"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(cli: Cli, model: str, tmp_path: Path, case: str) -> None:
    code, expected, command = WRONG[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("this is a text file, and no model, and rather long\n" * 9)
    (tmp_path / "bad.toml").write_text("name = [\n")
    for name in ("out.onnx", "other.opt.onnx"):
        (tmp_path / name).write_bytes(b"precious")
    before = files(tmp_path)
    arguments = command.split()
    if arguments[0] == "optimize" and "-t" not in arguments:
        arguments += [*PLANNED]
    arguments += ["--force"] if "out.onnx" in arguments else []  # else it is refused before the model is read
    failed = cli(*arguments)
    assert failed.code == code, failed
    assert_one_line(failed.err)
    assert any(part in failed.err for part in expected.split("|")), failed.err
    assert failed.out == ""
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("error", "code", "expected"),
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
    expected: str,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("layoutopt.api.finish", fail)
    command = ("optimize", model, "-o", "out.onnx", *PLANNED, "--json", "report.json")
    failed = cli(*command)
    assert (failed.code, failed.out) == (code, "")
    assert_one_line(failed.err)
    assert failed.err.startswith(expected)
    assert files(tmp_path).keys() == {"model.onnx"}
    if code == 70:
        traced = cli("--traceback", *command).err
        assert "Traceback" in traced and "in fail" in traced
        monkeypatch.setenv("LAYOUTOPT_TRACEBACK", "1")
        assert "in fail" in cli(*command).err


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
    for command in ("optimize", "inspect", "verify", "formats", "targets", "list"):
        assert cli(command, "--help").code == 0


def test_every_error_has_its_exit_code_documented() -> None:
    errors = [LayoutoptError]
    for error in errors:
        errors += error.__subclasses__()
    assert {error.exit_code for error in errors if error.__module__.startswith("layoutopt")} <= exit_codes().keys()


def test_as_a_process(tmp_path: Path) -> None:
    """One that succeeds is in `tests/unit/test_process.py`."""
    failed = process("optimize", "none.onnx", "-o", "out.onnx", "--force", *PLANNED, cwd=tmp_path)
    assert failed.returncode == 3
    assert_one_line(failed.stderr)
    assert process("--version").stdout.startswith("layoutopt ")


def test_completion(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LAYOUTOPT_COMPLETE", "complete_bash")
    for words, expected in (
        ("layoutopt insp", "inspect"),
        ("layoutopt optimize --exter", "--external-data"),
        ("layoutopt model.onnx --exter", "--external-data"),
        ("layoutopt model.onnx -t gpu-hop", "gpu-hopper"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        completed = cli()
        assert (completed.code, completed.out.split()) == (0, [expected])


def test_nobody_reads_the_output() -> None:
    for arguments in (("formats",), ("--help",)):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "layoutopt", *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b"")


# --- models that cannot be compared or run ---------------------------------------------------------------

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


@pytest.mark.parametrize(
    "model",
    [
        "(float[1,8,6,6] x, int64[2] i) => (y) { y = Reshape (x, i) }",
        "(float[9] x, float i, float[2] v) => (y) { y = OneHot (x, i, v) }",
    ],
)
def test_a_shape_or_count_that_is_an_input_may_fit_no_op(cli: Cli, tmp_path: Path, model: str) -> None:
    """Random numbers are none, so a failing run says nothing about the model."""
    path = tmp_path / "m.onnx"
    onnx.save(parsed(f'<ir_version: 9, opset_import: ["" : 18]> g {model}'), path)
    assert layoutopt.optimize(path, "gpu-hopper", verify=False).report.reason
    assert cli("check", str(path)).code == 0


def test_a_model_that_runs_has_passed(cli: Cli, unrunnable: Path) -> None:
    sound = saved(UNRUNNABLE, unrunnable.with_name("sound.onnx"), 4, 3, 3, 3)
    report = layoutopt.optimize(sound, "gpu-hopper").report
    assert (report.changed, report.verification.status) == (False, "passed")
    assert report.verification.reason == "the model is the original"
    assert cli("optimize", str(sound), "-o", str(sound.with_name("o.onnx")), "-t", "gpu-hopper", "-q").err == ""
