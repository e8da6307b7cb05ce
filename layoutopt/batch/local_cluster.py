"""Worker processes of this machine: loky processes of joblib, which need no `if __name__ == "__main__"` in a script.

Each worker has an executor of its own. An executor of several processes, and so joblib.Parallel, fails all running tasks when
one process is killed, so that the task which was the cause is unknown.

A worker is ended by SIGKILL. Its temporary files in the temporary folder are removed with the cluster's own folder there.
"""

import os
import re
import signal
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import joblib
from joblib.externals.loky import ProcessPoolExecutor

from layoutopt.batch.cluster import Failure, Item, Value
from layoutopt.batch.deferred_interrupt import deferred_interrupt
from layoutopt.files import scratch_folder

_MAX_ATTEMPTS = 2
_POLL = 0.2  # seconds
_EXIT_CODES = re.compile(r"\{(.*?)\}")


class LocalCluster:
    """Worker processes of this machine.

    Args:
        jobs: the number of worker processes; None for one per CPU core that this process may use.

    Attributes:
        num_workers: the number of worker processes.
    """

    def __init__(self, jobs: int | None) -> None:
        self.num_workers: int = jobs or joblib.cpu_count(only_physical_cores=True)
        self._resources = ExitStack()
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalCluster":
        """Divide the CPUs among the workers; a process is started with its first task."""
        folder = self._resources.enter_context(scratch_folder())
        self._workers = [_Worker(folder, cpus) for cpus in _shares(self.num_workers)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        with self._resources:
            for worker in self._workers:
                worker.end()

    def map_unordered(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Generator[tuple[int, Value | Failure], None, None]:
        """The outcome of each task, with the index of its item, in the order in which the tasks end."""
        waiting = deque(_Task(index) for index in range(len(items)))
        running: dict[Future[Value], tuple[_Worker, _Task]] = {}
        idle = list(reversed(self._workers))
        try:
            while waiting or running:
                while waiting and idle:
                    with deferred_interrupt():  # an executor that ends while a task is submitted prints an exception
                        worker, task = idle.pop(), waiting.popleft()
                        running[worker.submit(function, items[task.index])] = worker, task
                outcomes: list[tuple[int, Value | Failure]] = []
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    worker, task = running.pop(future)
                    idle.append(worker)
                    if isinstance(future.exception(), BrokenProcessPool) and task.attempt < _MAX_ATTEMPTS:
                        waiting.appendleft(_Task(task.index, task.attempt + 1))
                    else:
                        outcomes.append((task.index, _outcome(future)))
                yield from outcomes
        finally:
            if len(idle) < len(self._workers):
                for worker in self._workers:
                    worker.end()


@dataclass(frozen=True, slots=True)
class _Task:
    """The index of an item, and the number of its attempt, from 1."""

    index: int
    attempt: int = 1


class _Worker:
    """One worker process, which is started again after it was killed.

    Args:
        folder: the temporary folder of the process.
        cpus: the CPUs that it may use; empty for all.
    """

    def __init__(self, folder: Path, cpus: frozenset[int]) -> None:
        self._folder = folder
        self._cpus = cpus
        self._executor: Any = None

    def submit(self, function: Callable[[Item], Value], item: Item) -> Future[Value]:
        """Start a task."""
        if self._executor is not None:
            try:
                return self._submit(function, item)
            except BrokenProcessPool:  # the process was killed
                self.end()
        arguments = os.getpid(), self._folder, self._cpus
        self._executor = ProcessPoolExecutor(max_workers=1, initializer=_prepare, initargs=arguments)
        return self._submit(function, item)

    def _submit(self, function: Callable[[Item], Value], item: Item) -> Future[Value]:
        future: Future[Value] = self._executor.submit(function, item)
        return future

    def end(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


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


def _outcome(future: Future[Any]) -> Any:
    """The result of a task that has ended, or its failure."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, BrokenProcessPool):
        codes = _EXIT_CODES.search(str(error))
        code = f" ({codes[1]})" if codes is not None and codes[1] else ""
        return Failure(f"its worker process was killed {_MAX_ATTEMPTS} times{code}", is_worker_lost=True)
    return Failure(f"{type(error).__name__}: {error}", traceback="".join(traceback.format_exception(error)))


def _shares(number: int) -> list[frozenset[int]]:
    """The CPUs of each of a number of workers; empty sets if there are more workers than CPUs, or no affinities."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    size = len(cpus) // number
    return [frozenset(cpus[size * each : size * (each + 1)]) for each in range(number)]


__all__ = ["LocalCluster"]
