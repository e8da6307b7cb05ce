"""onnxruntime's telemetry is off wherever layoutopt runs."""

import os
import subprocess
import sys
from pathlib import Path

import onnx

MODEL = '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


def run(tmp_path: Path, *arguments: str, **variables: str) -> list[str]:
    """The files that a Python process writes to its home and temporary folders."""
    folders = {name: tmp_path / name for name in ("HOME", "TMPDIR")}
    for folder in folders.values():
        folder.mkdir()
    silent = ("ORT_DISABLE_TELEMETRY", "CI", "GITHUB_ACTIONS", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    environment |= {name: str(folder) for name, folder in folders.items()} | variables
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [str(path.relative_to(tmp_path)) for folder in folders.values() for path in folder.rglob("*")]


def test_optimize_leaves_no_files(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    assert run(tmp_path, "-m", "layoutopt", "optimize", "m.onnx", "-o", "out.onnx", "-t", "cpu") == []


def test_a_choice_of_the_user_is_kept(tmp_path: Path) -> None:
    script = "import layoutopt, os; assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'"
    assert run(tmp_path, "-c", script, ORT_DISABLE_TELEMETRY="0") == []
