"""Clusters: worker processes of this machine (joblib's loky), a Dask cluster or a Ray cluster, behind one interface.

    with open_cluster("dask://scheduler:8786") as cluster:
        for index, outcome in cluster.map_unordered(function, items):
            ...

A cluster submits a task and returns a future of `concurrent.futures`. Functions, items and results are pickled; cloudpickle
also takes functions of a script or a notebook. Dask and Ray schedule, restart and stop their workers by themselves; their
libraries are installed by the extras `layoutopt[dask]` and `layoutopt[ray]`.
"""

import logging
import os
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor

from layoutopt.errors import ArgumentError, LayoutoptError
from layoutopt.files import scratch_folder
from layoutopt.record import Record
from layoutopt.registry import library

Item = TypeVar("Item")
Value = TypeVar("Value")

_LOCAL = "local"  # the host of a cluster that is started on this machine
_HINT = "give dask://HOST:PORT, ray://HOST:PORT, ray://auto, dask://local or ray://local"
_URL = re.compile(
    r"(dask|ray)://(?P<address>((?P<name>local|(?<=ray://)auto)|[\w.-]+|\[[0-9a-f:]+\])(:(?P<port>\d+))?)/?"
)
_MAX_ATTEMPTS = 2
_POLL = 0.2  # seconds
_START_POLL = 0.001  # seconds
_TIMEOUT = 10  # seconds until the scheduler of Dask must have answered
_EXIT_CODES = re.compile(r"\{(.+?)\}")


class Failure(Record):
    """The outcome of a task that has no result.

    Attributes:
        reason: the cause in one line.
        is_worker_lost: whether worker processes ended while they ran the task, so that the function raised no exception.
        traceback: the traceback of the exception as text; empty without one.
    """

    reason: str
    is_worker_lost: bool = False
    traceback: str = ""


class Cluster(Record):
    """Worker processes that run the tasks of one batch.

    Attributes:
        submit: starts a function of one argument.
        cancel: cancels tasks, also those that run.
        lost: the exceptions of a task whose worker processes ended.
    """

    submit: Callable[[Callable[[Any], Any], Any], "Future[Any]"]
    cancel: Callable[[Collection["Future[Any]"]], None]
    lost: tuple[type[BaseException], ...]

    def map_unordered(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Generator[tuple[int, Value | Failure], None, None]:
        """The outcome of `function(item)` for each item, with the index of the item, in the order in which the tasks end.

        An exception of the function is a `Failure`. If a worker process ends while it runs a task, the task is run once more
        in another one; a second end is a `Failure`. A Dask scheduler has its own limit, `allowed-failures`, by default three
        more. Closing the iterator cancels the tasks that have not ended.
        """
        running = {self.submit(function, item): index for index, item in enumerate(items)}
        try:
            for future in as_completed(list(running)):
                yield running.pop(future), self._outcome(future)
        finally:
            if running:
                self.cancel(running)

    def _outcome(self, future: "Future[Any]") -> Any:
        """The result of a task that has ended, or its failure."""
        if future.cancelled():
            return Failure("the task was cancelled in the cluster")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, self.lost):
            codes = _EXIT_CODES.search(str(error))
            code = f" ({codes[1]})" if codes is not None else ""
            return Failure(f"its worker processes ended unexpectedly{code}", is_worker_lost=True)
        cause = getattr(error, "cause", error)  # of Ray's exceptions
        return Failure(f"{type(cause).__name__}: {cause}", traceback="".join(traceback.format_exception(error)))


def open_cluster(url: str | None, jobs: int | None) -> AbstractContextManager[Cluster]:
    """A context with a cluster, whose workers are stopped or released at its end; entering it connects to a running one.

    Args:
        url: `dask://HOST:PORT` or `ray://HOST:PORT` for a running cluster, `ray://auto` for the one that Ray finds,
            `dask://local` or `ray://local` for a new one on this machine; None for worker processes of this machine. A script
            that starts `dask://local` needs `if __name__ == "__main__"`, since the workers import it.
        jobs: the number of worker processes on this machine; None for one per CPU core. A running cluster has its own number.

    Raises:
        ArgumentError: the URL or the number of jobs is wrong.
        LayoutoptError: the library is not installed, or the cluster cannot be reached; from entering the context.
    """
    if jobs is not None and jobs < 1:
        raise ArgumentError("is not a number of worker processes", where=f"jobs={jobs}", hint="give 1 or more")
    if url is None:
        return _processes(jobs or joblib.cpu_count(only_physical_cores=True))
    match = _URL.fullmatch(url)
    if match is None or (match["port"] is None) != (match["name"] is not None):
        raise ArgumentError("is not the address of a cluster", where=url, hint=_HINT)
    if jobs is not None and match["name"] != _LOCAL:
        what = "a running cluster has its own number of workers"
        raise ArgumentError(what, where=f"jobs={jobs}", hint="leave jobs out")
    return (_dask if url.startswith("dask") else _ray)(match, jobs)


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Context in which an exception means that a cluster does not answer."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        hint = "check the address, and that it runs"
        raise LayoutoptError(f"cannot be reached: {reason}", where=url, hint=hint) from error


# --- Dask and Ray ------------------------------------------------------------------------------------------


