"""Errors of the commands: one line, a documented exit code, no file; also as a process in pipes and under signals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PLANNED, Cli, assert_one_line, files

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
    "report is the model": (2, "that is MODEL", "optimize model.onnx --json=model.onnx"),
    "report is the output": (2, "that is OUT", "optimize model.onnx -o out.onnx --json=./out.onnx"),
    "external data elsewhere": (2, "not a name", "optimize model.onnx -o out.onnx --external-data a/b"),
    "not a pin": (2, "NAME=FORMAT", "optimize model.onnx -o out.onnx --pin NHWC"),
    "two pins": (2, "choose one", "optimize model.onnx -o out.onnx --pin y=NHWC --pin y=NCHW"),
    "not a dimension": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim batch"),
    "no range": (2, "NAME=LOW:HIGH", "optimize model.onnx -o out.onnx --dim n=4:2"),
    "two sizes": (2, "n is 1:2 too", "optimize model.onnx -o out.onnx --dim n=1:2 --dim n=3"),
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
    "shape without a format": (2, "name a format", "formats --shape 1,2"),
    "system": (2, "there are", "formats --system windows"),
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
