"""Batches of 200 models in real worker processes, a real Dask cluster and a real Ray cluster, with processes that are killed.

Run with `pytest -m thorough tests/e2e/test_batches_of_clusters.py`, after `pip install 'layoutopt[dask,ray]'`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx
import psutil
import pytest
from command_line import PLANNED, convolutions, files

pytestmark = pytest.mark.thorough
COUNT = 200
FAST = (*PLANNED, "--no-verify", "-q")
CLUSTERS = {"joblib": ["--jobs", "2"], "dask": ["--cluster", "dask://local"], "ray": ["--cluster", "ray://local"]}
LIBRARIES = {"dask": "distributed", "ray": "ray"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 models, and the results of one process that optimises one after the other."""
    folder = tmp_path_factory.mktemp("batch")
    (folder / "m").mkdir()
    for number in range(COUNT):
        onnx.save(convolutions(number), folder / "m" / f"{number:03}.onnx")
    with started(folder, "-o", "alone", "--jobs", "0") as process:
        assert process.wait() == 0
    return folder


@contextmanager
def started(folder: Path, *arguments: str, out: int = subprocess.DEVNULL) -> Iterator[psutil.Popen]:
    """A run of the command, all of whose processes are ended at the end."""
    environment = {name: value for name, value in os.environ.items() if name != "LAYOUTOPT_JOBS"}
    with (folder / "stderr").open("w") as err:
        process = psutil.Popen(
            [sys.executable, "-m", "layoutopt", "m", *arguments, *FAST],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=err,
        )
    family = [process]
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            family += process.children(recursive=True)
        end(family)


def end(processes: list[psutil.Process]) -> None:
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(processes, 30)


def workers(process: psutil.Process) -> list[psutil.Process]:
    """The processes below a command that have loaded onnxruntime."""
    found = []
    for each in process.children(recursive=True):
        with suppress(psutil.Error, OSError):
            if "onnxruntime" in Path(f"/proc/{each.pid}/maps").read_text():
                found.append(each)
    return found


def wait_for(cache: Path, count: int, process: psutil.Process) -> None:
    """Wait until the cache has a number of entries."""
    while len(list(cache.glob("??/*"))) < count:
        assert process.poll() is None, "the command has ended"
        time.sleep(0.05)


@pytest.mark.parametrize("name", CLUSTERS)
def test_each_model_is_done_once_whatever_is_killed(models: Path, name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    cache, record = models / f"cache-{name}", models / f"{name}.jsonl"
    command = ("-o", name, "--cache", cache.name, "--json", record.name, *CLUSTERS[name])
    start = time.time()
    with started(models, *command) as process:
        wait_for(cache, 20, process)
        workers(process)[0].kill()
        wait_for(cache, 60, process)
        family = process.children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if name == "joblib":  # the others are ended by their clusters, or here
            assert not psutil.wait_procs(family, 30)[1]
        end(family)
    kept = {each.name for each in cache.glob("??/*")}
    assert 60 <= len(kept) < COUNT
    assert not list(models.rglob("*.tmp")) or name != "joblib"
    with started(models, *command) as process:
        assert process.wait() == 0
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert sorted(each["model"] for each in lines) == [f"m/{number:03}.onnx" for number in range(COUNT)]
    assert sum(each["cached"] for each in lines) == len(kept)
    assert len([*cache.glob("??/*")]) == COUNT
    assert files(models / name) == files(models / "alone")
    print(f"{name}: {len(kept)} models before the command was killed, {COUNT} after, {time.time() - start:.0f} s")


BOMB = """
import os, signal, sys

def kill(event, arguments):
    if event == "open" and str(arguments[0]).endswith("bomb.onnx"):
        os.kill(os.getpid(), signal.SIGKILL)

if "layoutopt" not in sys.orig_argv:  # a worker
    sys.addaudithook(kill)
"""


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_model_that_kills_its_workers_is_the_only_one_that_fails(
    models: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    folder = models / f"killed-{name}"
    (folder / "m").mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(BOMB)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    names = [f"{number:03}.onnx" for number in range(20)]
    for each in (*names, "bomb.onnx"):
        os.link(models / "m" / each.replace("bomb", "020"), folder / "m" / each)
    with started(folder, "-o", "out", "--json", "-", *CLUSTERS[name], out=subprocess.PIPE) as process:
        lines = [json.loads(line) for line in process.communicate()[0].splitlines()]
        assert process.returncode == 1
    assert [each["model"] for each in lines if "error" in each] == ["m/bomb.onnx"]
    alone = files(models / "alone")
    assert files(folder / "out") == {each: alone[each] for each in names}