@contextmanager
def _dask(url: re.Match[str], jobs: int | None) -> Iterator[Cluster]:
    distributed, dask = (library(name, "dask", url[0]) for name in ("distributed", "dask"))
    with ExitStack() as stack:
        cluster = f"tcp://{url['address']}"
        if url["name"] == _LOCAL:  # tasks that wait are not lost with the task before them
            stack.enter_context(dask.config.set({"distributed.scheduler.worker-saturation": 1.0}))
            workers = {"n_workers": jobs, "threads_per_worker": 1, "silence_logs": logging.CRITICAL}
            cluster = stack.enter_context(distributed.LocalCluster(dashboard_address=":0", **workers))
        with _reaching(url[0]):
            client = stack.enter_context(distributed.Client(cluster, timeout=_TIMEOUT, set_as_default=False))
        yield Cluster(client.get_executor(pure=False).submit, _cancel, (distributed.KilledWorker,))


def _cancel(futures: Collection["Future[Any]"]) -> None:
    for each in futures:
        each.cancel()


@contextmanager
def _ray(url: re.Match[str], jobs: int | None) -> Iterator[Cluster]:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks without a GPU keep its variables
    ray = library("ray", "ray", url[0])
    where = url["name"] or url[0]
    new = {"num_cpus": jobs, "include_dashboard": False} if where == _LOCAL else {}
    errors = ray.exceptions
    lost = errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError
    run = ray.remote(_call)

    def submit(function: Callable[[Any], Any], item: Any) -> "Future[Any]":
        future: Future[Any] = run.options(num_cpus=1, max_retries=_MAX_ATTEMPTS - 1).remote(function, item).future()
        return future

    def cancel(futures: Collection[Any]) -> None:
        for each in futures:
            ray.cancel(each.object_ref, force=True)

    with _reaching(url[0]):
        ray.init(address=where, log_to_driver=False, logging_level="error", **new)
    try:
        yield Cluster(submit, cancel, lost)
    finally:
        ray.shutdown()


def _call(function: Callable[[Item], Value], item: Item) -> Value:
    return function(item)


# --- processes of this machine -----------------------------------------------------------------------------


@contextmanager
def _processes(number: int) -> Iterator[Cluster]:
    """Worker processes of this machine, which need no `if __name__ == "__main__"` in a script.

    Each worker has an executor of its own and a thread that waits for it. An executor of several processes, and so
    joblib.Parallel, fails all running tasks when one process is killed, so that the task which was the cause is unknown.
    Workers are ended by SIGKILL; their temporary files are in one folder, which is removed.
    """
    with scratch_folder() as folder, ThreadPoolExecutor(number) as threads:
        workers = [_Worker(folder, cpus) for cpus in _shares(number)]
        waiting, own = iter(workers), threading.local()

        def run(function: Callable[[Any], Any], item: Any) -> Any:
            if not hasattr(own, "worker"):
                own.worker = next(waiting)
            return own.worker.run(function, item)

        def end(futures: Collection["Future[Any]"] = ()) -> None:
            _cancel(futures)
            for each in workers:
                each.end()

        try:
            yield Cluster(lambda function, item: threads.submit(run, function, item), end, (BrokenProcessPool,))
        finally:
            end()


class _Worker:
    """One worker process, which starts with its first task, and again after it was killed.

    Args:
        folder: the temporary folder of the process.
        cpus: the CPUs that it may use; empty for all.
    """

    def __init__(self, folder: Path, cpus: frozenset[int]) -> None:
        self._arguments = os.getpid(), folder, cpus
        self._lock = threading.Lock()
        self._is_over = False
        self._executor: Any = None
        self._future: Future[Any] = Future()
        self._future.cancel()  # done: the first task may fail to be submitted

    def run(self, function: Callable[[Item], Value], item: Item) -> Value:
        """The value of a function, which is called once more if the process ends meanwhile, or has ended before.

        Raises:
            BrokenProcessPool: it has ended in every attempt.
            CancelledError: the worker is at its end.
        """
        for is_last in (False, True):
            try:
                return self._submit(function, item).result()
            except BrokenProcessPool:
                self._stop()
                if is_last:
                    raise
        raise AssertionError

    def _submit(self, function: Callable[[Item], Value], item: Item) -> "Future[Value]":
        with self._lock:
            if self._is_over:
                raise CancelledError
            if self._executor is None:
                self._executor = ProcessPoolExecutor(1, initializer=_prepare, initargs=self._arguments)
            self._future = self._executor.submit(function, item)
            return self._future

    def _stop(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            while not (self._future.running() or self._future.done()):
                time.sleep(_START_POLL)  # a thread of loky raises KeyError if the process ends before its task is sent
            executor.shutdown(wait=True, kill_workers=True)

    def end(self) -> None:
        """End the process for good."""
        self._is_over = True
        self._stop()


def _prepare(parent: int, folder: Path, cpus: Collection[int]) -> None:
    """Prepare this process for tasks: only the parent handles Ctrl-C, and the process ends with it, even if it is killed.

    Args:
        parent: the id of the process that started this one.
        folder: the temporary folder of this process.
        cpus: the CPUs of this process, so that two workers do not measure times on one CPU; empty for all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = str(folder)
    if cpus:
        os.sched_setaffinity(0, cpus)
    if os.name == "posix":
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)


def _shares(number: int) -> list[frozenset[int]]:
    """The CPUs of each of a number of workers; empty sets if there are more workers than CPUs, or no affinities."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    size = len(cpus) // number
    return [frozenset(cpus[size * each : size * (each + 1)]) for each in range(number)]
