"""SIGKILL at any moment: a model on the disk is the old or the new one, and the next run removes temporary files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from command_line import convolutions, files
from onnx import numpy_helper

from layoutopt.files.staging import temporary_name

REMAINS = re.compile(r"\.?layoutopt-[0-9a-f]{8}-[0-9]+-[0-9a-f]{8}(\.tmp)?")


def saved(folder: Path) -> None:
    """A model in place, whose weights a sibling shares."""
    model = convolutions()
    wide = np.random.default_rng(1).normal(size=(32, 16, 3, 3)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(wide, "w0"))
    (folder / "w.bin").unlink(missing_ok=True)  # onnx appends to it
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "sibling.onnx").write_bytes((folder / "m.onnx").read_bytes())


def optimize(folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "tmp").mkdir(exist_ok=True)
    options = ("-o", "m.onnx", "--external-data", "w.bin", "--json", "r.json", "-q", "-t", "cpu")
    return subprocess.Popen(
        [sys.executable, "-m", "layoutopt", "optimize", "m.onnx", *options],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
    )


def test_the_remains_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """A run removes the files and the temporary folder of a process that was killed while it wrote."""
    script = """
import os, signal, sys
from pathlib import Path
from layoutopt.files import Staging, scratch_folder
with scratch_folder() as folder, Staging(Path.cwd()) as staging:
    (folder / "model.onnx").touch()
    staging.open().write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, timeout=60)
    assert killed.returncode < 0
    assert len(files(tmp_path)) == 2
    saved(tmp_path)
    foreign = tmp_path / temporary_name().replace("layoutopt", "other")
    foreign.touch()
    assert optimize(tmp_path).wait() == 0
    assert not [path for path in tmp_path.rglob("*") if REMAINS.fullmatch(path.name)] and foreign.exists()
