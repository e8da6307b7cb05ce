"""Tasks in a Ray cluster. The library `ray` is installed by the extra `layoutopt[ray]`."""

import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, redirect_stdout
from types import TracebackType
from typing import Any, TextIO, cast
from urllib.parse import SplitResult

from layoutopt.batch.cluster import LOCAL, Failure, Item, Value, missing_library, unreachable

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks without a GPU: their variables stay unchanged
os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # or messages are collected and printed at the end of the process

try:
    import ray
    import ray.exceptions
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise missing_library("ray", "ray") from error

_RETRIES = 1  # of a task whose worker ended


class RayCluster:
    """A Ray cluster.

    Args:
        address: `ray://HOST:PORT`, `ray://auto` for the cluster that Ray finds, or `ray://local` for a new one on this machine.
        jobs: the number of CPUs of a new cluster; None for all.
    """

    def __init__(self, address: SplitResult, jobs: int | None) -> None:
        self._address = address
        self._jobs = jobs
        self._resources = ExitStack()

    def __enter__(self) -> "RayCluster":
        """Start a local cluster, or connect to a running one.

        Raises:
            LayoutoptError: the cluster cannot be reached.
        """
        host = self._address.hostname
        where = {LOCAL: "local", "auto": "auto"}.get(host or "", self._address.geturl())
        new = {"num_cpus": self._jobs, "include_dashboard": False} if host == LOCAL else {}
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(cast(TextIO, _StdoutOfThisThread())))
            try:
                ray.init(address=where, log_to_driver=False, logging_level="error", **new)
            except (OSError, RuntimeError, ValueError) as error:
                raise unreachable(self._address, error) from error
            stack.callback(_shut_down)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect, and stop a local cluster."""
        self._resources.close()

    @property
    def num_workers(self) -> int:
        """The number of CPUs of all nodes."""
        return int(ray.cluster_resources().get("CPU", 0))

    def map_unordered(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Generator[tuple[int, Value | Failure], None, None]:
        """The outcome of each task, with the index of its item, in the order in which the tasks end."""
        run, shared = ray.remote(_call).options(num_cpus=1, max_retries=_RETRIES), ray.put(function)
        running = {run.remote(shared, item): index for index, item in enumerate(items)}
        try:
            while running:
                (ended,), _ = ray.wait(list(running))
                yield running.pop(ended), _outcome(ended)
        finally:
            for each in running:
                ray.cancel(each, force=True)


def _shut_down() -> None:
    """Disconnect; messages that Ray has collected go to stderr."""
    with redirect_stdout(sys.stderr):
        ray.shutdown()


class _StdoutOfThisThread:
    """Stdout for the thread that creates the object, and stderr for others, in which Ray reports workers that are lost."""

    def __init__(self) -> None:
        self._thread, self._stdout = threading.get_ident(), sys.stdout

    def __getattr__(self, name: str) -> Any:
        """The attribute of the stream of the calling thread."""
        return getattr(self._stdout if threading.get_ident() == self._thread else sys.stderr, name)


def _call(function: Callable[[Item], Value], item: Item) -> Value:
    return function(item)


def _outcome(task: Any) -> Any:
    """The result of a task that has ended, or its failure."""
    try:
        return ray.get(task)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
        return Failure("its worker processes ended unexpectedly", is_worker_lost=True)
    except ray.exceptions.RayTaskError as error:
        return Failure(f"{type(error.cause).__name__}: {error.cause}", traceback=str(error))
    except ray.exceptions.RayError as error:
        return Failure(f"{type(error).__name__}: {str(error).splitlines()[0]}")


__all__ = ["RayCluster"]
