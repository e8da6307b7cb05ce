"""Worker processes of this machine: every task has exactly one outcome, also if a process is killed."""

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Timer
from time import monotonic, sleep

import pytest

from layoutopt.batch import Failure, open_cluster
from layoutopt.errors import ArgumentError, LayoutoptError


def _square(folder: Path, number: int) -> int:
    """The square; 3 kills its process always, 4 in the first attempt, 5 raises an exception. Every start leaves a file."""
    attempts = [folder / f"{number}-{each}" for each in range(3)]
    is_first = not attempts[0].exists()
    next(each for each in attempts if not each.exists()).touch()
    if number == 3 or (number == 4 and is_first):
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise ValueError("five")
    return number * number


def test_a_killed_process_ends_no_other_task_and_its_own_only_after_a_second_attempt(tmp_path):
    with open_cluster(None, 2) as cluster:
        outcomes = dict(cluster.map_unordered(partial(_square, tmp_path), range(8)))
    killed, raised = outcomes.pop(3), outcomes.pop(5)
    assert outcomes == {each: each * each for each in (0, 1, 2, 4, 6, 7)}
    assert isinstance(killed, Failure) and killed.is_worker_lost and "SIGKILL" in killed.reason
    assert isinstance(raised, Failure) and raised.reason == "ValueError: five" and "_square" in raised.traceback
    starts = sorted(int(each.name[0]) for each in tmp_path.iterdir())
    assert starts == [0, 1, 2, 3, 3, 4, 4, 5, 6, 7]


def _wait(folder: Path, seconds: float) -> None:
    with NamedTemporaryFile() as file:
        (folder / str(os.getpid())).write_text(file.name)
        sleep(seconds)


def _assert_ended(folder: Path) -> None:
    """The processes that have begun to wait have ended, and their temporary files are removed."""
    for each in folder.iterdir():
        assert not Path(each.read_text()).exists()
        with pytest.raises(ProcessLookupError):
            os.kill(int(each.name), 0)
        each.unlink()


def test_tasks_are_interrupted_when_the_iterator_is_closed(tmp_path):
    with open_cluster(None, 2) as cluster:
        with closing(cluster.map_unordered(partial(_wait, tmp_path), [0.0, 60.0, 60.0])) as outcomes:
            assert next(outcomes) == (0, None)
            while len(list(tmp_path.iterdir())) < 2:
                sleep(0.01)
        assert list(cluster.map_unordered(abs, [-1])) == [(0, 1)]
    _assert_ended(tmp_path)


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_ends_the_processes(tmp_path):
    with open_cluster(None, 1) as cluster:
        Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            list(cluster.map_unordered(partial(_wait, tmp_path), [300.0]))
        begin = monotonic()
        assert list(cluster.map_unordered(abs, [-1])) == [(0, 1)]
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
