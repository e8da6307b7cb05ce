"""The estimated time of a run: the sum of the times of its kernels, each timed alone on this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layoutopt.kernel_times.executed import ExecutedKernel, executed_kernels
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.timed_kernels import time_kernels
from layoutopt.timing.interleaved import pinned
from layoutopt.verification.runnable import Runnable


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """An executed kernel with its time.

    Attributes:
        kernel: the kernel.
        seconds: its time alone; its time in the traced run if it cannot run alone.
        is_alone: whether it was timed alone.
    """

    kernel: ExecutedKernel
    seconds: float
    is_alone: bool


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The estimated time of a run.

    Attributes:
        kernels: the executed kernels.
    """

    kernels: Sequence[TimedKernel]

    @property
    def seconds(self) -> float:
        """The sum of the times."""
        return sum(each.seconds for each in self.kernels)


def estimate_run(
    model: Runnable,
    feed: Mapping[str, Any],
    store: KernelStore,
    progress: Callable[[str], None] = lambda step: None,
) -> RunEstimate:
    """The estimated time of a run of a model in stock onnxruntime at its default level.

    Kernels that the store does not have are timed, and added to it.

    Args:
        model: the model.
        feed: its inputs, which determine the sizes.
        store: the times of kernels on this machine, for a number of threads.
        progress: called with the number of kernels to time.
    """
    threads = store.machine.threads
    kernels = executed_kernels(model, feed, threads)
    models = {each.model.key: each.model for each in kernels if each.model is not None}
    missing = [each for key, each in models.items() if store.get(key) is None]
    if missing:
        progress(f"timing {len(missing)} kernels")
        with pinned(threads):
            timed = [(each.key, seconds) for each, seconds in time_kernels(missing, threads)]
        store.add(dict(timed))
    return RunEstimate([_timed(each, store) for each in kernels])


def _timed(kernel: ExecutedKernel, store: KernelStore) -> TimedKernel:
    found = store.get(kernel.model.key) if kernel.model is not None else None
    seconds = None if found is None else found.seconds
    return TimedKernel(kernel, kernel.traced if seconds is None else seconds, seconds is not None)


__all__ = ["RunEstimate", "TimedKernel", "estimate_run"]
