"""Kernels timed in batches, whose times are added to a store as if the machine always had one speed.

The speed of a shared machine varies by up to a half within minutes. Each batch includes reference kernels, and the times of a
batch are multiplied by (first time of the references / their time in the batch). Times of a busy machine are not written to the
file of the store.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from time import perf_counter, process_time

from layoutopt.ir.graph import Graph
from layoutopt.kernel_times.lowered_graph import LoweredGraph
from layoutopt.kernel_times.reference_models import ReferenceKernel
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.timed_kernels import MAX_INTERLEAVED, QUICK, TimedModel, TimingBudget, time_kernels
from layoutopt.timing.interleaved import pinned

_SPACING = 8  # kernels for each reference kernel, so that a batch of long ones has enough of its times
_MIN_CPU_SHARE = 0.9  # the processor time of a batch over its duration, below which the machine is busy
LARGEST_BATCH = MAX_INTERLEAVED * _SPACING // (_SPACING + 1)
"""Kernels that run in the same rounds, with reference kernels between them."""


def time_batches(
    kernels: Sequence[TimedModel], store: KernelStore, end: float, budget: TimingBudget = QUICK, size: int = 32
) -> list[str]:
    """Add the times of kernels to a store, and return the keys of those that were run or that failed to run.

    Args:
        kernels: the kernels, the most important ones first.
        store: new times are added to it.
        end: in seconds of `perf_counter`; kernels whose sessions do not exist then are not timed.
        budget: how often each kernel runs.
        size: kernels of a batch, at most `LARGEST_BATCH`.
    """
    tried: list[str] = []
    threads = store.machine.threads
    with pinned(threads):
        for start in range(0, len(kernels), size):
            batch = [*_with_references(kernels[start : start + size])]
            begin, begin_cpu = perf_counter(), process_time()
            found = {each.key: seconds for each, seconds in time_kernels(batch, threads, budget, end)}
            share = (process_time() - begin_cpu) / (perf_counter() - begin)
            times = _normalised({key: seconds for key, seconds in found.items() if seconds is not None}, store)
            store.add(times, is_kept=threads != 1 or share >= _MIN_CPU_SHARE)
            tried += (key for key in found if not _is_reference(key))
            if perf_counter() >= end:
                break
    return tried


def _with_references(kernels: Sequence[TimedModel]) -> Iterator[TimedModel]:
    """The kernels, with a reference kernel before every eighth one."""
    for start in range(0, len(kernels), _SPACING):
        yield ReferenceKernel(start)
        yield from kernels[start : start + _SPACING]


def _is_reference(key: str) -> bool:
    return key.startswith(ReferenceKernel.NAME)


def _normalised(times: Mapping[str, float], store: KernelStore) -> Mapping[str, float]:
    """The times scaled to the speed of the first measurement of reference kernels; none if no reference kernel ran."""
    references = [seconds for key, seconds in times.items() if _is_reference(key)]
    if not references:
        return {}
    now = fmean(references)
    first = store.get(ReferenceKernel.NAME) or now
    scaled = {key: seconds * first / now for key, seconds in times.items() if not _is_reference(key)}
    return {ReferenceKernel.NAME: first, **scaled}


def time_graphs(graphs: Sequence[Graph], store: KernelStore, max_seconds: float) -> list[float | None]:
    """The times of lowered graphs in seconds; None for those that do not run, or for which no time is left.

    Args:
        graphs: the graphs, the most important ones first.
        store: the times of kernels on this machine; new ones are added.
        max_seconds: the seconds after which no further session is created.
    """
    models = [LoweredGraph(each) for each in graphs]
    missing = {each.key: each for each in models if store.get(each.key) is None}
    if missing and not store.is_complete:
        time_batches([*missing.values()], store, perf_counter() + max_seconds)
    return [store.get(each.key) for each in models]


__all__ = ["LARGEST_BATCH", "time_batches", "time_graphs"]
