"""The kernel times that one run of the compiler uses: those that it has requested, within a budget of processor time.

A run requests kernels in an order that depends on the times of its earlier requests only, whatever else the store has. The
store keeps the first time of every kernel, with the processor time that timing it took, which counts against the budget of
every run that requests the kernel. So a second run makes the same requests, gets the same times, and its budget ends at the
same request: also if the first run was interrupted, if other models were optimised in between, or if the machine is busy.

Kernels are timed in batches, and stored as if the machine always had one speed. The speed of a shared machine varies by up to a
half within minutes. Each batch includes a reference kernel, and the times of a batch are multiplied by (first time of the
reference / its time in the batch).
"""

from collections.abc import Iterable, Sequence
from time import process_time

from layoutopt.ir.graph import Graph
from layoutopt.kernel_times.kernels import LoweredGraph
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.timer import REFERENCE, TimedModel, time_kernels

_BATCH = 32  # kernels
_CREATION_SHARE = 1 / 3  # of the time for a batch: two rounds take twice as long as the first runs of new sessions


class RequestedTimes:
    """The times of the kernels that one run has requested.

    Args:
        store: the times of kernels on a machine; new ones are added.
        max_seconds: the budget in seconds of the processor, for each thread of a session.

    Attributes:
        skipped: the keys of kernels that were requested when the budget was spent; they have no times.
        num_newly_timed: the number of kernels that got a time in this run.
    """

    def __init__(self, store: KernelStore, max_seconds: float) -> None:
        self.skipped: set[str] = set()
        self.num_newly_timed = 0
        self._store = store
        self._seconds: dict[str, float | None] = {}
        self._remaining = max_seconds * store.machine.threads

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent, so that no further kernel gets a time."""
        return self._remaining <= 0

    def get(self, key: str) -> float | None:
        """The time of a kernel; None if it was not requested, or has none."""
        return self._seconds.get(key)

    def of_graphs(self, graphs: Sequence[Graph]) -> list[float | None]:
        """Request the times of lowered graphs, the most important ones first; None for those without a time."""
        models = [LoweredGraph(each) for each in graphs]
        self.request(models)
        return [self.get(each.key) for each in models]

    def request(self, kernels: Iterable[TimedModel]) -> bool:
        """Request the times of kernels, the most important ones first, and return whether there were new requests."""
        pending = [each for each in {each.key: each for each in kernels}.values() if each.key not in self._seconds]
        for number, kernel in enumerate(pending):
            if self.is_spent:
                self.skipped.update(each.key for each in pending[number:])
                return number > 0
            if self._store.get(kernel.key) is None and not self._store.is_complete:
                batch = pending[number : number + _BATCH]
                self._time([each for each in batch if self._store.get(each.key) is None])
            found = self._store.get(kernel.key)
            self._seconds[kernel.key] = None if found is None else found.seconds
            self._remaining -= 0.0 if found is None else found.cost
        return bool(pending)

    def _time(self, kernels: Sequence[TimedModel]) -> None:
        """Add the times of kernels to the store, scaled to the speed of the first reference; at least that of the first."""
        begin = process_time()
        found = time_kernels(kernels, self._store.machine.threads, begin + self._remaining * _CREATION_SHARE)
        now, first = found.pop(REFERENCE), self._store.get(REFERENCE)
        scale = 1.0 if now is None or first is None or first.seconds is None else first.seconds / now
        times = {key: None if seconds is None else seconds * scale for key, seconds in found.items()}
        self._store.add({REFERENCE: now, **times}, (process_time() - begin) / len(found))
        self.num_newly_timed += sum(each is not None for each in times.values())
