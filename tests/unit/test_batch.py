"""Worker processes of this machine: their number by memory, and one outcome per task, also if a process is killed."""

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from unittest.mock import Mock

import pytest
from batch_tasks import square, wait
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.batch import Failure, clusters, open_cluster, run
from layoutopt.batch.run import default_jobs, estimated_bytes, is_timed
from layoutopt.errors import ArgumentError, LayoutoptError


@given(st.lists(st.integers(1, 100), min_size=2, max_size=20), st.integers(0, 2000), st.integers(1, 8))
def test_the_largest_needs_of_all_workers_are_available(needs: list[int], available: int, cpus: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "available_bytes", lambda: available)
        patch.setattr(run, "estimated_bytes", lambda model: int(model.name))
        patch.setattr("joblib.cpu_count", lambda **_: cpus)
        workers = run.default_jobs([Path(str(each)) for each in needs], is_timed=False)
    largest = sorted(needs, reverse=True)
    assert 1 <= workers <= max(1, min(cpus, len(needs)))
    assert workers == 1 or sum(largest[:workers]) <= available
    assert workers == min(cpus, len(needs)) or sum(largest[: workers + 1]) > available


def test_the_need_of_a_model_grows_with_its_weights(tmp_path: Path) -> None:
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * 1_000_000)
    assert estimated_bytes(large) >= estimated_bytes(small) + 1_000_000
    assert estimated_bytes(tmp_path / "missing.onnx") <= estimated_bytes(small)


def jobs(count: int, **options: object) -> int:
    timed = is_timed({"target": "gpu-hopper", "measure": True, "calibrate": True} | options)
    return default_jobs([Path("a.onnx")] * count, is_timed=timed)


def test_times_are_measured_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda **_: 4)
    monkeypatch.setattr("layoutopt.batch.run.available_bytes", lambda: 1 << 40)
    assert jobs(1) == 0
    assert jobs(8) == 4  # nothing runs on this machine
    assert jobs(3) == 3
    assert jobs(8, target="cpu-avx2") == 4  # LAYOUTOPT_NO_MEASURE is set
    monkeypatch.delenv("LAYOUTOPT_NO_MEASURE")
    assert jobs(8, target="cpu-avx2") == 1
    assert jobs(8, target="cpu-avx2", measure=False, calibrate=False) == 4
    monkeypatch.setattr("layoutopt.batch.run.available_bytes", lambda: 0)
    assert jobs(8) == 1


def test_a_killed_process_ends_no_other_task_and_its_own_only_after_a_second_attempt(tmp_path):
    with open_cluster(None, 2) as cluster:
        outcomes = dict(cluster.map_unordered(partial(square, tmp_path), range(8)))
    killed, raised = outcomes.pop(3), outcomes.pop(5)
    assert outcomes == {each: each * each for each in (0, 1, 2, 4, 6, 7)}
    assert isinstance(killed, Failure) and killed.is_worker_lost and "SIGKILL" in killed.reason
    assert isinstance(raised, Failure) and raised.reason == "ValueError: five" and "in square" in raised.traceback
    starts = sorted(int(each.name[0]) for each in tmp_path.iterdir())
    assert starts == [0, 1, 2, 3, 3, 4, 4, 5, 6, 7]


def test_a_process_that_cannot_be_started_is_a_failure(monkeypatch):
    monkeypatch.setattr(clusters.ProcessPoolExecutor, "submit", Mock(side_effect=OSError("no more processes")))
    with open_cluster(None, 1) as cluster:
        assert [each.reason for _, each in cluster.map_unordered(str, [0])] == ["OSError: no more processes"]


def _assert_ended(folder: Path) -> None:
    """The processes that have begun to wait have ended, and their temporary files are removed."""
    for each in folder.iterdir():
        assert not Path(each.read_text()).exists()
        with pytest.raises(ProcessLookupError):
            os.kill(int(each.name), 0)
        each.unlink()


def test_tasks_are_interrupted_when_the_iterator_is_closed(tmp_path):
    with (
        open_cluster(None, 2) as cluster,
        closing(cluster.map_unordered(partial(wait, tmp_path), [0.0, 60.0, 60.0])) as outcomes,
    ):
        assert next(outcomes) == (0, None)
        while len(list(tmp_path.iterdir())) < 2:
            sleep(0.01)
    _assert_ended(tmp_path)


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_ends_the_processes(tmp_path):
    begin = monotonic()
    with open_cluster(None, 1) as cluster:
        Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            list(cluster.map_unordered(partial(wait, tmp_path), [300.0]))
    assert monotonic() - begin < 250
    _assert_ended(tmp_path)


@pytest.mark.parametrize(
    "url", ["ftp://host:1", "dask://host", "dask://auto", "ray://auto:1", "dask://h:x", "dask://h:1/a?b"]
)
def test_a_wrong_address_is_refused(url):
    with pytest.raises(ArgumentError, match="is not the address of a cluster"):
        open_cluster(url, None)


def test_a_running_cluster_has_its_own_number_of_workers():
    with pytest.raises(ArgumentError, match="leave jobs out"):
        open_cluster("dask://host:8786", 2)


@pytest.mark.parametrize(("url", "library"), [("dask://local", "distributed"), ("ray://local", "ray")])
def test_a_missing_library_is_named(url, library, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with (
        pytest.raises(LayoutoptError, match=f"needs the package {library}; install it with: pip install 'layoutopt"),
        open_cluster(url, None),
    ):
        pass
