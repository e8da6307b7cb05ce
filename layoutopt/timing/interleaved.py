"""Interleaved timing: every round runs each action once, every other round in reverse order.

    A B   B A   A B   B A ...

Drifts of the clock frequency or of other load affect both sides of a ratio, and no action is always the first.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from time import perf_counter
from typing import TypeAlias

Action: TypeAlias = Callable[[], float]  # timed: it returns its seconds
IsOver: TypeAlias = Callable[[int, float], bool]  # the end condition, given the number of rounds and seconds so far


def in_rounds(
    actions: Sequence[Action], is_over: IsOver, *, clock: Callable[[], float] = perf_counter
) -> list[list[float]]:
    """The seconds of actions in rounds, one list per action; the clock is that of the end condition."""
    times: list[list[float]] = [[] for _ in actions]
    order = list(enumerate(actions))
    with without_collections():
        begin = clock()
        while not is_over(len(times[0]), clock() - begin):
            for index, action in order:
                times[index].append(action())
            order.reverse()
    return times


def timed(run: Callable[[], object], clock: Callable[[], float] = perf_counter) -> Action:
    """An action that runs something, and returns its seconds without those of freeing its results."""

    def action() -> float:
        begin = clock()
        results = run()
        passed = clock() - begin
        del results  # outside of the next action's time
        return passed

    return action


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection during a measurement, without one before it, which would traverse all objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def pinned(threads: int) -> Iterator[int | None]:
    """Pin this thread and those that it starts to one CPU if `threads` is 1; the CPU, or None if not pinned."""
    if threads != 1 or not hasattr(os, "sched_setaffinity"):
        yield None
        return
    allowed = os.sched_getaffinity(0)
    # Not the first, which serves most interrupts; not the last, which may be a slower core.
    cpu = sorted(allowed)[min(1, len(allowed) - 1)]
    try:
        os.sched_setaffinity(0, {cpu})
        yield cpu
    finally:
        os.sched_setaffinity(0, allowed)


def page_faults() -> float:
    """The page faults of this process so far that read no file; infinite on Windows, which does not report them."""
    if sys.platform == "win32":
        return inf
    from resource import RUSAGE_SELF, getrusage  # not on Windows

    return getrusage(RUSAGE_SELF).ru_minflt


def usable_cpus() -> int:
    """The number of CPUs that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
