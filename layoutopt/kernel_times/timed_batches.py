"""Kernels timed in batches, whose times are added to a store as if the machine always had one speed.

A shared machine changes its speed by half within minutes. Each batch includes a reference kernel, and the times of a batch are
multiplied by (first time of the reference / its time in the batch).
"""

from collections.abc import Sequence
from time import perf_counter

from layoutopt.ir.graph import Graph
from layoutopt.kernel_times.lowered_graph import LoweredGraph
from layoutopt.kernel_times.store import KernelStore
from layoutopt.kernel_times.timed_kernels import QUICK, Effort, TimedModel, time_kernels
from layoutopt.kernel_times.tiny_models import ReferenceKernel
from layoutopt.timing.interleaved import pinned

_REFERENCE = ReferenceKernel()


def time_batches(
    kernels: Sequence[TimedModel], store: KernelStore, end: float, effort: Effort = QUICK, size: int = 32
) -> list[str]:
    """Time kernels, and return the keys of those that were tried.

    Args:
        kernels: the kernels, the most important ones first.
        store: new times are added to it.
        end: in seconds of `perf_counter`; kernels whose sessions do not exist then are not timed.
        effort: how often each kernel runs.
        size: kernels of a batch.
    """
    tried: list[str] = []
    threads = store.machine.threads
    with pinned(threads):
        for start in range(0, len(kernels), size):
            batch = [_REFERENCE, *kernels[start : start + size]]
            found = {each.key: seconds for each, seconds in time_kernels(batch, threads, effort, end)}
            store.add(_at_first_speed({key: seconds for key, seconds in found.items() if seconds is not None}, store))
            tried += (key for key in found if key != _REFERENCE.key)
            if perf_counter() >= end:
                break
    return tried


def _at_first_speed(times: dict[str, float], store: KernelStore) -> dict[str, float]:
    """The times if the reference took as long as when it was timed first."""
    first = store.get(_REFERENCE.key)
    if first is None:
        return times
    factor = first / times.pop(_REFERENCE.key)
    return {key: seconds * factor for key, seconds in times.items()}


def time_graphs(graphs: Sequence[Graph], store: KernelStore, budget: float) -> list[float | None]:
    """The times of lowered graphs in seconds; None for those that do not run, or for which no time is left.

    Args:
        graphs: the graphs, the most important ones first.
        store: the times of kernels on this machine; new ones are added.
        budget: seconds after which no further batch begins.
    """
    models = [LoweredGraph(each) for each in graphs]
    missing = {each.key: each for each in models if store.get(each.key) is None}
    if missing and not store.is_complete:
        time_batches([*missing.values()], store, perf_counter() + budget)
    return [store.get(each.key) for each in models]


__all__ = ["time_batches", "time_graphs"]
