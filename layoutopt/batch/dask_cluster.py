"""Tasks in a Dask cluster. The library `distributed` is installed by the extra `layoutopt[dask]`."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult

from layoutopt.batch.cluster import LOCAL, Failure, Item, Value, missing_library, unreachable

try:
    import dask
    import distributed
except ModuleNotFoundError as error:
    if error.name not in ("dask", "distributed"):
        raise
    raise missing_library("distributed", "dask") from error

_TIMEOUT = 10  # seconds until the scheduler must have answered
_SETTINGS = {"distributed.scheduler.worker-saturation": 1.0}  # tasks that wait are not lost with the task before them


class DaskCluster:
    """A Dask cluster.

    Args:
        address: `dask://HOST:PORT`, or `dask://local` for a new cluster on this machine: a script that starts one
            needs `if __name__ == "__main__"`, since its workers import the script.
        jobs: the number of workers of a new cluster; None for one per CPU core.
    """

    def __init__(self, address: SplitResult, jobs: int | None) -> None:
        self._address = address
        self._jobs = jobs
        self._resources = ExitStack()
        self._client: Any = None

    def __enter__(self) -> "DaskCluster":
        """Start a local cluster, or connect to the scheduler.

        Raises:
            LayoutoptError: the scheduler does not answer.
        """
        with ExitStack() as stack:
            enter = stack.enter_context
            if self._address.hostname == LOCAL:
                enter(dask.config.set(_SETTINGS))
                workers = {"n_workers": self._jobs, "threads_per_worker": 1, "silence_logs": logging.CRITICAL}
                cluster = enter(distributed.LocalCluster(dashboard_address=":0", **workers))
            else:
                cluster = f"tcp://{self._address.netloc}"
            try:
                self._client = enter(distributed.Client(cluster, timeout=_TIMEOUT, set_as_default=False))
            except OSError as error:
                raise unreachable(self._address, error) from error
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the tasks, and stop a local cluster."""
        self._resources.close()

    @property
    def num_workers(self) -> int:
        """The number of threads of all workers."""
        return sum(self._client.nthreads().values())

    def map_unordered(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Generator[tuple[int, Value | Failure], None, None]:
        """The outcome of each task, with the index of its item, in the order in which the tasks end."""
        futures = self._client.map(function, list(items), pure=False, batch_size=None)
        indices = {future.key: index for index, future in enumerate(futures)}
        try:
            for future in distributed.as_completed(futures, loop=self._client.loop):
                index = indices[future.key]
                outcome = _outcome(future)
                future.release()
                yield index, outcome
        finally:
            self._client.cancel(futures)


def _outcome(future: Any) -> Any:
    """The result of a task that has ended, or its failure."""
    if future.status == "finished":
        return future.result()
    if future.status == "cancelled":
        return Failure("the task was cancelled in the cluster")
    error = future.exception()
    if isinstance(error, distributed.KilledWorker):
        return Failure("its worker processes ended unexpectedly", is_worker_lost=True)
    return Failure(f"{type(error).__name__}: {error}")


__all__ = ["DaskCluster"]
