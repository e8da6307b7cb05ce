"""The example of a package that extends layoutopt, installed into an environment of its own and used from the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import Cli, assert_one_line

import layoutopt
from layoutopt.errors import ExtensionError
from layoutopt.runtime.custom_ops import kernel_libraries, registered_libraries

CHECKOUT = Path(__file__).parents[2]
PLUGIN = CHECKOUT / "examples/plugin"
SETUPTOOLS = "77"  # an older setuptools cannot build a wheel without the package `wheel`

_SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)

Run = Callable[..., str]

_IN_TURN = """
import contextlib, io, json, sys
from layoutopt.cli import main

outputs = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(arguments)
    if code:
        sys.exit(f"{arguments}: exit code {code}")
    outputs.append(out.getvalue())
print(json.dumps(outputs))
"""


def commands_in_turn(run: Run, commands: Sequence[Sequence[str]], **options: Path) -> list[str]:
    """The outputs of `layoutopt` commands in one process, because starting one takes seconds."""
    printed, *_ = run("-c", _IN_TURN, json.dumps(commands), **options).splitlines()  # and behind it what went to stderr
    return list(json.loads(printed))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in an environment that has the packages of this one, and the example. Nothing is downloaded."""
    pytest.importorskip("setuptools", minversion=SETUPTOOLS)
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    probe = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(subprocess.run([python, "-c", probe], capture_output=True, text=True, check=True).stdout.strip())
    (own / "parent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    source = folder / "plugin"  # a build writes next to what it builds
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-build-isolation", source], check=True)

    def run(*arguments: str | Path, code: int = 0, where: Path = folder) -> str:
        result = subprocess.run([python, *arguments], cwd=where, capture_output=True, text=True, check=False)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    return run


@pytest.fixture(scope="module")
def model(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    script = f"import sys, onnx; sys.path.insert(0, {str(PLUGIN / 'tests')!r}); import test_laws as laws; "
    run("-B", "-c", script + f"onnx.save(laws.network(), {str(path)!r})")
    return path


def test_lists_and_optimize(run: Run, model: Path, tmp_path: Path) -> None:
    lists = (
        *("targets", "targets acme-npu", "formats --system acme --json"),
        *("list passes --json", "list dialects --json", "list runtimes", "list ops mirror"),
    )
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    options = ("--target", "acme-npu", "--pin", "x=TILE8", "--json", str(report))
    commands = (
        ("optimize", str(model), "-o", str(out), *options),
        ("inspect", str(out)),
        ("inspect", str(model), "-t", "acme-npu"),
        *(each.split() for each in lists),
    )
    _, *inspected = commands_in_turn(run, commands)
    found = dict(zip(lists, inspected[2:], strict=True))
    rows = [line.split() for line in found["targets"].splitlines()]
    assert [row for row in rows if row[:1] == row[-1:] == ["acme-npu"]], "the target, and the package that it is from"
    assert "convolutions in TILE8" in found["targets acme-npu"]
    formats = json.loads(found["formats --system acme --json"])["formats"]
    assert {each["name"] for each in formats} == {"TILE8", "TILE8_W"}
    passes = [each["name"] for each in json.loads(found["list passes --json"])["inference"]]
    assert passes[passes.index("cancel-mirrors") + 1] == "assign-formats"
    assert "acme" in [each["name"] for each in json.loads(found["list dialects --json"])["dialects"]]
    assert "the firmware of the Acme NPU" in found["list runtimes"]
    assert "the axis must not be blocked" in found["list ops mirror"]
    found = json.loads(report.read_text())
    assert (found["target"], found["dialect"], found["verification"]["status"]) == ("acme-npu", "acme", "passed")
    assert (found["runtime"], found["runs_in"]) == ("acme-firmware", "the firmware of the Acme NPU")
    mirrors = [each for each in found["ops"] if each["kind"] == "acme::Mirror"]
    assert [each["inputs"] for each in mirrors] == [["NCHW8c"]]  # the pass has cancelled two of three
    assert "acme-npu" in inspected[0]
    assert "NCHW8c NCHW8c8n → NCHW8c" in " ".join(inspected[1].split())


def test_the_commands_of_the_documentation(run: Run, model: Path, library: Path, halved: Path) -> None:
    """The commands run in the order of the page, except `pip install`, which the fixture has run."""
    page = (CHECKOUT / "docs/extending.md").read_text()
    commands = [line.split() for block in _SHELL.findall(page) for line in block.splitlines()]
    assert commands.pop(0) == ["pip", "install", "./examples/plugin"]
    files = {"net.onnx": model, "halved.onnx": halved, "kernels.so": library}
    assert {name for name, *_ in commands} == {"layoutopt", "pytest"}
    own = [[str(files.get(each, each)) for each in arguments] for name, *arguments in commands if name == "layoutopt"]
    commands_in_turn(run, own, where=model.parent)
    for arguments in (arguments for name, *arguments in commands if name == "pytest"):
        run("-B", "-m", "pytest", "-p", "no:cacheprovider", *arguments, where=CHECKOUT)
    assert (model.parent / "out.onnx").exists() and (model.parent / "halved_out.onnx").exists()
    assert len(own) > 10


def test_a_broken_package_is_named(run: Run, model: Path) -> None:
    """The error names the package if a module of it cannot be imported."""
    broken = model.parent / "broken"
    shutil.copytree(PLUGIN / "acme_npu", broken / "acme_npu", ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "acme_npu/cancel_mirrors.py").write_text("import no_such_library\n")
    script = (
        f"import sys; sys.path.insert(0, {str(broken)!r}); from layoutopt.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    output = run("-c", script, "optimize", model, "--dry-run", "-t", "gpu-hopper", code=12)
    assert output.count("\n") == 1
    assert "package acme-npu: entry point cancel-mirrors = acme_npu.cancel_mirrors:CancelMirrors" in output
    assert "ModuleNotFoundError: No module named 'no_such_library'" in output


def test_each_extension_is_small() -> None:
    files = [path for path in (PLUGIN / "acme_npu").iterdir() if path.suffix in (".py", ".toml")]
    assert all(len(path.read_text().splitlines()) <= 40 for path in files)


# --- libraries of kernels --------------------------------------------------------------------------------


def test_the_library_folds_and_verifies(halved: Path, library: Path) -> None:
    with pytest.raises(layoutopt.UnverifiedError, match="Halve"):
        layoutopt.optimize(halved, "gpu-hopper", runtime="compiler")
    result = layoutopt.optimize(halved, "gpu-hopper", runtime="compiler", custom_ops=[library])
    assert result.report.verification.status == "passed"
    assert [op.kind for op in result.report.ops].count("test.kernels::Halve") == 1  # that of the constant is folded
    assert registered_libraries() == ()


def test_every_command_that_makes_sessions(halved: Path, library: Path, tmp_path: Path, cli: Cli) -> None:
    out, given = tmp_path / "out.onnx", ("--custom-ops", str(library))
    refused = cli("optimize", str(halved), "-o", str(out), "-t", "gpu-hopper", "--runtime", "compiler")
    assert refused.code == layoutopt.UnverifiedError.exit_code
    written = cli("optimize", str(halved), "-o", str(out), "-t", "gpu-hopper", "--runtime", "compiler", *given)
    assert written.code == 0, written.err
    assert cli("verify", str(halved), str(out)).code == 9
    assert cli("verify", str(halved), str(out), *given).code == 0
    assert cli("check", str(halved)).code == 10
    assert cli("check", str(halved), *given).code == 0
    assert cli("inspect", str(halved), "-t", "gpu-hopper", "--runtime", "compiler", *given).code == 0
    timed = cli("bench", str(out), "--seconds", "0.01", *given)
    assert timed.code == 0, timed.err


@pytest.mark.parametrize(("content", "expected"), [(None, "no such library"), (b"no library", "cannot be loaded")])
def test_a_library_that_cannot_be_loaded(
    halved: Path, tmp_path: Path, cli: Cli, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "kernels.so"
    if content is not None:
        path.write_bytes(content)
    run = cli("optimize", str(halved), "--dry-run", "--custom-ops", str(path))
    assert run.code == ExtensionError.exit_code
    assert_one_line(run.err)
    assert str(path) in run.err and expected in run.err
    with pytest.raises(ExtensionError, match=expected):
        layoutopt.optimize(halved, custom_ops=path)


def test_blocks_add_their_libraries(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    shutil.copyfile(library, other)
    with kernel_libraries(library), kernel_libraries([other, library]):
        assert registered_libraries() == (str(library.resolve()), str(other.resolve()))
    assert registered_libraries() == ()
