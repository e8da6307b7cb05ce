"""The interface of clusters: worker processes of this machine (joblib), a Dask cluster or a Ray cluster.

    with open_cluster("dask://scheduler:8786") as cluster:
        for index, outcome in cluster.map_unordered(function, items):
            ...

Functions, items and results are pickled; cloudpickle also takes functions of a script or a notebook. Each library schedules,
restarts and stops its own workers.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from layoutopt.errors import ArgumentError, LayoutoptError

Item = TypeVar("Item")
Value = TypeVar("Value")

SCHEMES = ("dask", "ray")
LOCAL = "local"
"""The host of a cluster that is started on this machine, as in `dask://local`."""
_HINT = "give dask://HOST:PORT, ray://HOST:PORT, ray://auto, dask://local or ray://local"


@dataclass(frozen=True, slots=True)
class Failure:
    """The outcome of a task that has no result.

    Attributes:
        reason: the cause in one line.
        is_worker_lost: whether worker processes ended while they ran the task, so that the function raised no exception.
        traceback: the traceback of the exception as text; empty without one.
    """

    reason: str
    is_worker_lost: bool = False
    traceback: str = ""


class Cluster(Protocol):
    """Worker processes that run tasks."""

    @property
    def num_workers(self) -> int:
        """The number of tasks that run at the same time."""
        ...

    def map_unordered(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Generator[tuple[int, Value | Failure], None, None]:
        """The outcome of `function(item)` for each item, with the index of the item, in the order in which the tasks end.

        An exception of the function is a `Failure`. If a worker process ends while it runs a task, the task is run once more
        in another one; a second end is a `Failure`. A Dask scheduler has its own limit, `allowed-failures`, by default three
        more. Closing the iterator cancels the tasks that have not ended.
        """
        ...


def open_cluster(url: str | None, jobs: int | None) -> AbstractContextManager[Cluster]:
    """A context with a cluster, whose workers are stopped or released at its end.

    Args:
        url: `dask://HOST:PORT` or `ray://HOST:PORT` for a running cluster, `ray://auto` for the one that Ray finds,
            `dask://local` or `ray://local` for a new one on this machine; None for worker processes of this machine.
        jobs: the number of worker processes on this machine; None for one per CPU core. A running cluster has its own number.

    Raises:
        ArgumentError: the URL or the number of jobs is wrong.
        LayoutoptError: the library is not installed, or the cluster cannot be reached.
    """
    if jobs is not None and jobs < 1:
        raise ArgumentError("is not a number of worker processes", where=f"jobs={jobs}", hint="give 1 or more")
    if url is None:
        from layoutopt.batch.local_cluster import LocalCluster

        return LocalCluster(jobs)
    address = _parsed(url)
    if jobs is not None and address.hostname != LOCAL:
        what = "a running cluster has its own number of workers"
        raise ArgumentError(what, where=f"jobs={jobs}", hint="leave jobs out")
    if address.scheme == "dask":
        from layoutopt.batch.dask_cluster import DaskCluster

        return DaskCluster(address, jobs)
    from layoutopt.batch.ray_cluster import RayCluster

    return RayCluster(address, jobs)


def _parsed(url: str) -> SplitResult:
    """The parts of the URL of a cluster.

    Raises:
        ArgumentError: it is not one.
    """
    try:
        address = urlsplit(url)
        port = address.port
    except ValueError:
        raise ArgumentError("is not the address of a cluster", where=url, hint=_HINT) from None
    named = {"dask": (LOCAL,), "ray": (LOCAL, "auto")}.get(address.scheme)
    has_address = bool(address.hostname) and (port is not None) != (address.hostname in (named or ()))
    if named is None or not has_address or address.path not in ("", "/") or address.query or address.fragment:
        raise ArgumentError("is not the address of a cluster", where=url, hint=_HINT)
    return address


def missing_library(name: str, extra: str) -> LayoutoptError:
    """The error about a library of an extra that is not installed."""
    hint = f"install it with: pip install 'layoutopt[{extra}]'"
    return LayoutoptError(f"this cluster needs the package {name}", where=f"{extra}://", hint=hint)


def unreachable(url: SplitResult, error: BaseException) -> LayoutoptError:
    """The error about a cluster that does not answer."""
    reason = (str(error) or type(error).__name__).splitlines()[0][:200]
    return LayoutoptError(
        f"cannot be reached: {reason}", where=url.geturl(), hint="check the address, and that it runs"
    )


__all__ = ["Cluster", "Failure", "open_cluster"]
