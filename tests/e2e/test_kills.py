"""SIGKILL at any moment: a model on the disk is the old or the new one, and the next run removes temporary files."""

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import convolutions, files
from onnx import helper, numpy_helper

from layoutopt.cli import main
from layoutopt.files.staging import temporary_name
from layoutopt.onnx_io import from_message, write
from layoutopt.runtime.session import Session

KILLS = 300  # of a process that renews a model again and again, in the thorough tier
KILLED_COMMANDS = 40
REMAINS = re.compile(r"\.?layoutopt-[0-9a-f]{8}-[0-9]+-[0-9a-f]{8}(\.tmp)?")
SIZE = 1 << 17


def model_of(number: int) -> onnx.ModelProto:
    """y = x * a + b, where both weights are filled with a number."""
    weights = [numpy_helper.from_array(np.full(SIZE, number, np.float32), name) for name in ("a", "b")]
    ends = [[helper.make_tensor_value_info(name, 1, [SIZE])] for name in ("x", "y")]
    nodes = [helper.make_node("Mul", ["x", "a"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def renew(first: int, done: Path) -> None:
    """Rewrite m.onnx with consecutive numbers, and record each finished number."""
    for number in itertools.count(first):
        write(from_message(model_of(number)), "m.onnx", "w.bin")
        done.write_text(f"{number:09}")


def killed_after(seconds: float, action: Callable[[], object]) -> None:
    """Run an action in a child that is killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kill_renewals(folder: Path) -> None:
    """Kill renewals of a model at random times, in a process without threads; the body of the first test."""
    os.chdir(folder)
    generator = random.Random(0)
    done = folder / "done"
    moments = set()
    write(from_message(model_of(0)), "m.onnx", "w.bin")
    done.write_text("0")
    for _ in range(KILLS):
        number = int(done.read_text() or 0)
        killed_after(generator.random() * 0.1, partial(renew, number + 1, done))
        moments.add(sum(name.endswith(".tmp") for name in os.listdir(folder)))
        (computed,) = Session(folder / "m.onnx", threads=1).run(None, {"x": np.ones(SIZE, np.float32)})
        found = {*(computed / 2).tolist()}
        noted = int(done.read_text() or number)
        assert len(found) == 1 and found <= {float(noted), float(noted + 1)}, (found, noted)
        done.write_text(str(int(found.pop())))
    assert max(moments) > 0  # some were killed while they wrote
    write(from_message(model_of(0)), "m.onnx", "w.bin")
    assert not [name for name in os.listdir(folder) if REMAINS.fullmatch(name)]


def kill_commands(folder: Path) -> None:
    """Kill commands at random times; the body of the second test."""
    os.chdir(folder)
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    generator = random.Random(0)
    saved(folder)
    x = np.random.default_rng(0).normal(size=(1, 24, 24, 16)).astype(np.float32)
    expected = Session(folder / "m.onnx", threads=1).run(None, {"x": x})[0]
    command = [
        "optimize",
        "m.onnx",
        "-o",
        "m.onnx",
        "--external-data",
        "w.bin",
        "--json",
        "r.json",
        "-q",
        "-t",
        "cpu",
    ]
    begin = time.time()
    child = os.fork()
    if child == 0:
        os._exit(main(command))
    assert os.waitpid(child, 0)[1] == 0
    took = time.time() - begin
    for _ in range(KILLED_COMMANDS):
        saved(folder)
        killed_after(took * 1.1 * generator.random(), partial(main, command))
        for name in ("m.onnx", "sibling.onnx"):
            computed = Session(folder / name, threads=1).run(None, {"x": x})[0]
            assert np.allclose(computed, expected, atol=1e-3)


def in_process(tmp_path: Path, function: str) -> None:
    """Run one of the functions above in a process of its own, which forks."""
    script = f"from pathlib import Path; import test_kills; test_kills.{function}(Path({str(tmp_path)!r}))"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_a_killed_renewal_is_the_old_or_the_new_model(tmp_path: Path) -> None:
    in_process(tmp_path, "kill_renewals")


@pytest.mark.thorough
def test_killed_commands(tmp_path: Path) -> None:
    in_process(tmp_path, "kill_commands")
    assert optimize(tmp_path).wait() == 0
    assert not [path for path in tmp_path.rglob("*") if REMAINS.fullmatch(path.name)]


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
